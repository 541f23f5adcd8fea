"""The playground's frame: the page as it is served, its modules, and questions that make no sense."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

import elmokit.serve
from elmokit.errors import UserError
from elmokit.serve import application
from elmokit.serve.play.export import Example, questions
from elmokit.serve.play.joined import EXPORT, IMPORT, PAGE, module_order, top_level_names
from elmokit.serve.routes.play import KINDS, ROOMS
from elmokit.serve.server import free_port
from helpers.pages import ALL_ROOMS, in_node, needs_node
from helpers.servers import eventually, make_world, running

FILES = [
    *(file.name for file in PAGE.iterdir() if file.is_file()),
    *(f"rooms/{file.name}" for file in (PAGE / "rooms").iterdir()),
]
MODULES = sorted(name for name in FILES if name.endswith(".js"))
KEY = {"Authorization": "Bearer secret"}
ENGLISH = Example("He sat on the bank .", "She left the bank .", 4, 3, "bank")
KOREAN = Example("눈이 내린다 .", "눈이 아프다 .", 0, 0, "눈이")
ODD = [
    "",
    " ",
    "\0",
    "\ud800",
    "\u202e",
    "e\u0301" * 50,
    "x" * 100,
    "<img src=x onerror=alert(1)>",
    "밥" * 90,
    "👩‍👩‍👧‍👦 a",
]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def client(world):
    with TestClient(elmokit.serve.app({"small": world.elmo}, api_keys=["secret"])) as client:
        yield client


class Elements(HTMLParser):
    """The start tags of a page."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


# The page


@pytest.mark.parametrize("name", ["", *FILES])
def test_a_file_is_served_as_it_is_with_its_type_and_a_strict_policy(client, name):
    """Without a key, too: it holds nothing of anybody's."""
    answer = client.get(f"/play/{name}" if name else "/")
    own = name or "index.html"
    assert answer.status_code == 200
    assert answer.content == (PAGE / own).read_bytes()
    assert answer.headers["content-type"] == f"{KINDS[own.rpartition('.')[2]]}; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"


def test_what_the_page_links_to_is_there_and_all_rooms_are_linked(client):
    elements = Elements(client.get("/").text).found
    linked = [a.get("href") or a["src"] for tag, a in elements if tag in ("link", "script")]
    linked.remove("data:,")  # no icon
    for path in linked:
        assert client.get(f"/{path}").status_code == 200, path
    assert {path for path in linked if path.endswith(".css")} == {
        f"play/{name}" for name in FILES if name.endswith(".css")
    }
    assert set(module_order()) == set(MODULES)  # each is imported by another
    assert not [a for _, a in elements if "style" in a or any(name.startswith("on") for name in a)]


def test_there_are_no_other_files(client):
    for path in ("/play/nothing.js", "/play/../playground.py", "/play/%2e%2e/playground.py", "/play/rooms/"):
        assert client.get(path, headers=KEY).status_code in (404, 405)


@pytest.mark.parametrize("room", ROOMS)
def test_what_a_room_asks_for_needs_the_key(client, room):
    for body in [body for asked, body in questions(ENGLISH) if asked == room]:
        assert client.post(f"/play/{room}", json=body).status_code == 401
        answer = client.post(f"/play/{room}", json=body, headers=KEY)
        assert answer.status_code == 200, answer.text
        assert isinstance(answer.json(), dict)


def test_the_openapi_document_is_that_of_the_service_without_a_playground(world, monkeypatch):
    own = elmokit.serve.app({"small": world.elmo}).openapi()
    monkeypatch.setattr(application, "ROUTERS", application.ROUTERS[:-1])
    without = elmokit.serve.app({"small": world.elmo})
    assert "/play/start" not in [route.path for route in without.routes if hasattr(route, "path")]
    assert own == without.openapi()
    assert not [path for path in own["paths"] if path == "/" or path.startswith("/play")]


# Questions that make no sense


def answers(client, room, body):
    """One that a reader's page can show: an answer, or a refusal with a message."""
    answer = client.post(f"/play/{room}", json=body, headers=KEY)
    assert answer.status_code in (200, 422), (answer.status_code, body, answer.text[:300])
    assert answer.status_code == 200 or answer.json()["error"]["message"]
    return answer.status_code


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_refuses_what_is_not_its_question(client, room):
    for body in [body for asked, body in questions(ENGLISH) if asked == room]:
        assert answers(client, room, {**body, "zzz": 1}) == 422
        for name, value in body.items():
            assert answers(client, room, {**body, name: {"not": "this"}}) == 422
            if isinstance(value, str):
                assert answers(client, room, {**body, name: "x " * 5000}) == 422


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("example", [ENGLISH, KOREAN], ids=["en", "ko"])
def test_a_room_answers_or_refuses_whatever_is_typed_and_picked(client, room, example):
    for body in [body for asked, body in questions(example) if asked == room]:
        for name, value in body.items():
            others = ODD if isinstance(value, str) else [-1, 0, 3, 7, 400, 2**31, -(2**40), 2**70, 0.5]
            if isinstance(value, list):
                others = [[], [0.0] * len(value), [1e30] * len(value), [-1.0] * len(value), [0.5] * 99]
            for other in others:
                try:
                    answers(client, room, {**body, name: other})
                except UnicodeEncodeError:  # half of a pair cannot be sent so
                    assert other == "\ud800"


