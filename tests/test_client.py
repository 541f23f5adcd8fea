"""The client: the arrays of `Elmo`, whatever becomes of the server, here a stand-in that can misbehave."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from safetensors.numpy import save

from elmokit import Client, Elmo, ScalarMix, UserError, embed_file
from elmokit.serve import client as client_module
from helpers.jobs import LINES, Stop, stop_after, write_lines
from helpers.models import SENTENCES, make_elmo

pytest.importorskip("urllib3")


class StandIn:
    """`elmo serve` in little. `faults` are done before answers, one per request: a status, a status with headers,
    or "reset", which sends half of the answer."""

    def __init__(self, elmo, *, most=2048, longest=8192, key=None, port=0):
        self.elmo, self.most, self.longest, self.key = elmo, most, longest, key
        self.faults, self.requests, self.headers = [], [], []
        self.changed = None
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self._answer(lambda: (200, {}, json.dumps(stand_in.described(self.path)).encode()))

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(lambda: stand_in.tokens(body))

            def _answer(self, compute):
                stand_in.headers.append(dict(self.headers))
                fault = stand_in.faults.pop(0) if stand_in.faults else None
                if isinstance(fault, (int, tuple)):
                    status, headers = fault if isinstance(fault, tuple) else (fault, {})
                    content = _error(f"fault {status}")
                elif stand_in.key and self.headers.get("Authorization") != f"Bearer {stand_in.key}":
                    status, headers, content = 401, {}, _error("expected one of the server's keys")
                else:
                    status, headers, content = compute()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if fault == "reset" else content)
                self.close_connection = fault == "reset"

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()

    def described(self, path):
        if path == "/info":
            return {"max_client_batch_size": self.most, "max_input_length": self.longest}
        return {
            "object": "list",
            "data": [
                {
                    "id": name,
                    "object": "model",
                    "digest": self.elmo.digest,
                    "layers": self.elmo.layers,
                    "width": self.elmo.width,
                    "tokenizer": asdict(self.elmo.tokenizer.config),
                    "weights": self.elmo.weights,
                    "batch_tokens": self.elmo.batch_tokens,
                }
                for name in ("first", "second")
            ],
        }

    def tokens(self, body):
        self.requests.append(body)
        assert body["format"] == "safetensors"
        assert 0 < len(body["inputs"]) <= self.most
        tokens = [self.elmo.tokens(sentence) for sentence in body["inputs"]]
        for number, each in enumerate(tokens):
            if len(each) > self.longest:
                return (
                    422,
                    {},
                    _error(f"input {number}: expected at most {self.longest} tokens, found {len(each)}"),
                )
        options = {name: body[name] for name in ("layers", "pooling", "dtype", "boundaries")}
        arrays = self.elmo.embed(body["inputs"], **options)
        if body["pooling"]:
            vectors, lengths = np.stack(arrays), [len(each) for each in tokens]
        else:
            vectors, lengths = np.concatenate(arrays, axis=-2), [array.shape[-2] for array in arrays]
        tensors = {"vectors": np.ascontiguousarray(vectors), "lengths": np.array(lengths, dtype=np.int64)}
        about = {"model": "first", "digest": self.changed or self.elmo.digest, "tokens": json.dumps(tokens)}
        return 200, {}, save(tensors, about)


def _error(message):
    return json.dumps({"error": {"message": message, "type": "x", "param": None, "code": None}}).encode()


class Time:
    """Goes on when somebody sleeps."""

    def __init__(self, client):
        self.now, self.slept = 0.0, []
        client._connection._sleep, client._connection._clock = self.sleep, lambda: self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("ELMO_API_KEY", raising=False)


@pytest.fixture
def server(elmo):
    stand_in = StandIn(elmo)
    yield stand_in
    stand_in.stop()


@pytest.fixture
def client(server):
    with Client(server.url) as client:
        yield client


def check_equal(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("boundaries", [False, True])
@pytest.mark.parametrize("dtype", ["float32", np.float16])
@pytest.mark.parametrize("pooling", [None, "mean", "max"])
@pytest.mark.parametrize("layers", ["all", "mean", 0, -1, np.int64(1), [0.2, -0.5, 3], np.array([0.1, 0.2, 0.7])])
def test_the_arrays_are_those_of_elmo(elmo, client, layers, pooling, dtype, boundaries):
    options = {"layers": layers, "pooling": pooling, "dtype": dtype, "boundaries": boundaries}
    expected = elmo.embed(SENTENCES, **options)
    found = client.embed(SENTENCES, **options)
    check_equal(found, expected)
    assert all(array.flags.owndata and array.flags.writeable for array in found)
    check_equal(list(client.stream(iter(SENTENCES), **options)), expected)
    if pooling:
        check_equal(client.embed(SENTENCES, **options, matrix=True), elmo.embed(SENTENCES, **options, matrix=True))


@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize("normalize", [False, True])
def test_encode_is_that_of_elmo(elmo, client, pooling, normalize):
    options = {"layers": 1, "pooling": pooling, "normalize": normalize}
    check_equal(client.encode(SENTENCES, **options), elmo.encode(SENTENCES, **options))
    check_equal(client.encode("A bank .", **options), elmo.encode("A bank .", **options))
    check_equal(client.encode([]), elmo.encode([]))
    assert client.encode([]).shape == elmo.encode([]).shape
    for wrong in ({"layers": "all"}, {"pooling": None}):
        with pytest.raises(UserError) as expected:
            elmo.encode(["a"], **wrong)
        with pytest.raises(UserError) as found:
            client.encode(["a"], **wrong)
        assert str(found.value) == str(expected.value)


def test_a_scalar_mix_is_sent_as_its_weights(elmo, client, server):
    mix = ScalarMix(3, weights=[0.3, -1.0, 2.0], gamma=1.7)
    [found] = client.embed(["He sat ."], layers=mix)
    np.testing.assert_allclose(found, elmo.embed(["He sat ."], layers=mix)[0], rtol=1e-5, atol=1e-6)
    weights = (mix.gamma * mix.shares()).tolist()
    assert server.requests[-1]["layers"] == weights
    check_equal([found], elmo.embed(["He sat ."], layers=weights))
    two = ScalarMix(3, which_layers=[2, 0], weights=[0.0, 0.5])
    check_equal(
        np.round(client.embed(["He sat ."], layers=two), 4), np.round(elmo.embed(["He sat ."], layers=two), 4)
    )
    assert server.requests[-1]["layers"][1] == 0
    with pytest.raises(UserError, match="mix them here"):
        client.embed(["He sat ."], layers=ScalarMix(3, layer_norm="token"))
    with pytest.raises(UserError, match="expected 2 layers, found 3"):
        client.embed(["He sat ."], layers=ScalarMix(2))


@pytest.mark.parametrize(
    ("sentences", "options"),
    [
        ("He sat .", {}),
        ({"a": "b"}, {}),
        (["a", None], {}),
        ([["a", 3]], {}),
        (["a"], {"layers": 3}),
        (["a"], {"layers": "some"}),
        (["a"], {"layers": [0.5, 0.5]}),
        (["a"], {"layers": [0.5, 0.5, float("nan")]}),
        (["a"], {"layers": True}),
        (["a"], {"pooling": "sum"}),
        (["a"], {"dtype": "float64"}),
        (["a"], {"dtype": "quite"}),
        (["a"], {"matrix": True}),
    ],
)
def test_what_elmo_refuses_is_refused_with_the_same_words(elmo, client, server, sentences, options):
    with pytest.raises(UserError) as expected:
        elmo.embed(sentences, **options)
    with pytest.raises(UserError) as found:
        client.embed(sentences, **options)
    assert str(found.value) == str(expected.value)
    assert not server.requests


def test_a_stream_refuses_at_once(client):
    with pytest.raises(UserError, match="pooling"):
        client.stream(["a"], pooling="sum")


def test_nothing_is_nothing(elmo, client, server):
    assert client.embed([]) == []
    for layers in ("all", "mean", 1):
        found = client.embed([], layers=layers, pooling="mean", matrix=True, dtype="float16")
        expected = elmo.embed([], layers=layers, pooling="mean", matrix=True, dtype="float16")
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert not server.requests


@pytest.mark.parametrize("text", ["half \ud800 a pair", "\udcff", "plain", "한국어 😀"])
def test_any_string_can_be_sent(elmo, client, text):
    check_equal(client.embed([text, text.split()]), elmo.embed([text, text.split()]))


@pytest.mark.parametrize("tokens", [("He", "sat"), np.array(["He", "sat"]), ["with space", "e\u0301"]])
def test_tokens_are_sent_as_tokens(elmo, client, server, tokens):
    check_equal(client.embed([tokens]), elmo.embed([tokens]))
    assert isinstance(server.requests[0]["inputs"][0], list)


def test_many_sentences_are_cut_into_requests_and_keep_their_order(elmo, client, server):
    server.most = 7
    sentences = [f"w{i} " * (i % 5) for i in range(40)]
    check_equal(client.embed(sentences), elmo.embed(sentences))
    assert [len(request["inputs"]) for request in server.requests] == [7, 7, 7, 7, 7, 5]


@pytest.mark.parametrize("as_tokens", [False, True])
def test_a_request_has_so_many_tokens_and_characters(elmo, client, server, monkeypatch, as_tokens):
    monkeypatch.setattr(client_module, "REQUEST_TOKENS", 30)
    sentences = ["four tokens, it has!"] * 20
    given = [sentence.split() for sentence in sentences] if as_tokens else sentences
    check_equal(client.embed(given), elmo.embed(given))
    assert {len(request["inputs"]) for request in server.requests} == {5}
    monkeypatch.setattr(client_module, "REQUEST_CHARACTERS", 30)
    server.requests.clear()
    check_equal(client.embed(given), elmo.embed(given))
    assert {len(request["inputs"]) for request in server.requests} == {2}


def test_a_stream_reads_no_further_than_it_must(client, server):
    server.most = 3
    taken = []

    def endless():
        for i in range(10**9):
            taken.append(i)
            yield f"word {i}"

    stream = client.stream(endless(), layers=0)
    for _ in range(4):
        next(stream)
    assert len(taken) == 6
    assert len(server.requests) == 2


def test_threads_share_a_client(elmo, client):
    sentences = [[f"w{i}", "and", "more"] for i in range(24)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda sentence: client.embed([sentence])[0], sentences))
    check_equal(found, elmo.embed(sentences))


def test_models_and_the_one_asked_for(elmo, server):
    client = Client(server.url + "/v1/", model="second")
    assert [facts["id"] for facts in client.models()] == ["first", "second"]
    assert (client.model, client.digest, client.layers, client.width) == ("second", elmo.digest, 3, elmo.width)
    assert client.tokenizer.config == elmo.tokenizer.config
    client.embed(["a"])
    assert server.requests[0]["model"] == "second"
    with pytest.raises(UserError, match="has no model third; it has first, second"):
        Client(server.url, model="third").embed(["a"])
    assert server.url in repr(Client(server.url, api_key="secret"))
    assert "secret" not in repr(vars(Client(server.url, api_key="secret")))


def test_a_tokenizer_that_is_asked_for_cuts_here(server):
    elmo = make_elmo(tokenizer="words")
    client = Client(server.url, tokenizer="words")
    check_equal(client.embed(["Stop, he said."]), elmo.embed(["Stop, he said."]))
    assert server.requests[0]["inputs"] == [["Stop", ",", "he", "said", "."]]


@pytest.mark.parametrize("fault", [429, 503, 502, 408, "reset"])
def test_a_request_that_fails_for_now_is_sent_again(elmo, client, server, fault):
    time = Time(client)
    assert client.layers == 3
    assert client._most_inputs == 512
    server.faults = [fault, fault]
    check_equal(client.embed(SENTENCES), elmo.embed(SENTENCES))
    assert len(time.slept) == 2
    assert 0.05 <= time.slept[0] <= 0.1 <= time.slept[1] <= 0.2  # longer every time, and never the same


def test_also_the_first_questions_are_asked_again(elmo, client, server):
    Time(client)
    server.faults = ["reset", 503, "reset", 429]
    check_equal(client.embed(["a"]), elmo.embed(["a"]))


def test_retry_after_is_honoured(elmo, client, server):
    time = Time(client)
    server.faults = [(429, {"Retry-After": "7"}), (503, {"Retry-After": "3"})]
    client.embed(["a"])
    assert [int(seconds) for seconds in time.slept] == [7, 3]
    server.faults = [
        (429, {"Retry-After": text}) for text in ("Wed, 21 Oct 2015 07:28:00 GMT", "-4", "inf", "nan")
    ]
    client.embed(["a"])
    assert all(0 < seconds < 1 for seconds in time.slept[2:])


def test_patience_ends(client, server):
    time = Time(client)
    server.faults = [503] * 100
    with pytest.raises(UserError, match=r"gave no answer within 60 seconds \(fault 503\): try later"):
        client.embed(["a"])
    assert sum(time.slept) == pytest.approx(60)
    assert max(time.slept) <= 5
    server.faults = [(429, {"Retry-After": "3600"})]  # it would be of no use to wait
    with pytest.raises(UserError, match="more patience"):
        client.embed(["a"])
    assert sum(time.slept) == pytest.approx(60)


def test_without_patience_there_is_one_try(server):
    client = Client(server.url, patience=0)
    time = Time(client)
    server.faults = [503]
    with pytest.raises(UserError, match="fault 503"):
        client.embed(["a"])
    assert not time.slept
    assert not server.faults


def test_a_server_that_is_not_there(elmo):
    stand_in = StandIn(elmo)
    stand_in.stop()
    client = Client(stand_in.url)
    time = Time(client)
    with pytest.raises(UserError, match=rf"{stand_in.url} gave no answer .*refused.*start it with `elmo serve`"):
        client.embed(["a"])
    assert sum(time.slept) == pytest.approx(60)


def test_a_server_that_comes_late_or_again(elmo):
    first = StandIn(elmo)
    first.stop()
    client = Client(first.url)
    time = Time(client)
    servers = []

    def start(seconds):
        time.sleep(seconds)
        if len(time.slept) == 3:
            servers.append(StandIn(elmo, port=first.port, most=2))

    client._connection._sleep = start
    try:
        stream = client.stream(SENTENCES)
        found = [next(stream)]
        servers.pop().stop()  # between two requests
        client.close()
        time.slept.clear()
        check_equal([*found, *stream], elmo.embed(SENTENCES))
    finally:
        for server in servers:
            server.stop()


def test_what_the_server_says_is_said(client, server):
    server.longest, server.most = 3, 2
    with pytest.raises(UserError, match=r"^sentence 4: expected at most 3 tokens, found 5$"):
        client.embed(["a", "a b", "a b c", "", "a b c d e"])
    server.faults = [404]
    with pytest.raises(UserError, match=r"^fault 404$"):
        client.embed(["a"])


def test_keys(elmo, monkeypatch):
    server = StandIn(elmo, key="secret")
    try:
        with pytest.raises(UserError, match=r"one of the server's keys .*ELMO_API_KEY"):
            Client(server.url).embed(["a"])
        assert "Authorization" not in server.headers[-1]
        check_equal(Client(server.url, api_key="secret").embed(["a"]), elmo.embed(["a"]))
        monkeypatch.setenv("ELMO_API_KEY", "secret")
        check_equal(Client(server.url).embed(["a"]), elmo.embed(["a"]))
        assert server.headers[-1]["Authorization"] == "Bearer secret"
        with pytest.raises(UserError, match="printable"):
            Client(server.url, api_key="a\nb")
    finally:
        server.stop()


def test_another_model_by_the_same_name_is_noticed(client, server):
    client.embed(["a"])
    server.changed = "0" * 64
    with pytest.raises(UserError, match=r"another model by the name first .*make a new Client"):
        client.embed(["a"])


@pytest.mark.parametrize("path", ["/v1/models", "/info", "/v1/tokens"])
@pytest.mark.parametrize("content", [b"<html>", b"[]", b'"text"', b'{"data": [{"id": "gpt"}]}', b"", b"\xff" * 20])
def test_other_servers_are_told_from_ours(client, server, monkeypatch, path, content):
    ask = client._connection.ask
    monkeypatch.setattr(
        client._connection,
        "ask",
        lambda method, asked, body=None: content if asked == path else ask(method, asked, body),
    )
    if path == "/info" and content.startswith(b"{"):
        assert len(client.embed(["a"])) == 1  # it need not say how much it takes
        return
    with pytest.raises(UserError, match="does not answer as `elmo serve` does"):
        client.embed(["a"])


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "", "http://", "http://a b", None, "http://a?b"])
def test_an_address_is_one(url):
    with pytest.raises(UserError, match=r"as http://127\.0\.0\.1:8000"):
        Client(url)


def test_urllib3_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "urllib3", None)
    with pytest.raises(UserError, match=r'pip install "elmokit\[client\]"'):
        Client("http://127.0.0.1:1")


def test_torch_is_not_loaded(server):
    script = (
        "import sys; from elmokit import Client; "
        f"print(Client({server.url!r}).embed(['a b'], pooling='mean', matrix=True).shape, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(1, 3, 16) False"


@pytest.fixture
def tiny(tmp_path):
    """A model as a folder, as the command takes it, and a server of the same."""
    elmo = make_elmo()
    elmo.save(tmp_path / "model")
    stand_in = StandIn(Elmo.from_pretrained(tmp_path / "model"))
    yield stand_in
    stand_in.stop()


@pytest.mark.parametrize("suffix", [".h5", ".npz", ".safetensors", ".parquet"])
def test_the_command_writes_what_it_writes_without_a_server(tiny, tmp_path, elmo_command, suffix):
    write_lines(tmp_path / "text.txt")
    options = ["--layers", "0.2,0.3,0.5", "--dtype", "float16"] if suffix == ".npz" else []
    assert elmo_command("embed", "text.txt", "-o", f"here{suffix}", "-m", "model", *options)[0] == 0
    code, _, err = elmo_command("embed", "text.txt", "-o", f"there{suffix}", "--server", tiny.url, *options)
    assert code == 0, err
    assert "120 sentences" in err
    assert (tmp_path / f"there{suffix}").read_bytes() == (tmp_path / f"here{suffix}").read_bytes()
    assert {request["model"] for request in tiny.requests} == {"first"}
    assert isinstance(tiny.requests[0]["inputs"][0], list)


def test_the_command_names_a_model_that_was_given_by_hand(tiny, tmp_path, elmo_command, monkeypatch):
    (tmp_path / "text.txt").write_text("He sat .\n")
    monkeypatch.setenv("ELMO_MODEL", "en-small")  # for local commands
    assert elmo_command("embed", "text.txt", "-o", "a.npz", "--server", tiny.url)[0] == 0
    assert elmo_command("embed", "text.txt", "-o", "b.npz", "--server", tiny.url, "-m", "second")[0] == 0
    assert [request["model"] for request in tiny.requests] == ["first", "second"]
    code, _, err = elmo_command("embed", "text.txt", "-o", "c.npz", "--server", tiny.url, "-m", "third")
    assert code != 0
    assert "no model third" in err


def test_a_job_with_a_server_resumes(tiny, tmp_path, monkeypatch):
    text = write_lines(tmp_path / "text.txt")
    monkeypatch.setattr(client_module, "REQUEST_TOKENS", 64)  # also a window's
    embed_file(tiny.elmo, text, tmp_path / "whole.h5")
    with monkeypatch.context() as patch:
        stop_after(patch, 70)
        with pytest.raises(Stop):
            embed_file(Client(tiny.url), text, tmp_path / "out.h5")
    tiny.requests.clear()
    summary = embed_file(Client(tiny.url), text, tmp_path / "out.h5")
    assert 0 < summary.resumed_at <= 70
    assert sum(len(request["inputs"]) for request in tiny.requests) == len(LINES) * 20 - summary.resumed_at
    assert (tmp_path / "out.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        ["--state", "carry"],
        ["--state", "warm", "--warm-text", "text.txt"],
        ["--warm-text", "text.txt"],
        ["--weights", "float32"],
        ["--device", "cpu"],
        ["--threads", "1"],
        ["--batch-tokens", "4096"],
    ],
)
def test_the_command_refuses_what_the_server_decides(tmp_path, elmo_command, options):
    (tmp_path / "text.txt").write_text("He sat .\n")
    code, _, err = elmo_command("embed", "text.txt", "-o", "a.npz", "--server", "http://127.0.0.1:1", *options)
    assert code != 0
    assert "--server: the vectors are computed there" in err
    assert options[0] in err
