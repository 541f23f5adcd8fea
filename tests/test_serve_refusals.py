"""What the service refuses and how: limits, keys, origins; what its logs and metrics hold, and never hold."""

from __future__ import annotations

import json
import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from starlette.testclient import TestClient

import elmokit.serve
from elmokit.serve.limits import Limits
from elmokit.serve.logs import JsonLines
from elmokit.serve.routes import words
from helpers.models import make_elmo
from helpers.servers import eventually, make_world

SECRET = "Geheimwort"
# A text in every endpoint that takes one.
ENDPOINTS = {
    "/v1/embeddings": {"input": f"a {SECRET} b", "user": SECRET},
    "/embed": {"inputs": [f"a {SECRET} b"]},
    "/embed_all": {"inputs": f"a {SECRET} b"},
    "/v1/tokens": {"inputs": [f"a {SECRET}", [SECRET]]},
    "/v1/similar": {"sentences": [f"a [{SECRET}]", f"[{SECRET}] b"]},
    "/v1/fill": {"sentence": f"{SECRET} ___ ."},
    "/v1/score": {"inputs": [SECRET]},
    "/v1/neighbours": {"sentence": f"a [{SECRET}]"},
    "/v1/tasks/ner": {"inputs": [SECRET]},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@contextmanager
def serving(elmo, limits=None, **options):
    with TestClient(elmokit.serve.app({"small": elmo}, limits=limits, **options)) as client:
        yield client


@pytest.fixture
def client(world):
    with serving(world.elmo, tasks={"ner": world.task}, indexes=[world.index.folder]) as client:
        yield client


@pytest.fixture
def held(monkeypatch):
    """A model that computes nothing before it is let go."""
    elmo, asked, let_go = make_elmo(), threading.Event(), threading.Event()
    compute = elmo.embed_batch

    def wait(*arguments, **options):
        asked.set()
        assert let_go.wait(60)
        return compute(*arguments, **options)

    def hold():
        monkeypatch.setattr(elmo, "embed_batch", wait)

    elmo.hold, elmo.asked, elmo.let_go = hold, asked, let_go
    yield elmo
    let_go.set()


def metric(client, name, **labels):
    page = client.get("/metrics").text
    found = re.findall(rf"^{name}(?:{{([^}}]*)}})? (\S+)$", page, re.MULTILINE)
    wanted = {f'{label}="{value}"' for label, value in labels.items()}
    return sum(float(value) for given, value in found if wanted <= set(given.split(",")))


def error_of(answer, status):
    assert answer.status_code == status, answer.text
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    return answer.json()["error"]


def test_a_body_that_is_too_large(elmo):
    with serving(elmo, Limits(body=100)) as client:
        for content in (b'{"inputs": "' + b"a" * 100 + b'"}', iter([b"a" * 60] * 3), iter([b"a" * 900] * 3)):
            error = error_of(
                client.post("/v1/tokens", content=content, headers={"Content-Type": "application/json"}), 413
            )
            assert (error["code"], "--max-body" in error["message"]) == ("body_too_large", True)
        assert client.post("/embed", json={"inputs": "a" * 200}).json()["error_type"] == "validation"
        assert client.post("/embed", json={"inputs": "a" * 20}).status_code == 200


def test_too_many_inputs_and_too_many_tokens(world):
    limits = Limits(inputs=2, tokens=3)
    with serving(world.elmo, limits, tasks={"ner": world.task}, indexes=[world.index.folder]) as client:
        for path, name in (("/v1/embeddings", "input"), ("/v1/tokens", "inputs"), ("/v1/score", "inputs")):
            many = error_of(client.post(path, json={name: ["a"] * 3}), 422)
            assert (many["code"], "--max-inputs" in many["message"]) == ("too_many_inputs", True)
            long = error_of(client.post(path, json={name: ["a", "a b c d"]}), 422)
            assert (long["code"], "input 1" in long["message"]) == ("input_too_long", True)
        for path, body in (
            ("/v1/similar", {"sentences": ["[a]", "[a] b c d"]}),
            ("/v1/neighbours", {"sentence": "[a] b c d"}),
            ("/v1/fill", {"sentence": "a ___ b c"}),
            ("/v1/tasks/ner", {"inputs": ["a", "a b c d"]}),
            ("/v1/tasks/ner", {"inputs": [["a"] * 4]}),
        ):
            assert error_of(client.post(path, json=body), 422)["code"] == "input_too_long"
        assert "--max-tokens" in client.post("/embed", json={"inputs": "a b c d"}).json()["error"]


def test_what_is_cut_is_said(elmo):
    texts, cut = ["a b c d e", "a b c", "x y z z"], ["a b c", "a b c", "x y z"]
    with serving(elmo, Limits(tokens=3)) as client:
        for path, name in (("/v1/embeddings", "input"), ("/v1/tokens", "inputs"), ("/embed", "inputs")):
            answer = client.post(path, json={name: texts, "truncate": True})
            assert answer.headers["X-Truncated"] == "2"
            whole = client.post(path, json={name: cut, "truncate": True})
            assert "X-Truncated" not in whole.headers
            if path == "/embed":
                assert answer.json() == whole.json()
            else:
                assert (answer.json().pop("truncated"), whole.json().pop("truncated")) == (2, 0)
                assert {**answer.json(), "truncated": 0} == whole.json()
        assert metric(client, "elmo_truncated_inputs_total") == 6


def test_a_full_queue_refuses_one_input_and_a_list_alike(held):
    with serving(held, Limits(queue=20)) as client, ThreadPoolExecutor() as pool:
        held.hold()
        first = pool.submit(client.post, "/embed", json={"inputs": "a b c d e f g h i j"})
        assert held.asked.wait(60)
        refusals = [
            client.post("/v1/embeddings", json={"input": given})
            for given in ("a b c d e f g h", ["a b c d e f g h"], ["a", "b", "c"])
        ]
        assert len({answer.text for answer in refusals}) == 1
        for answer in refusals:
            assert error_of(answer, 429)["code"] == "queue_full"
            assert int(answer.headers["Retry-After"]) >= 1
        tei = client.post("/embed", json={"inputs": "a b c d e f g h"})
        assert (tei.status_code, tei.json()["error_type"]) == (429, "overloaded")
        small = pool.submit(client.post, "/embed", json={"inputs": "a b"})
        held.let_go.set()
        assert (first.result().status_code, small.result().status_code) == (200, 200)
        assert metric(client, "elmo_queue_tokens") == 0
        large = client.post("/embed", json={"inputs": ["a b c d e f g h"] * 3})
        assert large.status_code == 200  # nothing was before it


def test_no_answer_in_time(held):
    with serving(held, Limits(timeout=0.1)) as client:
        held.hold()
        answer = client.post("/v1/embeddings", json={"input": "a"})
        assert error_of(answer, 503)["code"] == "timeout"
        assert "--timeout" in answer.json()["error"]["message"]
        assert answer.headers["Retry-After"] == "1"
        assert metric(client, "elmo_queue_tokens") == 0
        held.let_go.set()
        assert eventually(lambda: client.post("/v1/embeddings", json={"input": "a"}).status_code == 200)


def test_before_the_start_it_is_not_ready(world):
    client = TestClient(elmokit.serve.app({"small": world.elmo}, tasks={"ner": world.task}))
    answer = client.post("/v1/embeddings", json={"input": "a"})
    assert error_of(answer, 503)["code"] == "not_ready"
    assert answer.headers["Retry-After"] == "1"
    assert client.post("/v1/tasks/ner", json={"inputs": ["a"]}).status_code == 503
    assert client.get("/readyz").status_code == 503
    assert client.get("/healthz").status_code == 200


def test_a_model_that_gives_other_vectors_is_not_ready(monkeypatch):
    elmo = make_elmo()
    with serving(elmo) as client:
        assert client.get("/readyz").json() == {"status": "ready"}
        compute = elmo.embed_batch
        monkeypatch.setattr(elmo, "embed_batch", lambda *a, **o: [array + 1 for array in compute(*a, **o)])
        assert "gave at the start" in error_of(client.get("/readyz"), 503)["message"]
        monkeypatch.setattr(elmo, "embed_batch", None)
        assert "does not answer" in error_of(client.get("/readyz"), 503)["message"]


def test_keys(elmo):
    with serving(elmo, api_keys=["one", "zwei-ü"]) as client:
        for given in ("", "Bearer", "Bearer three", "Basic one", "one", "Bearer one two", "Bearer onee"):
            answer = client.post("/v1/embeddings", json={"input": "a"}, headers={"Authorization": given})
            assert error_of(answer, 401)["type"] == "authentication_error"
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        for key in ("Bearer one", "bearer zwei-ü"):
            assert client.get("/v1/models", headers={"Authorization": key.encode()}).status_code == 200
        for path in ("/v1/models", "/info", "/metrics", "/openapi.json", "/nothing", "/healthz/"):
            assert client.get(path, follow_redirects=False).status_code == 401, path
        for path in ("/healthz", "/health", "/readyz"):
            assert client.get(path).status_code == 200
        document = client.get("/openapi.json", headers={"Authorization": "Bearer one"}).json()
        assert "HTTPBearer" in document["components"]["securitySchemes"]


def test_keys_of_the_command_and_of_the_environment(elmo_command, monkeypatch, model_folder):
    seen = []
    monkeypatch.setattr("elmokit.serve.server.run", lambda application, limits, **_: seen.append(application))
    monkeypatch.setattr("elmokit.serve.logs.log_to_stderr", lambda level: None)
    monkeypatch.setenv("ELMO_API_KEY", "two, three,")
    code, _, err = elmo_command("serve", model_folder, "--api-key", "one", "--host", "0.0.0.0")
    assert (code, err) == (0, "")
    with TestClient(seen.pop()) as client:
        for key, status in (("one", 200), ("two", 200), ("three", 200), ("", 401), ("two, three,", 401)):
            assert client.get("/info", headers={"Authorization": f"Bearer {key}"}).status_code == status
    monkeypatch.delenv("ELMO_API_KEY")
    code, _, err = elmo_command("serve", model_folder, "--host", "0.0.0.0")
    assert (code, "give an --api-key" in err) == (0, True)
    assert elmo_command("serve", model_folder, "--task", "=x")[0] == 1


def test_origins(elmo):
    asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    with serving(elmo) as client:
        assert client.options("/embed", headers=asked).status_code == 405
        answer = client.post("/embed", json={"inputs": "a"}, headers=asked)
        assert not [name for name in answer.headers if name.startswith("access-control")]
    with serving(elmo, Limits(tokens=1), cors_origins=["https://page.example"], api_keys=["k"]) as client:
        preflight = client.options("/embed", headers={**asked, "Access-Control-Request-Headers": "authorization"})
        assert preflight.status_code == 200  # a browser asks without a key
        assert preflight.headers["Access-Control-Allow-Origin"] == "https://page.example"
        key = {"Authorization": "Bearer k"}
        answer = client.post("/embed", json={"inputs": "a b", "truncate": True}, headers=asked | key)
        assert answer.headers["Access-Control-Allow-Origin"] == "https://page.example"
        assert "X-Truncated" in answer.headers["Access-Control-Expose-Headers"]
        other = client.post("/embed", json={"inputs": "a"}, headers=key | {"Origin": "https://other.example"})
        assert "Access-Control-Allow-Origin" not in other.headers
        assert client.post("/embed", headers=asked).headers["Access-Control-Allow-Origin"]  # of a 401, too


def test_request_ids(client):
    assert client.get("/info", headers={"X-Request-Id": "mine-1.2:3_4"}).headers["X-Request-Id"] == "mine-1.2:3_4"
    made = set()
    for given in ("", "with space", "x" * 129, "ü", '"quoted"'):
        found = client.get("/info", headers={"X-Request-Id": given.encode()}).headers["X-Request-Id"]
        assert re.fullmatch("[0-9a-f]{32}", found)
        made.add(found)
    assert len(made) == 5
    assert client.get("/nothing", headers={"X-Request-Id": "lost"}).headers["X-Request-Id"] == "lost"


@pytest.fixture
def log_lines(caplog, monkeypatch):
    """The lines of the log so far, as objects; that they do not hold the secret is looked at here."""
    monkeypatch.setattr(logging.getLogger("elmokit.serve"), "propagate", True)
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="elmokit.serve")  # a command in this process may have chosen another

    def lines():
        own = [record for record in caplog.records if record.name == "elmokit.serve"]
        written = [JsonLines().format(record) for record in own]
        assert SECRET not in "".join(written)
        assert not [record for record in own if SECRET in record.getMessage() or record.exc_info]
        return [json.loads(line) for line in written]

    return lines