# Modules


def read(name):
    return (PAGE / name).read_text(encoding="utf-8")


def test_names_at_the_top_level_are_different_across_all_modules():
    """An export joins the modules into one script."""
    owners = {}
    for module in MODULES:
        for name in top_level_names(read(module)):
            owners.setdefault(name, []).append(module)
    assert owners["el"] == ["dom.js"]
    assert owners["EXAMPLES"] == ["text.js"]
    assert {"a", "wb", "begin"} <= set(owners)  # by destructuring, and functions
    assert {name: modules for name, modules in owners.items() if len(modules) > 1} == {}


@pytest.mark.parametrize("module", MODULES)
def test_no_module_makes_markup_or_code_from_text_or_reaches_elsewhere(module):
    script = read(module)
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment"
    )
    assert not re.findall(forbidden + r"|setTimeout\([\"'`]|srcdoc|DOMParser", script)
    for address in re.findall(r"https?://[^\s\"'`]+", script):
        assert address.startswith("http://www.w3.org/")  # names of markup, not places
    rest = EXPORT.sub("", IMPORT.sub("", script))
    assert not re.findall(r"^(?:import [{*\"]|export )", rest, re.MULTILINE)  # forms that a join would not know
    assert not re.findall(r"import \{[^}]*\bas\b", script)


def missing(english, korean, where):
    """A list of names may be longer in Korean: a name that is English already stands for itself."""
    if isinstance(english, dict):
        assert isinstance(korean, dict), where
        for name, value in english.items():
            assert name in korean, f"{where}.{name}"
            missing(value, korean[name], f"{where}.{name}")
    else:
        assert english == korean, where


@needs_node
def test_every_text_is_there_in_both_languages(tmp_path):
    script = (
        ALL_ROOMS
        + """
    import { SHELL } from "./text.js";
    const object = (value, each) =>
      Object.fromEntries(Object.keys(value).sort().map((key) => [key, each(value[key])]));
    const shape = (value) =>
      Array.isArray(value) ? value.map(shape)
      : value && typeof value === "object" ? object(value, shape)
      : typeof value === "function" ? `function ${value.length}`
      : typeof value === "string" && !value.trim() ? "(blank)" : typeof value;
    const all = { shell: SHELL, ...Object.fromEntries(exportedRooms.map((room) => [room.id, room.text])) };
    console.log(JSON.stringify(object(all, ({ en, ko }) => [shape(en), shape(ko)])));
    """
    )
    found = in_node(tmp_path, script)
    assert set(found) >= {"shell", "contexts", "letters", "readers", "layers", "mix", "task"}
    for room, (english, korean) in found.items():
        missing(english, korean, room)
        assert set(english) == set(korean), room
        assert "(blank)" not in str([english, korean]), room
        if room != "shell":
            assert english["story"] == ["string", "string"], f"{room}: two sentences of explanation"


@needs_node
def test_a_rooms_state_has_its_name_and_kinds_that_an_address_can_hold(tmp_path):
    script = ALL_ROOMS + "console.log(JSON.stringify(exportedRooms.map(({ id, state }) => [id, state ?? {}])))"
    for room, state in in_node(tmp_path, script):
        for name, value in state.items():
            assert name.startswith(f"{room}.")
            assert isinstance(value, (str, int, float, list)), name


# The command


def test_galleries_are_read_before_the_first_reader_comes_where_asked(world):
    for play in (False, True):
        application = elmokit.serve.app({"small": world.elmo}, play=play)
        with TestClient(application):
            prepared = [
                gallery.language
                for gallery in application.state.service.playground._galleries.values()
                if {"units", "plane"} <= set(vars(gallery))
            ]
            assert prepared == (["en", "ko"] if play else [])


def test_the_next_free_port_is_taken():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = free_port("127.0.0.1", port)
        assert port < found < port + 100
        with pytest.raises(UserError, match="give one by --port"):
            free_port("127.0.0.1", port, tries=1)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--no-browser"]])
def test_the_command_serves_the_page_and_opens_it_unless_told_not_to(world, tmp_path, flags):
    opened = tmp_path / "opened"
    browser = tmp_path / "browser.py"
    browser.write_text(f"import sys; open({str(opened)!r}, 'w').write(sys.argv[1])")
    environment = {"BROWSER": f"{sys.executable} {browser} %s"}
    with running(*world.arguments, *flags, command="play", port=None, environment=environment) as server:
        assert server.url.startswith("http://127.0.0.1:")
        page = server.ask("GET", "/")
        assert page.content == (PAGE / "index.html").read_bytes()
        assert server.ask("POST", "/play/start", {"a": "a b", "b": "c"}).json()["model"] == "small"
        if not flags:
            assert eventually(lambda: opened.exists() and opened.read_text() == server.url)
        assert server.stop() == 0
        assert '"request"' not in server.logs  # quiet
    assert opened.exists() == (not flags)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("play nowhere", "nowhere"),
        ("play --pairs x.tsv", "--pairs is for --export DIR"),
        ("play en-small --task =x", "expected NAME=FOLDER"),
    ],
)
def test_what_cannot_be_played_is_said(elmo_command, line, message):
    code, _, err = elmo_command(*line.split())
    assert code == 1
    assert message in err
