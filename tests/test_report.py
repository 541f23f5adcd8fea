"""The page: what is there is made, what is missing leaves a note, and nothing is fetched."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

import elmokit
from elmokit import Elmo
from elmokit.analysis.probes.pairs import pairs_file
from elmokit.cli import app
from elmokit.errors import UserError
from helpers.models import SENTENCES
from helpers.senses import bank, corpus
from helpers.studies import write_result

HERE = Path(__file__).parent
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def data(tmp_path):
    """A folder with a little of everything."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "pos.conllu").write_bytes((HERE / "tasks" / "pos.conllu").read_bytes())
    (folder / "text.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    (folder / "glove.txt").write_text("bank 1 0\nriver 0.9 0.1\nmoney 0 1\n")
    pairs = json.loads(pairs_file("ko").read_text(encoding="utf-8"))
    (folder / "pairs.json").write_text(json.dumps(pairs, ensure_ascii=False), encoding="utf-8")
    senses = ["bank%1:17:01::", "bank%1:14:00::"]
    corpus(folder, "train", [bank("the river", senses[0]), bank("her money", senses[1])] * 2)
    corpus(folder, "test", [bank("a river", senses[0])])
    (folder / "study.toml").write_text(
        """
vectors = "glove.txt"
corpus = "text.txt"
pairs = "pairs.json"
queries = ["He sat on the [bank] of the <river> ."]
words = ["bank", "zebra"]
[tasks.pos]
train = "pos.conllu"
dev = "pos.conllu"
[tags]
train = "pos.conllu"
dev = "pos.conllu"
[senses]
train = "train.data.xml"
tests = ["test.data.xml"]
"""
    )
    return folder


def report(model: object, *arguments: object) -> str:
    result = CliRunner().invoke(app, ["report", "-m", *map(str, (model, *arguments))])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stderr


def write_runs(runs: Path, model_folder: Path, scores: dict[str, dict[str, float]], **facts: object) -> Path:
    """task -> variant -> the score of seed 0."""
    for task, variants in scores.items():
        for variant, score in variants.items():
            mix = {} if variant.startswith("baseline") else {"input": {"s": [0.2, 0.3, 0.5], "gamma": 1.0}}
            write_result(runs / task / variant / "seed-0", score, mix)
    digest = Elmo.from_pretrained(model_folder).checkpoint.digest
    (runs / "study.json").write_text(json.dumps({"model": digest, **facts}))
    return runs


class Page(HTMLParser):
    """Headings, notes of what is missing, figures, and whatever would be fetched."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.headings, self.missing, self.fetched, self.svgs, self._in = [], [], [], 0, None
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self._in = "h2" if tag == "h2" else "missing" if found.get("class") == "missing" else None
        self.svgs += tag == "svg"
        self.fetched += [v for k, v in attrs if k in ("src", "href") and not v.startswith(("#", "data:"))]
        assert tag != "script"

    def handle_data(self, data):
        if self._in == "h2":
            self.headings.append(data)
        elif self._in == "missing":
            self.missing.append(data)
        self._in = None


@pytest.mark.slow
def test_a_page_with_everything(tmp_path, data, model_folder):
    runs = write_runs(tmp_path / "runs", model_folder, {"pos": {"baseline": 80.0, "elmo": 85.0}})
    told = report(
        model_folder, "--data", data, "--runs", runs, "-o", tmp_path / "r.html", "--save", tmp_path / "saved"
    )
    assert "tables and figures" in told
    page = Page(tmp_path / "r.html")
    assert len(page.headings) == 9
    assert page.fetched == []
    assert "://" not in page.text
    assert page.svgs >= 6
    assert "&lt;river&gt;" in page.text
    assert "gamma" in page.text
    assert f"elmo probe wsd {data}/train.data.xml" in page.text
    # Three studies have no runs, and one word no occurrences.
    assert len(page.missing) == 4
    assert any("zebra" in note for note in page.missing)
    assert page.text.rindex("</article>") < page.text.index("Not run yet")  # what there is to see comes first
    names = {path.stem for path in (tmp_path / "saved").glob("*.csv")}
    assert names >= {"tasks", "weights", "pos", "wsd", "pairs", "neighbours-1", "polysemy-bank"}


def test_one_call_in_python_does_what_the_command_does(tmp_path, data, model_folder):
    runs = write_runs(tmp_path / "runs", model_folder, {"pos": {"baseline": 80.0, "elmo": 85.0}})
    report(model_folder, "--data", data, "--runs", runs, "-o", tmp_path / "r.html", "--save", tmp_path / "saved")
    told = []
    made = elmokit.report(
        model_folder,
        data=data,
        runs=runs,
        out=tmp_path / "python" / "r.html",
        save=tmp_path / "python" / "saved",
        on_progress=told.append,
    )
    assert made.page.read_bytes() == (tmp_path / "r.html").read_bytes()
    assert {path.name for path in made.files} == {path.name for path in (tmp_path / "saved").iterdir()}
    for path in made.files:
        assert path.read_bytes() == (tmp_path / "saved" / path.name).read_bytes()
    assert {"tasks", "pos", "wsd", "pairs"} <= {exhibit.name for exhibit in made.exhibits}
    assert {"Nearest neighbours", "Word senses", "embedding", "fitting"} <= {now.stage for now in told}


@pytest.mark.parametrize(
    "name",
    [
        "layer_sections.neighbours",
        "layer_sections.probe_senses",
        "layer_sections.probe_tags",
        "layer_sections.probe_pairs",
        "layer_sections.polysemy",
        "task_sections.read_results",
        "task_sections.check_data",
    ],
)
def test_a_bug_is_not_shown_as_something_that_is_left_out(tmp_path, data, model_folder, monkeypatch, name):
    def broken(*arguments, **options):
        raise ValueError("nobody's mistake but ours")

    def lacking(*arguments, **options):
        raise UserError("there is no such file")

    for other in ("neighbours", "probe_senses", "probe_tags", "probe_pairs", "polysemy"):  # those are quick
        monkeypatch.setattr(f"elmokit.study.layer_sections.{other}", lacking)
    monkeypatch.setattr(f"elmokit.study.{name}", broken)
    runs = write_runs(tmp_path / "runs", model_folder, {"pos": {"baseline": 80.0, "elmo": 85.0}})
    with pytest.raises(ValueError, match="nobody's mistake but ours"):
        elmokit.report(model_folder, data=data, runs=runs, out=tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_what_is_missing_leaves_a_note_and_the_rest_is_made(tmp_path, data, model_folder):
    for name in ("text.txt", "train.data.xml", "pairs.json"):
        (data / name).unlink()
    (data / "glove.txt").unlink()
    report(model_folder, "--data", data, "-o", tmp_path / "r.html")
    page = Page(tmp_path / "r.html")
    assert len(page.headings) == 9
    assert sum(name in note for note in page.missing for name in ("text.txt", "train.data.xml", "pairs.json")) == 4
    assert "layer 2" in page.text  # the tags' probe


def test_without_a_tagged_corpus_words_are_looked_for_in_plain_text(tmp_path, model_folder):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "text.txt").write_text("큰 배가 왔다\n배가 고프다\n눈이 온다\n눈이 크다\n", encoding="utf-8")
    (folder / "study.toml").write_text(
        'corpus = "text.txt"\npairs = "ko"\nwords = ["배가", "크다", "온다"]', encoding="utf-8"
    )
    report(model_folder, "--data", folder, "-o", tmp_path / "r.html")
    page = Page(tmp_path / "r.html")
    assert f"배가&#x27; --corpus {folder}/text.txt --senses ko -m" in page.text
    assert "과일" in page.text
    assert "elmo probe pairs ko -m" in page.text
    assert re.search(r"two occurrences or more of [^ ]*<span lang=.ko.>온다", page.text)


def test_a_damaged_file_leaves_a_note(tmp_path, data, model_folder):
    (data / "pos.conllu").write_text("1\tonly\ttwo\n\n")
    report(model_folder, "--data", data, "-o", tmp_path / "r.html")
    assert any("pos.conllu, line" in note or "pos.conllu" in note for note in Page(tmp_path / "r.html").missing)


def test_runs_of_another_model_are_not_shown(tmp_path, data, model_folder):
    runs = tmp_path / "runs"
    write_result(runs / "pos" / "elmo" / "seed-0", 85.0)
    (runs / "study.json").write_text(json.dumps({"model": "another"}))
    report(model_folder, "--data", data, "--runs", runs, "-o", tmp_path / "r.html")
    assert any("another model" in note for note in Page(tmp_path / "r.html").missing)


@pytest.mark.slow
def test_every_task_that_has_runs_of_a_study_is_in_its_table(tmp_path, data, model_folder):
    """Sentiment is none of the paper's three, nor in this data; ner has the runs that all studies share alone."""
    both = {"baseline": 80.0, "elmo": 85.0}
    scores = {
        "sentiment": {**both, "last": 82.0, "baseline-0.01": 1.0, "elmo-0.01": 2.0},
        "ner": both,
        "pos": both,
    }
    runs = write_runs(tmp_path / "runs", model_folder, scores)
    report(model_folder, "--data", data, "--runs", runs, "-o", tmp_path / "r.html", "--save", tmp_path / "saved")

    def tasks(name: str) -> list[str]:
        return [row[0] for row in json.loads((tmp_path / "saved" / f"{name}.json").read_text())["rows"]]

    assert tasks("tasks") == ["pos", "sentiment", "ner"]
    assert tasks("weighting") == ["sentiment"]
    assert tasks("samples") == ["sentiment"] * 2
    assert tasks("samples-epochs") == ["sentiment"] * 2
    assert sum("Not run yet" in note for note in Page(tmp_path / "r.html").missing) == 1  # placement


def test_a_copy_beside_the_runs_is_none_of_them(tmp_path, data, model_folder):
    runs = write_runs(tmp_path / "runs", model_folder, {"pos": {"baseline": 80.0, "elmo": 85.0}})
    write_result(runs / "pos" / "elmo" / "seed-0-old", 10.0)
    report(model_folder, "--data", data, "--runs", runs, "-o", tmp_path / "r.html", "--save", tmp_path / "saved")
    (row,) = json.loads((tmp_path / "saved" / "tasks.json").read_text())["rows"]
    assert row[4] == 85.0


def test_only_small_shares_and_scores_of_nought_make_a_page(tmp_path, data, model_folder):
    nought = dict.fromkeys(("baseline", "last", "lambda-1", "elmo"), 0.0)
    scores = {"ner": {"baseline-0.001": 1.0, "elmo-0.001": 2.0}, "srl": nought}
    runs = write_runs(tmp_path / "runs", model_folder, scores)
    report(model_folder, "--data", data, "--runs", runs, "-o", tmp_path / "r.html")
    page = Page(tmp_path / "r.html")
    assert not any("drawing it failed" in note for note in page.missing)
    assert "the score by the size of the training set" in page.text


def test_runs_on_other_data_are_left_out_with_a_note(tmp_path, data, model_folder):
    both = {"baseline": 80.0, "elmo": 85.0}
    runs = write_runs(tmp_path / "runs", model_folder, {"pos": both, "ner": both})
    (runs / "pos" / "data.json").write_text(json.dumps({"training file": "pos.conllu of 5 bytes"}))
    report(model_folder, "--data", data, "--runs", runs, "-o", tmp_path / "r.html", "--save", tmp_path / "saved")
    (note,) = [note for note in Page(tmp_path / "r.html").missing if "Without pos" in note]
    assert "another training file (pos.conllu of 5 bytes, not pos.conllu of" in note
    assert (tmp_path / "saved" / "tasks.csv").read_text().splitlines()[1].startswith("ner,")


@pytest.mark.slow
def test_the_commands_make_the_same_page(tmp_path, data, model_folder):
    scores = {"pos": {f"{kind}{share}": 50.0 for kind in ("baseline", "elmo") for share in ("", "-0.5")}}
    settings = ["train.epochs=2", "note=a b"]
    runs = write_runs(tmp_path / "runs", model_folder, scores, recipe="paper", settings=settings)
    (data / "glove.txt").rename(data / "static vectors.txt")
    toml = (data / "study.toml").read_text().replace("glove.txt", "static vectors.txt")
    (data / "study.toml").write_text(toml)
    options = ("--limit", 100, "--seed", 7, "--shares", "0.5,1", "--runs", runs)
    report(model_folder, "--data", data, "-o", tmp_path / "r.html", *options)
    commands = [
        shlex.split(line)
        for block in re.findall(r"<pre><code>(.*?)</code>", (tmp_path / "r.html").read_text(), re.DOTALL)
        for line in unescape(block).splitlines()
    ]

    def options_of(*names: str) -> str:
        (found,) = [line for line in commands if line[1 : 1 + len(names)] == list(names)]
        return " ".join(found[1 + len(names) :])

    for names in (("probe", "tags"), ("probe", "wsd")):
        assert options_of(*names).endswith("--limit 100 --seed 7")
    assert "--seed 7" in options_of("polysemy", "bank")
    own = f"-m {model_folder} --out {runs}"
    recipe = "--recipe paper --set train.epochs=2 --set note=a b"
    assert options_of("study", "tasks") == f"--data {data} --seeds 1 {recipe} {own}"  # pos is all that there is
    assert options_of("study", "weighting") == f"--data {data} {recipe} {own}"
    assert options_of("study", "samples") == f"--data {data} --shares 0.5,1 {recipe} {own}"
    (data / "ner.conll").write_bytes((HERE / "tasks" / "ner.conll").read_bytes())
    (data / "study.toml").write_text(f'{toml}\n[tasks.ner]\ntrain = "ner.conll"\ndev = "ner.conll"\n')
    report(model_folder, "--data", data, "-o", tmp_path / "r.html", *options)
    assert "--tasks pos --seeds 1" in (tmp_path / "r.html").read_text()  # ner could be run, and was not


def test_vectors_that_are_missing_are_noted(tmp_path, data, model_folder):
    (data / "glove.txt").unlink()
    report(model_folder, "--data", data, "-o", tmp_path / "r.html")
    page = Page(tmp_path / "r.html")
    notes = [note for note in page.missing if "Without static vectors: there is no file" in note]
    assert len(notes) == 2  # neighbours and parts of speech, which are made
    assert "words compared" in page.text
    (data / "study.toml").write_text((data / "study.toml").read_text().replace('vectors = "glove.txt"', ""))
    report(model_folder, "--data", data, "-o", tmp_path / "r.html")
    notes = [note for note in Page(tmp_path / "r.html").missing if "the data names no vectors" in note]
    assert len(notes) == 2


def test_without_its_pairs_a_word_is_drawn_from_the_text(tmp_path, data, model_folder):
    toml = (data / "study.toml").read_text()
    (data / "study.toml").write_text(toml[: toml.index("[senses]")])
    (data / "pairs.json").unlink()
    (data / "text.txt").write_text("the bank of the river\nher bank has money\n")
    report(model_folder, "--data", data, "-o", tmp_path / "r.html", "--save", tmp_path / "saved")
    assert (tmp_path / "saved" / "polysemy-bank.csv").is_file()
    assert any("no sense is known: there is no file" in note for note in Page(tmp_path / "r.html").missing)


def test_a_bad_query_does_not_take_the_others_with_it(tmp_path, data, model_folder):
    toml = (data / "study.toml").read_text()
    queries = 'queries = ["nothing is marked", "the [bank]", "[two] [marks]"]'
    (data / "study.toml").write_text(re.sub("queries = .*", queries, toml))
    report(model_folder, "--data", data, "-o", tmp_path / "r.html", "--save", tmp_path / "saved")
    page = Page(tmp_path / "r.html")
    (note,) = [note for note in page.missing if "Query 1 is left out" in note]
    assert "nothing is marked" in note
    assert "Query 3 is left out" in note
    assert [path.stem for path in (tmp_path / "saved").glob("neighbours-*.csv")] == ["neighbours-2"]
    assert page.text.count("elmo neighbours") == 1


def test_where_it_is_written_is_seen_to_first(tmp_path, data, model_folder, monkeypatch):
    report(model_folder, "--data", data, "-o", tmp_path / "new" / "folder" / "r.html")
    assert (tmp_path / "new" / "folder" / "r.html").is_file()
    monkeypatch.setattr("elmokit.study.report.make_sections", lambda *_: pytest.fail("made before it was seen to"))
    (tmp_path / "file").write_text("")
    for options, message in (
        (("-o", tmp_path), "expected the name of a file to write, found a folder"),
        (("-o", tmp_path / "file" / "r.html"), "expected a folder to write to, found a file"),
        (("--save", tmp_path / "file", "-o", tmp_path / "r.html"), "expected a folder to write to, found a file"),
    ):
        line = ["report", "-m", model_folder, "--data", data, *options]
        assert message in str(CliRunner().invoke(app, [*map(str, line)]).exception)


def test_nothing_at_all(tmp_path, model_folder):
    (tmp_path / "empty").mkdir()
    report(model_folder, "--data", tmp_path / "empty", "-o", tmp_path / "r.html")
    page = Page(tmp_path / "r.html")
    assert len(page.missing) == len(page.headings) == 9
    assert re.search(r"there is no file .*simplewiki", page.text)


def test_an_index_in_place_of_the_corpus(tmp_path, data, model_folder):
    pytest.importorskip("lancedb")
    from elmokit.analysis.contexts.index import ContextIndex

    ContextIndex.build(Elmo.from_pretrained(model_folder), [data / "text.txt"], tmp_path / "i")
    (data / "text.txt").unlink()
    report(model_folder, "--data", data, "--index", tmp_path / "i", "-o", tmp_path / "r.html")
    assert "words compared" in Page(tmp_path / "r.html").text


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_a_browser_has_nothing_to_complain_of(tmp_path, data, model_folder):
    report(model_folder, "--data", data, "-o", tmp_path / "r.html")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    flags += ["--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [BROWSER, *flags, "--dump-dom", (tmp_path / "r.html").as_uri()], capture_output=True, text=True, timeout=60
    )
    assert "What the layers of" in done.stdout
    assert "CONSOLE" not in done.stderr  # the page's policy allows no request: one would be told here
