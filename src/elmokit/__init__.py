"""ELMo as software you can use today: contextual word vectors on the machine you have."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elmokit.embed.embedder import Elmo as Elmo
    from elmokit.embed.job import embed_file as embed_file
    from elmokit.embed.vectors import open_vectors as open_vectors
    from elmokit.errors import UserError as UserError
    from elmokit.model.bilm import BiLM as BiLM
    from elmokit.model.elmo import ElmoLayer as ElmoLayer
    from elmokit.model.scalar_mix import ScalarMix as ScalarMix
    from elmokit.pretrain.file_perplexity import perplexity_of_files as perplexity_of_files
    from elmokit.pretrain.perplexity import fill as fill
    from elmokit.pretrain.perplexity import perplexity as perplexity
    from elmokit.pretrain.perplexity import score as score
    from elmokit.pretrain.plan import finetune as finetune
    from elmokit.pretrain.plan import pretrain as pretrain
    from elmokit.serve.client import Client as Client
    from elmokit.sources.catalogue import describe as describe
    from elmokit.sources.catalogue import list_models as list_models
    from elmokit.sources.conversion import convert as convert
    from elmokit.study.report import report as report
    from elmokit.tasks.train import train_task as train_task

__version__ = "0.1.0"
__all__ = [
    "BiLM",
    "Client",
    "Elmo",
    "ElmoLayer",
    "ScalarMix",
    "UserError",
    "__version__",
    "convert",
    "describe",
    "embed_file",
    "fill",
    "finetune",
    "list_models",
    "open_vectors",
    "perplexity",
    "perplexity_of_files",
    "pretrain",
    "report",
    "score",
    "train_task",
]

# Looked up on first use, so that `elmo --help` does not wait for torch.
_WHERE = {
    "BiLM": "elmokit.model.bilm",
    "Client": "elmokit.serve.client",
    "Elmo": "elmokit.embed.embedder",
    "ElmoLayer": "elmokit.model.elmo",
    "ScalarMix": "elmokit.model.scalar_mix",
    "UserError": "elmokit.errors",
    "convert": "elmokit.sources.conversion",
    "describe": "elmokit.sources.catalogue",
    "embed_file": "elmokit.embed.job",
    "fill": "elmokit.pretrain.perplexity",
    "finetune": "elmokit.pretrain.plan",
    "list_models": "elmokit.sources.catalogue",
    "open_vectors": "elmokit.embed.vectors",
    "perplexity": "elmokit.pretrain.perplexity",
    "perplexity_of_files": "elmokit.pretrain.file_perplexity",
    "report": "elmokit.study.report",
    "score": "elmokit.pretrain.perplexity",
    "train_task": "elmokit.tasks.train",
}


def __getattr__(name: str) -> Any:
    if name == "pretrain":  # the package of that name, which can be called: see there
        return import_module("elmokit.pretrain")
    if name not in _WHERE:
        raise AttributeError(f"module 'elmokit' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
