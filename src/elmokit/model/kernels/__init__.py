"""Fast paths for what the modules beside this folder define: drop-in, and tested against them.

library       the native library: found, checked, loaded, chosen; structs and sources are what it is made of
dispatch      which path runs
cache         what was made of weights, and until when
packing       weights as the library reads them; layers: those of an LSTM
reading       sentences through the whole model in one call: ids of new words in, layers out
recurrent     all layers of both directions at once; and one layer of both, with gradients
steps         the former by torch alone, where the library cannot
convolution   character filters by tables
linear        linear maps and highways, without gradients
bfloat16      products for training, where the processor has them; bfloat16_layer, bfloat16_softmax by them
buffers       memory that is used again from step to step
"""

from elmokit.model.kernels.cache import trust_versions
from elmokit.model.kernels.library import use, variant

__all__ = ["trust_versions", "use", "variant"]
