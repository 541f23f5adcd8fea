"""The names of AllenNLP's ELMo (`bilm` has those of bilm-tf) over our model, called as they always were.

Only what they promised is here: how they are called, what they return, that they carry the LSTMs' state from
call to call, and what their saved weights are named. The mathematics is elmokit.model's.

Shapes: B batch, T tokens, L layers (the token layer among them), D width, P = D / 2, V cached words.
"""

from elmokit.compat.boundaries import add_sentence_boundary_token_ids, remove_sentence_boundaries
from elmokit.compat.character_encoder import ElmoCharacterEncoder as _ElmoCharacterEncoder
from elmokit.compat.elmo import Elmo
from elmokit.compat.elmo_bilm import ElmoBiLm as _ElmoBiLm
from elmokit.compat.elmo_lstm import ElmoLstm
from elmokit.compat.embedder import ElmoEmbedder
from elmokit.compat.indexer import ELMoCharacterMapper, ELMoTokenCharactersIndexer, batch_to_ids
from elmokit.compat.scalar_mix import ScalarMix
from elmokit.compat.token_embedder import ElmoTokenEmbedder

__all__ = [
    "ELMoCharacterMapper",
    "ELMoTokenCharactersIndexer",
    "Elmo",
    "ElmoEmbedder",
    "ElmoLstm",
    "ElmoTokenEmbedder",
    "ScalarMix",
    "_ElmoBiLm",
    "_ElmoCharacterEncoder",
    "add_sentence_boundary_token_ids",
    "batch_to_ids",
    "remove_sentence_boundaries",
]
