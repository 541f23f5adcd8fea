"""Fast paths for what the modules beside this folder define: drop-in, and tested against them.

library       the native library: found, loaded, its structs
packing       weights as it reads them, and until when
layers        LSTM weights, packed once
recurrent     all layers of both directions at once; and one layer of both, with gradients
steps         the former by torch alone, where the library cannot
convolution   character filters by tables
linear        linear maps and highways, for reading
bfloat16      products for training, where the processor has them; bfloat16_layer, bfloat16_softmax by them
shelf         memory that is used again from step to step
"""
