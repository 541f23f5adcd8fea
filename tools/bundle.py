"""A finished training run -> a model that the package carries: float16 weights, measured as they are shipped, with a
card; its log, curve and figures go to docs/models/NAME.

    .venv/bin/python tools/bundle.py RUN en-small --data ../shared/data

Figures are measured on development data: test data has no part in this. Takes some minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from elmokit import Elmo, __version__
from elmokit.analysis.probes.classification import probe_text
from elmokit.analysis.probes.pairs import probe_pairs
from elmokit.analysis.probes.senses import probe_senses
from elmokit.analysis.probes.tagging import probe_tags
from elmokit.atomic import write_file
from elmokit.checkpoint import Checkpoint
from elmokit.pretrain.corpus import PreparedCorpus
from elmokit.pretrain.metrics import read_metrics
from elmokit.pretrain.perplexity import perplexity
from elmokit.pretrain.run import CORPUS, MODEL, RUN

ROOT = Path(__file__).parent.parent
LANGUAGES = {"en": "English", "ko": "Korean"}
TEXTS = {
    "en": "Simple English Wikipedia and a slice of English Wikipedia (CC BY-SA 3.0 and 4.0), 89 English novels and "
    "stories of 1719 to 1922 from Project Gutenberg (public domain in the US)",
    "ko": "the first part of Korean Wikipedia (CC BY-SA 3.0 and 4.0)",
}
LIMITS = {
    "en": """- Small, and trained for hours on two cores: predictions are far from those of a large model, and a longer
  training would go on to improve them (see the curve).
- The text is encyclopaedic, or a century old and more: speech of today, code, social media and technical fields are
  strange to it. `elmo finetune` teaches it a domain.
- Wikipedia and old novels hold the biases of who wrote them, of whom and when; the vectors carry them.
- Tokens are cut as the Penn Treebank does; text cut otherwise is read less well.""",
    "ko": """- Small, and trained for hours on two cores: predictions are far from those of a large model, and a longer
  training would go on to improve them (see the curve).
- The text is encyclopaedic, in the plain written style: speech, reviews and messages are strange to it.
  `elmo finetune` teaches it a domain.
- Tokens are eojeol. Words with their particles are many, so more of them than in English are unknown as predictions
  (as input every word is read by its characters).
- Wikipedia holds the biases of who wrote it; the vectors carry them.""",
}
GLOVE = "vectors/glove.6B.100d.50k.txt.xz"


def measure(elmo: Elmo, run: Path, language: str, data: Path, console: Console) -> dict[str, Any]:
    """Everything that the card states, by layer where there are layers."""
    held_out = PreparedCorpus.open(run / CORPUS / "held-out")
    sentences = [[held_out.types[t] for t in held_out.sentence(i)] for i in range(held_out.sentences)]
    facts: dict[str, Any] = {}
    for state in ("zero", "carry"):
        console.print(f"perplexity, state {state}")
        found = perplexity(elmo.checkpoint, iter(sentences), state=state)
        facts[f"perplexity_{state}"] = {**found._asdict(), "mean": found.mean}
    console.print("parts of speech")
    result = probe_tags(
        elmo,
        data / f"pos/{language}-train.conllu.xz",
        data / f"pos/{language}-dev.conllu",
        vectors=data / GLOVE if language == "en" else None,
    )
    facts["pos"] = dataclasses.asdict(result)
    console.print("word pairs")
    pairs = probe_pairs(elmo, language)
    facts["pairs"] = {key: value for key, value in dataclasses.asdict(pairs).items() if key != "words"}
    if language == "en":
        console.print("word senses")
        senses = probe_senses(
            elmo,
            data / "wsd/semcor.data.xml.xz",
            data / "wsd/senseval2.data.xml",
            index=data / "wsd/index.sense.xz",
        )
        facts["wsd"] = {
            **dataclasses.asdict(senses),
            "by_layer": [score._asdict() for score in senses.by_layer],
            **{name: getattr(senses, name)._asdict() for name in ("mean", "most_frequent", "first_sense")},
        }
    else:
        console.print("reviews")
        text = probe_text(elmo, data / "nsmc/ratings_train.txt.xz", data / "nsmc/ratings_dev.txt")
        facts["reviews"] = dataclasses.asdict(text)
    return facts


def percent(shares: list[float]) -> str:
    return " | ".join(f"{100 * share:.1f}" for share in shares)


def write_card(name: str, run: Path, model: Checkpoint, facts: dict[str, Any]) -> str:
    language = name[:2]
    config = json.loads((run / RUN).read_bytes())
    train, optimizer, lstm = (config["recipe"]["train"], config["recipe"]["optimizer"], model.bilm.config.lstm)
    last = [row for row in read_metrics(run) if "perplexity" in row][-1]
    corpus = PreparedCorpus.open(run / CORPUS / "train")
    zero, carry, pos, pairs = (facts[key] for key in ("perplexity_zero", "perplexity_carry", "pos", "pairs"))
    assert model.head is not None
    sizes = [sum(p.numel() for p in module.parameters()) for module in (model.bilm, model.head)]
    unknown = 100 * zero["unknown"]
    by_layer = ["layer 0", "layer 1", "layer 2", "mean of the layers"]
    rows = [f"| parts of speech, UPOS accuracy | {percent([*pos['by_layer'], pos['mean']])} |"]
    notes = [f"most frequent tag of each word {100 * pos['baseline']:.1f}"]
    if pos["vectors"] is not None:
        notes.append(f"GloVe 100d in the same probe {100 * pos['vectors']:.1f}")
    if language == "en":
        wsd = facts["wsd"]
        rows.append(
            "| word senses, 1-NN, F1 | " + percent([s["f1"] for s in [*wsd["by_layer"], wsd["mean"]]]) + " |"
        )
        notes.append(
            f"first sense of WordNet alone {100 * wsd['first_sense']['f1']:.1f}, "
            f"most frequent sense of SemCor {100 * wsd['most_frequent']['f1']:.1f}"
        )
        data = "UD English EWT dev; SemCor to senseval2; `elmo probe pairs en`"
    else:
        text = facts["reviews"]
        rows.append(f"| NSMC reviews, accuracy | {percent(text['by_layer'])} | |")
        notes.append(
            f"all layers side by side, for the reviews, {100 * text['concatenated']:.1f} "
            f"({text['train_examples']:,} for training)"
        )
        data = "UD Korean Kaist dev; NSMC dev; `elmo probe pairs ko`"
    apart = [*pairs["told_apart"], pairs["told_apart_mean"]]
    rows.append(f"| words of two senses, told apart | {percent(apart)} |")
    rows.append(f"| their contexts, nearer to their own sense | {percent([*pairs['by_layer'], pairs['mean']])} |")
    return f"""---
