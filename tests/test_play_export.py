"""elmo play --export: one file with the server's answers, found as the page's script looks for them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

import elmokit.serve
from elmokit.errors import UserError
from elmokit.serve.play import export as module
from elmokit.serve.play.export import (
    Example,
    export_page,
    marked_examples,
    own_examples,
    question_key,
    questions,
    read_pairs_file,
)
from elmokit.serve.play.joined import examples, joined_script
from elmokit.serve.play.playground import Playground
from helpers.pages import ALL_ROOMS, in_node, needs_node
from helpers.servers import make_world

PAIRS = [("He sat on the [bank] .", "She left the [bank] at noon ."), ("[눈]이 내린다 .", "눈이 [아프다] .")]
TAGS = ("</script><script>alert(1)</script> [x] <!-- ", '"><img src=x onerror=alert(1)> [y] ]]>')


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def exported(world, tmp_path_factory):
    pairs = [*PAIRS, TAGS]
    return export_page(
        tmp_path_factory.mktemp("out") / "page", {"small": world.elmo}, pairs=pairs, command="elmo <me>"
    )


class Parts(HTMLParser):
    """Elements by name: attributes and text."""

    def __init__(self, page):
        super().__init__()
        self.found, self._open = [], None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self._open = tag if tag in ("script", "style") else None
        self.found.append([tag, dict(attributes), ""])

    def handle_endtag(self, tag):
        self._open = None

    def handle_data(self, data):
        if self._open:
            self.found[-1][2] += data

    def named(self, tag):
        return [(attributes, text) for name, attributes, text in self.found if name == tag]


def given(page):
    """The data of a page by their global names."""
    (_, text), _ = Parts(page).named("script")
    return {
        name: json.loads(value) for name, value in re.findall(r"^globalThis\.(\w+) = (.*);$", text, re.MULTILINE)
    }


def test_answers_are_those_of_the_server(world, exported):
    answers = given(exported.read_text(encoding="utf-8"))["elmoAnswers"]
    asked = [question for example in own(world) for question in questions(example)]
    with TestClient(elmokit.serve.app({"small": world.elmo})) as client:
        for room, body in asked:
            answer = client.post(f"/play/{room}", json=body)
            found = answers[question_key(room, body)]
            assert found == answer.json() or found["error"]["message"] == answer.json()["error"]["message"]
    assert len(answers) == len({question_key(*question) for question in asked})


def own(world):
    return marked_examples(Playground(elmokit.serve.offer.Offer({"small": world.elmo})), [*PAIRS, TAGS])


def test_pairs_become_examples_with_the_picked_words(world, exported):
    shown = given(exported.read_text(encoding="utf-8"))["elmoExamples"]
    first = Example("He sat on the bank .", "She left the bank at noon .", 4, 3, "bank")
    assert shown[0] == {"lang": "en", **first._asdict()}
    assert (shown[1]["lang"], shown[1]["a"], shown[1]["wa"], shown[1]["wb"]) == ("ko", "눈이 내린다 .", 0, 1)
    assert json.loads((exported.parent / "export.json").read_text(encoding="utf-8"))["examples"] == shown


def test_the_policy_allows_these_scripts_and_styles_and_nothing_else(exported):
    parts = Parts(exported.read_text(encoding="utf-8"))
    [policy] = [a["content"] for a, _ in parts.named("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        hashes = [
            f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
            for _, text in parts.named(tag)
        ]
        assert rules[rule].split() == hashes
        assert len(hashes) == (2 if tag == "script" else 1)
    assert not [a for _, a, _ in parts.found if "src" in a or a.get("href", "data:,") != "data:,"]
    assert parts.found.index(["meta", {"http-equiv": "Content-Security-Policy", "content": policy}, ""]) < min(
        i for i, (tag, *_) in enumerate(parts.found) if tag in ("script", "style")
    )


def test_a_page_says_by_which_command_and_models_it_was_made(world, exported):
    page = exported.read_text(encoding="utf-8")
    [made] = [a["content"] for a, _ in Parts(page).named("meta") if a.get("name") == "elmo-made"]
    assert made == given(page)["elmoMade"]
    assert "elmo <me>" in made
    assert f"small {world.elmo.digest[:12]}" in made
    facts = json.loads((exported.parent / "export.json").read_text(encoding="utf-8"))
    assert facts["models"] == {"small": world.elmo.digest}


# As the page's script has it


@needs_node
def test_examples_are_the_pages_own(tmp_path):
    script = 'import { EXAMPLES } from "./text.js"; console.log(JSON.stringify(EXAMPLES))'
    assert examples() == in_node(tmp_path, script)
    assert [example.to_dict() for example in own_examples()] == examples()


def test_the_picked_words_of_the_pages_examples_are_there():
    from elmokit import Elmo

    models = {"en": Elmo.from_pretrained("en-small"), "ko": Elmo.from_pretrained("ko-small")}
    for one in examples():
        for side in ("a", "b"):
            assert models[one["lang"]].tokens(one[side])[one[f"w{side}"]].startswith(one["word"])


@needs_node
def test_keys_of_questions_are_the_scripts(tmp_path):
    bodies = [
        {"b": 'a "b" \\ \t\n\x01\x7f/', "a": "눈 \u2028 é 👩‍👧", "wa": 3, "Z": [1, 0.25, 1 / 3]},
        {"x": 1.0, "y": -2, "list": [1.0, 2.5], "none": None, "true": True},
        {},
    ]
    script = f"""
    import {{ questionKey }} from "./api.js";
    console.log(JSON.stringify({json.dumps(bodies)}.map((body) => questionKey("room", body))));
    """
    assert [question_key("room", body) for body in bodies] == in_node(tmp_path, script)


@needs_node
def test_what_a_room_asks_first_is_among_its_questions_in_python(tmp_path):
    """What it asks besides is seen in the browser."""
    script = (
        ALL_ROOMS
        + """
    import { questionKey } from "./api.js";
    import { EXAMPLES } from "./text.js";
    const keys = EXAMPLES.map((one) => exportedRooms.map((room) => {
      const all = { lang: one.lang, theme: "", ...one, ...room.state };
      return questionKey(room.id, room.question((name) => all[name]));
    }));
    console.log(JSON.stringify(keys));
    """
    )
    for example, keys in zip(own_examples(), in_node(tmp_path, script)):
        assert len(keys) == 6
        assert set(keys) <= {question_key(*question) for question in questions(example)}


@needs_node
def test_the_joined_script_is_one(tmp_path):
    (tmp_path / "page.mjs").write_text(joined_script(), encoding="utf-8")
    done = subprocess.run(["node", "--check", tmp_path / "page.mjs"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# Folders and files


def test_an_export_is_replaced_and_nothing_else_is(world, tmp_path):
    models = {"small": world.elmo}
    first = export_page(tmp_path / "page", models, pairs=PAIRS[:1])
    second = export_page(tmp_path / "page", models, pairs=PAIRS[1:])
    assert first == second
    assert [one["lang"] for one in given(first.read_text(encoding="utf-8"))["elmoExamples"]] == ["ko"]
    (tmp_path / "page" / "notes.txt").write_text("mine")
    before = first.read_bytes()
    with pytest.raises(UserError, match=r"holds notes\.txt: choose another folder"):
        export_page(tmp_path / "page", models, pairs=PAIRS)
    assert first.read_bytes() == before
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("mine")
    with pytest.raises(UserError, match="is not one that `elmo play --export` made"):
        export_page(tmp_path / "site", models, pairs=PAIRS)
    (tmp_path / "site" / "export.json").write_text('{"kind": "another"}')
    with pytest.raises(UserError, match="is not one that"):
        export_page(tmp_path / "site", models, pairs=PAIRS)
    assert (tmp_path / "site" / "index.html").read_text() == "mine"
    with pytest.raises(UserError, match="is a file"):
        export_page(tmp_path / "page" / "notes.txt", models, pairs=PAIRS)
    (tmp_path / "empty").mkdir()
    assert export_page(tmp_path / "empty", models, pairs=PAIRS).is_file()


def test_what_fails_leaves_the_old_export(world, tmp_path, monkeypatch):
    models = {"small": world.elmo}
    page = export_page(tmp_path / "page", models, pairs=PAIRS)
    before = page.read_bytes()

    def fail(*_):
        raise OSError("full")

    monkeypatch.setattr(module, "joined_page", fail)
    with pytest.raises(OSError, match="full"):
        export_page(tmp_path / "page", models, pairs=PAIRS[:1])
    assert page.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["page"]


def test_a_room_that_has_no_answer_says_why_on_the_page(world, monkeypatch):
    from elmokit.serve.play.rooms import start

    def refuse(*_):
        raise UserError("no letters here")

    monkeypatch.setattr(start, "answer", refuse)
    playground = Playground(elmokit.serve.offer.Offer({"small": world.elmo}))
    assert module.answer(playground, "start", {"a": "x", "b": ""}) == {"error": {"message": "no letters here"}}


def test_pairs_are_read_line_by_line(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("a [b]\t[c] d\n\n  [e]  \t[f] \n", encoding="utf-8")
    assert read_pairs_file(file) == [("a [b]", "[c] d"), ("[e]", "[f]")]
    file.write_text("a [b]\t[c]\na [b] c\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"line 2: expected two sentences with a TAB between, found 1"):
        read_pairs_file(file)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "found none"),
        ([("a b", "[c]")], "expected one word in"),
        ([("[]", "[c]")], "hold no word"),
        ([("[a] " * 1 + "b " * 300, "[c]")], "at most 400 characters"),
    ],
)
def test_pairs_that_cannot_be_shown_are_refused(world, pairs, message):
    with pytest.raises(UserError, match=message):
        marked_examples(Playground(elmokit.serve.offer.Offer({"small": world.elmo})), pairs)


def test_plain_brackets_stay(world):
    playground = Playground(elmokit.serve.offer.Offer({"small": world.elmo}))
    [found] = marked_examples(playground, [(r"a \[b\] [c]", "[d] e")])
    assert found == Example("a [b] c", "d e", 2, 0, "c")


def test_the_command_exports_and_says_where(world, elmo_command, tmp_path):
    (tmp_path / "pairs.tsv").write_text("\t".join(PAIRS[0]) + "\n", encoding="utf-8")
    model = f"small={world.model_folder}"
    code, out, err = elmo_command("play", model, "--export", "page", "--pairs", "pairs.tsv")
    assert code == 0, err
    assert out == "page/index.html: opens in any browser, without a server\n"
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert f"elmo play {model} --export page --pairs pairs.tsv" in given(page)["elmoMade"]
    assert [one["word"] for one in given(page)["elmoExamples"]] == ["bank"]
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "file").write_text("")
    code, _, err = elmo_command("play", model, "--export", "own")
    assert code == 1
    assert "own holds file" in err
    code, _, err = elmo_command("play", model, "--export", "page", "--pairs", "nowhere.tsv")
    assert code == 1
    assert "nowhere.tsv" in err
