"""The playground: a page on which a reader's own sentences go through the model, room by room.

page/ is what the browser gets, one module per room; rooms/ computes what a room shows, one module each.
"""

MODELS = ("en-small", "ko-small")  # who reads, where nobody says
