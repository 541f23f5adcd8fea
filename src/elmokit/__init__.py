"""ELMo as software you can use today: contextual word vectors on the machine you have."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elmokit.embed.embedder import Elmo as Elmo
    from elmokit.embed.vectors import open_vectors as open_vectors
    from elmokit.model.bilm import BiLM as BiLM
    from elmokit.model.elmo import ElmoLayer as ElmoLayer
    from elmokit.model.scalar_mix import ScalarMix as ScalarMix
    from elmokit.pretrain.file_perplexity import perplexity_of_files as perplexity_of_files
    from elmokit.pretrain.perplexity import fill as fill
    from elmokit.pretrain.perplexity import perplexity as perplexity
    from elmokit.pretrain.perplexity import score as score
    from elmokit.pretrain.plan import finetune as finetune
    from elmokit.pretrain.plan import pretrain as pretrain

__version__ = "0.1.0"
__all__ = [
    "BiLM",
    "Elmo",
    "ElmoLayer",
    "ScalarMix",
    "__version__",
    "fill",
    "finetune",
    "open_vectors",
    "perplexity",
    "perplexity_of_files",
    "pretrain",
    "score",
]

# Looked up on first use, so that `elmo --help` does not wait for torch.
_WHERE = {
    "BiLM": "elmokit.model.bilm",
    "Elmo": "elmokit.embed.embedder",
    "ElmoLayer": "elmokit.model.elmo",
    "ScalarMix": "elmokit.model.scalar_mix",
    "fill": "elmokit.pretrain.perplexity",
    "finetune": "elmokit.pretrain.plan",
    "open_vectors": "elmokit.embed.vectors",
    "perplexity": "elmokit.pretrain.perplexity",
    "perplexity_of_files": "elmokit.pretrain.file_perplexity",
    "score": "elmokit.pretrain.perplexity",
}


def __getattr__(name: str) -> Any:
    if name == "pretrain":  # the package of that name, which can be called: see there
        return import_module("elmokit.pretrain")
    if name not in _WHERE:
        raise AttributeError(f"module 'elmokit' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
