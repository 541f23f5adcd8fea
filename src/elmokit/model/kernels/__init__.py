"""Fast paths for what the modules beside this folder define: drop-in, and tested against them.

library       the native library: found, loaded, its structs
layers        LSTM weights, packed once
recurrent     all layers of both directions at once; and one layer of both, with gradients
convolution   character filters by tables
"""