language: {language}
license: cc-by-sa-4.0
library_name: elmokit
---
# {name}

A small {LANGUAGES[language]} ELMo (Peters et al. 2018). `Elmo.from_pretrained("{name}")`; no network is needed.

| | |
|---|---|
| language | {LANGUAGES[language]} |
| layers | {model.bilm.config.layers}, each {model.bilm.config.width} wide |
| LSTM | {lstm.layers} layers, {lstm.cells} cells projected to {lstm.width} per direction |
| spelling | {model.mapper.kind}, {model.mapper.width} characters per token |
| tokenizer | {model.tokenizer.name}, {model.tokenizer.normalize} |
| parameters | {sizes[0]:,} and {sizes[1]:,} of the softmax, stored as float16 |
| predicts | {len(model.vocabulary or ()):,} words |

## Data and training

Text: {TEXTS[language]}; {corpus.tokens:,} tokens in {corpus.sentences:,} sentences, and {zero["sentences"]:,} sentences
held out. Seen in training: {last["tokens"]:,} tokens ({last["tokens"] / (corpus.tokens + corpus.sentences):.2f} epochs), {last["step"]:,} steps of
{train["rows"]} x {train["steps"]}, {optimizer["kind"]} at {optimizer["learning_rate"]} ({optimizer["schedule"]}), dropout {train["dropout"]}, seed {train["seed"]}; {last["seconds"] / 3600:.1f} hours on one core of
a 2-core machine without GPU that did other work beside it. Command, log and curve: docs/models/{name} in the
repository.

## Figures

Perplexity of the held-out text, full softmax, {zero["predictions"]:,} predictions per direction, {unknown:.1f} % of the words
unknown (`<UNK>` is a prediction like any other):

| | forward | backward | mean |
|---|---|---|---|
| every sentence on its own (state zero) | {zero["forward"]:.1f} | {zero["backward"]:.1f} | {zero["mean"]:.1f} |
| one after the other (state carry) | {carry["forward"]:.1f} | {carry["backward"]:.1f} | {carry["mean"]:.1f} |

Probes, in per cent ({data}):

| | {" | ".join(by_layer)} |
|---|---|---|---|---|
{chr(10).join(rows)}

For comparison: {"; ".join(notes)}. Layer 0 knows the word alone, so of two senses it tells half by construction.

## Licence

The weights are offered under CC BY-SA 4.0, as most of the text that they were trained on is.

## Known limits

{LIMITS[language]}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("name", choices=["en-small", "ko-small"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, help="instead of the package and docs/models")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    console, name, run = Console(), arguments.name, arguments.run
    docs = (arguments.out or ROOT / "docs/models") / name
    target = arguments.out / "model" if arguments.out else ROOT / "src/elmokit/data/models" / name
    model = Checkpoint.load(run / MODEL)
    model.save(target, weights="float16", overwrite=True)
    shipped = Elmo.from_pretrained(target)  # as it is shipped: rounded
    facts = measure(shipped, run, name[:2], arguments.data, console)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    facts = {"elmokit": __version__, "commit": commit.stdout.strip(), **facts}
    docs.mkdir(parents=True, exist_ok=True)
    write_file(docs / "figures.json", json.dumps(facts, indent=1, default=str).encode())
    model.card = write_card(name, run, model, facts)
    model.save(target, weights="float16", overwrite=True)
    rows = read_metrics(run)
    kept = [row for i, row in enumerate(rows) if "perplexity" in row or i % 25 == 0]
    write_file(docs / "log.jsonl", "".join(json.dumps(row) + "\n" for row in kept).encode())
    write_file(docs / "card.md", model.card.encode())
    shutil.copy(run / "curve.png", docs / "curve.png")
    settings = json.loads((run / RUN).read_bytes())
    settings["sources"] = [
        Path(source).name for source in settings["sources"]
    ]  # not where they lay on this machine
    write_file(docs / "run.json", json.dumps(settings, indent=1).encode())
    console.print(model.card, markup=False, highlight=False)
    console.print({path.name: f"{path.stat().st_size / 1e6:.2f} MB" for path in sorted(target.iterdir())})


if __name__ == "__main__":
    main()
