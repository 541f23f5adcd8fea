"""Character ids -> token encoder -> biLM layers -> scalar mix.

Shapes, everywhere in this package: B batch, T tokens, C characters, W ids a token, L LSTM layers,
P projected width of one direction, H cells, D = 2P width of a layer, N distinct or flattened tokens.
"""
