"""Old AllenNLP and bilm-tf code, with nothing but its imports changed: the walk of one who has some.

The bundled en-small, written as the published pair that such code reads, stands where the original model would.

    python examples/old_allennlp_code.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import nn

import elmokit

# before: from allennlp.commands.elmo import ElmoEmbedder
#         from allennlp.modules.elmo import Elmo, batch_to_ids
#         from bilm import dump_bilm_embeddings
from elmokit.compat import Elmo, ElmoEmbedder, batch_to_ids
from elmokit.compat.bilm import dump_bilm_embeddings
from elmokit.compat.published import DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE

REVIEWS = ["a fine and moving film", "dull from start to end", "I loved every minute", "a waste of time"]
LABELS = torch.tensor([1, 0, 1, 0])


def put_a_model_there(folder: Path) -> None:
    """What a user does once, with the files that the error message names."""
    try:
        ElmoEmbedder()
    except elmokit.UserError as error:
        print(f"ElmoEmbedder() before the files are here:\n  {str(error).splitlines()[-1]}")
    elmokit.convert("en-small", folder / "pair", to="bilm")
    for name, url in (("options.json", DEFAULT_OPTIONS_FILE), ("weights.hdf5", DEFAULT_WEIGHT_FILE)):
        (folder / "pair" / name).rename(folder / url.rsplit("/", 1)[1])
    print(f"en-small is there now under the published names, {len(list(folder.glob('*.*')))} files.")


def embed_sentences() -> None:
    embedder = ElmoEmbedder()
    tokens = "He sat on the bank .".split()
    first, second = embedder.embed_sentence(tokens), embedder.embed_sentence(tokens)
    print(f"ElmoEmbedder().embed_sentence: {first.shape} (layers, tokens, width)")
    apart = np.abs(second - first).max()
    print(f"The same sentence again differs by {apart:.3f}: the state is carried, as it always was.")
    embedder.elmo_bilm._elmo_lstm.stateful = False
    again = embedder.embed_sentence(tokens)
    own = elmokit.Elmo.from_pretrained("en-small").embed([tokens], layers="all")[0]
    print(f"With stateful = False it differs from elmokit.Elmo's own vectors by {np.abs(again - own).max():.0e}.")


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.elmo = Elmo(DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE, 1, dropout=0.2)
        self.elmo._elmo_lstm._elmo_lstm.stateful = False
        self.output = nn.Linear(self.elmo.get_output_dim(), 2)

    def forward(self, sentences: list[list[str]]) -> torch.Tensor:
        embedded = self.elmo(batch_to_ids(sentences))
        vectors, mask = embedded["elmo_representations"][0], embedded["mask"].float()
        return self.output(vectors.sum(dim=1) / mask.sum(dim=1, keepdim=True))


def train_save_and_load(folder: Path) -> None:
    torch.manual_seed(0)
    sentences = [review.split() for review in REVIEWS]
    model = Classifier()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02)
    losses = []
    for _ in range(20):
        loss = nn.functional.cross_entropy(model(sentences), LABELS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"A classifier over Elmo(URL, URL, 1): loss {losses[0]:.2f} -> {losses[-1]:.2f} in {len(losses)} steps")
    torch.save(model.state_dict(), folder / "best.th")
    loaded = Classifier()
    loaded.load_state_dict(torch.load(folder / "best.th", weights_only=True))
    same = torch.equal(loaded.eval()(sentences), model.eval()(sentences))
    shares = torch.softmax(torch.cat(list(loaded.elmo.scalar_mix_0.scalar_parameters)), dim=0)
    print(f"Saved and loaded: the same scores: {same}. The layers' shares: {np.round(shares.tolist(), 2)}")


def write_files(folder: Path) -> None:
    (folder / "sentences.txt").write_text("\n".join(REVIEWS) + "\n")
    with (folder / "sentences.txt").open() as lines:
        ElmoEmbedder().embed_file(lines, folder / "allennlp.hdf5", "all", batch_size=1)
    pair = [folder / url.rsplit("/", 1)[1] for url in (DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE)]
    dump_bilm_embeddings(None, folder / "sentences.txt", *pair, folder / "bilm.hdf5")
    with h5py.File(folder / "allennlp.hdf5") as theirs, h5py.File(folder / "bilm.hdf5") as others:
        apart = max(np.abs(theirs[str(k)][...] - others[str(k)][...]).max() for k in range(len(REVIEWS)))
        print(f"embed_file and bilm-tf's dump_bilm_embeddings: {len(others)} sentences, {apart:.0e} apart at most")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ELMOKIT_PUBLISHED"] = folder
        put_a_model_there(Path(folder))
        embed_sentences()
        train_save_and_load(Path(folder))
        write_files(Path(folder))


if __name__ == "__main__":
    main()
