"""AllenNLP's names over our model: `Elmo`, `ElmoEmbedder` and `batch_to_ids`, called as they always were.

Only what they promised is here: how they are called, what they return, that they carry the LSTMs' state from
call to call, and what their saved weights are named. The mathematics is elmokit.model's.

Shapes: B batch, T tokens, L layers (the token layer among them), D width, P = D / 2, V cached words.
"""

from elmokit.compat.bilm import batch_to_ids
from elmokit.compat.elmo import Elmo
from elmokit.compat.embedder import ElmoEmbedder

__all__ = ["Elmo", "ElmoEmbedder", "batch_to_ids"]
