"""Small healthy files of every kind that elmokit reads, to be damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from elmokit import Elmo
from elmokit.checkpoint import Checkpoint
from elmokit.embed.job import EmbedJob
from elmokit.formats.bilm_hdf5 import write_bilm
from elmokit.formats.many_langs import CHARACTERS, EMBEDDER, ENCODER, WORDS
from elmokit.model.bilm import BiLM, BiLMConfig
from elmokit.model.char_encoder import CharEncoderConfig
from elmokit.model.language_head import LanguageHead
from elmokit.model.lstm import LSTMConfig
from elmokit.text.characters import ByteMapper
from elmokit.text.tokens import TokenizerConfig
from elmokit.text.vocabulary import Vocabulary

TEXT = "He sat on the bank .\nShe works at a bank\n\n밥을 먹었다 .\n"
LEXICON = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>", *"abc"]
SUFFIXES = (".h5", ".npz", ".safetensors", ".parquet")
CONFIG = BiLMConfig(CharEncoderConfig(embedding=3, filters=((1, 3), (2, 2)), highway=1), LSTMConfig(1, 5, 4))


def make_samples(folder: Path) -> dict[str, Path]:
    """kind -> a model's folder, or a file."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    words = Vocabulary(["bank", "river"])
    tokenizer = TokenizerConfig("whitespace")
    ours = Checkpoint(BiLM(CONFIG).eval(), ByteMapper(), tokenizer, words, LanguageHead(len(words), 4))
    ours.save(folder / "elmokit")
    pair = folder / "bilm"
    pair.mkdir()
    write_bilm(ours, pair / "options.json", pair / "weights.hdf5")
    text = folder / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    samples = {"elmokit": folder / "elmokit", "bilm": pair, "many-langs": _many_langs(folder / "many-langs")}
    for suffix in SUFFIXES:
        path = samples[f"vectors {suffix}"] = folder / f"vectors{suffix}"
        EmbedJob(Elmo(ours), text, path).run()
    vectors = np.random.default_rng(0).normal(size=(6, 4)).astype("<f4")
    samples["words text"] = folder / "words.txt"
    samples["words text"].write_text("".join(f"w{i} {' '.join(map(str, row))}\n" for i, row in enumerate(vectors)))
    samples["words binary"] = folder / "words.bin"
    rows = b"".join(b"w%d " % i + row.tobytes() + b"\n" for i, row in enumerate(vectors))
    samples["words binary"].write_bytes(b"6 4\n" + rows)
    return samples


def many_langs_config() -> dict[str, dict[str, object]]:
    return {
        "encoder": {"name": "elmo", "projection_dim": 4, "dim": 5, "n_layers": 1, "cell_clip": 3, "proj_clip": 3},
        "token_embedder": {
            "name": "cnn",
            "activation": "relu",
            "filters": [[1, 3], [2, 2]],
            "n_highway": 1,
            "word_dim": 2,
            "char_dim": 3,
            "max_characters_per_token": 10,
        },
    }


def _many_langs(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(many_langs_config()))
    for name in (CHARACTERS, WORDS):
        (folder / name).write_text("".join(f"{entry}\t{i}\n" for i, entry in enumerate(LEXICON)))
    embedder = {
        "word_emb_layer.embedding.weight": (len(LEXICON), 2),
        "char_emb_layer.embedding.weight": (len(LEXICON), 3),
        "convolutions.0.weight": (3, 3, 1),
        "convolutions.0.bias": (3,),
        "convolutions.1.weight": (2, 3, 2),
        "convolutions.1.bias": (2,),
        "highways._layers.0.weight": (10, 5),
        "highways._layers.0.bias": (10,),
        "projection.weight": (4, 7),
        "projection.bias": (4,),
    }
    parts = {"input_linearity.weight": (20, 4), "state_linearity.weight": (20, 4), "state_linearity.bias": (20,)}
    parts["state_projection.weight"] = (4, 5)
    encoder = {f"{way}_layer_0.{name}": shape for way in ("forward", "backward") for name, shape in parts.items()}
    # The one as published, in the format before zip; the other as torch writes now.
    for name, shapes, is_zip in ((EMBEDDER, embedder, False), (ENCODER, encoder, True)):
        tensors = {key: torch.randn(shape) for key, shape in shapes.items()}
        torch.save(tensors, folder / name, _use_new_zipfile_serialization=is_zip)
    return folder