def test_logs_are_json_and_never_hold_the_text(client, log_lines):
    for path, body in ENDPOINTS.items():
        assert client.post(path, json=body, headers={"X-Request-Id": "r"}).status_code == 200, path
    assert eventually(lambda: len(log_lines()) == len(ENDPOINTS))
    lines = log_lines()
    assert [line["path"].replace("{name}", "ner") for line in lines] == list(ENDPOINTS)
    assert all(line["event"] == "request" and line["status"] == 200 and line["level"] == "info" for line in lines)
    assert all(line["request_id"] == "r" and line["ms"] >= 0 and line["tokens"] >= 1 for line in lines)
    for path, body in ENDPOINTS.items():
        name = next(iter(body))
        wrong = [
            {**body, name: {SECRET: 1}},
            {**body, name: [[[SECRET]]]},
            {},
            [SECRET],
            {**body, "model": SECRET},
        ]
        wrong += [{**body, "layers": SECRET, "pooling": SECRET, "top": SECRET, "truncate": SECRET, SECRET: SECRET}]
        for each in wrong:
            client.post(path, json=each)
        client.post(path, content=f'{{"{SECRET}": '.encode(), headers={"Content-Type": "application/json"})
        client.post(path, content=SECRET.encode(), headers={"Content-Type": SECRET, "Authorization": SECRET})
        client.post(f"{path}/{SECRET}?{SECRET}={SECRET}", json=body, headers={"User-Agent": SECRET})
    assert {line["status"] for line in log_lines()} >= {200, 404, 415, 422}
    client.get("/healthz")
    assert eventually(lambda: log_lines()[-1]["level"] == "debug")  # it is written after the answer


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_bug_is_answered_without_a_trace_and_logged_without_the_text(
    client, world, log_lines, path, monkeypatch
):
    def bug(*_, **__):
        raise RuntimeError(f"no {SECRET}")

    monkeypatch.setattr(world.elmo, "embed_batch", bug)
    monkeypatch.setattr(world.task, "annotate", bug, raising=False)
    for name in ("fill", "score"):
        monkeypatch.setattr(words, name, bug)
    answer = client.post(path, json=ENDPOINTS[path], headers={"X-Request-Id": "the-bug"})
    assert answer.status_code == 500
    assert "the-bug" in answer.text
    assert not [word for word in (SECRET, "RuntimeError", "Traceback", ".py") if word in answer.text]
    monkeypatch.undo()
    fault = next(line for line in log_lines() if line["event"] == "bug")
    assert (fault["level"], fault["error"], fault["request_id"]) == ("error", "RuntimeError", "the-bug")
    assert any(place.endswith(" bug") for place in fault["where"])
    assert metric(client, "elmo_queue_tokens") == 0
    assert client.post(path, json=ENDPOINTS[path]).status_code == 200


@pytest.mark.parametrize("path", ENDPOINTS)
def test_what_is_not_as_described_is_never_repeated(client, path):
    body = ENDPOINTS[path]
    name = next(iter(body))
    for wrong in (
        {**body, name: [[[SECRET]]]},
        {**body, name: {"a": SECRET}},
        {**body, name: 1},
        [SECRET],
        SECRET,
    ):
        answer = client.post(path, json=wrong)
        assert answer.status_code == 422
        assert SECRET not in answer.text
    for sentence in (f"no mark {SECRET}", f"[{SECRET}] [two]", f"{SECRET}___", f"{SECRET} _ ___"):
        if "sentence" in name:
            answer = client.post(path, json={**body, name: sentence if name == "sentence" else [sentence] * 2})
            assert answer.status_code == 422
            assert SECRET not in answer.text
            assert "expected one" in answer.text


def test_metrics_have_their_names_and_count(client):
    before = metric(client, "elmo_requests_total", path="/embed", code="200")
    client.post("/embed", json={"inputs": ["a b", "c"]})
    client.post("/embed", json={"inputs": 3})
    client.get("/nothing/at/all")
    assert metric(client, "elmo_requests_total", path="/embed", code="200") == before + 1
    assert metric(client, "elmo_requests_total", path="/embed", code="422") == 1
    assert metric(client, "elmo_requests_total", path="other", code="404") == 1
    assert metric(client, "elmo_tokens_total") == 4 + 3
    for name in ("request", "queue", "compute", "encode"):
        assert metric(client, f"elmo_{name}_seconds_count") >= 1
    assert metric(client, "elmo_batch_tokens_sum") == 7
    assert metric(client, "elmo_batch_sentences_sum") == 2
    assert metric(client, "elmo_gone_total") == metric(client, "elmo_queue_requests") == 0
    assert metric(client, "process_resident_memory_bytes") > 0
