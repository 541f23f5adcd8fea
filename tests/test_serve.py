"""The service in this process: every answer is what the library gives, bit for bit, in the documented shape."""

from __future__ import annotations

import base64
import itertools
import json

import jsonschema_rs
import numpy as np
import pytest
from safetensors.numpy import load
from starlette.testclient import TestClient

import elmokit.serve
from elmokit.analysis.contexts.marked import compare_words
from elmokit.analysis.contexts.neighbours import neighbours
from elmokit.errors import UserError
from elmokit.pretrain.perplexity import fill, score
from elmokit.serve.offer import named
from helpers.models import SENTENCES, make_elmo, small_config
from helpers.servers import make_world

TEXTS = [*SENTENCES, "x" * 1000, "nul\0byte", "밥"]
TOKENS = [["He", "sat"], [], ["two words", "e\u0301"]]
LAYERS = ["all", "mean", 0, -1, [0.2, 0.3, 0.5]]
MARKED = ["He sat on the [bank] of the river .", "She works at a [bank] .", "\\[x\\] [a b]"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def client(world):
    models = {"small": world.elmo, "other": make_elmo()}
    application = elmokit.serve.app(models, tasks={"ner": world.task}, indexes=[world.index.folder])
    with TestClient(application) as client:
        yield client


def post(client, path, **body):
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer


def refused(client, path, status, **body):
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


def same(found, expected):
    """The same numbers, bit for bit, also as read from JSON."""
    found = np.asarray(found, dtype=expected.dtype).reshape(expected.shape)
    assert found.tobytes() == expected.tobytes()


def examples():
    """(path, example, schema) of every example in the OpenAPI document."""
    document = elmokit.serve.app({"small": make_elmo()}).openapi()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            schema = operation["responses"]["200"]["content"].get("application/json", {}).get("schema")
            bodies = [None]
            if method == "post":
                reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                bodies = document["components"]["schemas"][reference.rpartition("/")[2]]["examples"]
            for number, body in enumerate(bodies):
                whole = schema and {**schema, "components": document["components"]}
                yield pytest.param(method, path, body, whole, id=f"{method} {path} {number}")


@pytest.mark.parametrize(("method", "path", "body", "schema"), list(examples()))
def test_every_example_of_the_document_is_answered_as_it_says(client, method, path, body, schema):
    answer = client.request(method, path.replace("{name}", "ner"), json=body)
    assert answer.status_code == 200, answer.text
    if body and body.get("format") == "safetensors":
        assert answer.headers["content-type"] == "application/octet-stream"
    elif schema is not None:
        assert answer.headers["content-type"] == "application/json"
        jsonschema_rs.validate(schema, answer.json())
    else:
        assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("layers", ["mean", 0, -1, 2.0, [0.2, 0.3, 0.5]])
@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("max", False)])
def test_embeddings_are_what_encode_gives(client, world, layers, pooling, normalize):
    options = {"layers": layers, "pooling": pooling, "normalize": normalize}
    known = options | {"layers": int(layers)} if layers == 2.0 else options
    expected = world.elmo.encode(TEXTS, **known)
    answer = post(client, "/v1/embeddings", input=TEXTS, **options).json()
    same([row["embedding"] for row in answer["data"]], expected)
    assert [row["index"] for row in answer["data"]] == list(range(len(TEXTS)))
    count = sum(len(world.elmo.tokens(text)) for text in TEXTS)
    assert answer["usage"] == {"prompt_tokens": count, "total_tokens": count}
    coded = post(client, "/v1/embeddings", input=TEXTS, encoding_format="base64", **options).json()
    assert b"".join(base64.b64decode(row["embedding"]) for row in coded["data"]) == expected.tobytes()
    assert (coded["model"], coded["object"], coded["truncated"]) == ("small", "list", 0)


def test_one_text_an_empty_one_and_none(client, world):
    expected = world.elmo.encode("밥을 먹었다", normalize=True)
    same(post(client, "/v1/embeddings", input="밥을 먹었다").json()["data"][0]["embedding"], expected)
    same(post(client, "/embed", inputs="밥을 먹었다").json(), expected)
    assert post(client, "/v1/embeddings", input="").json()["data"][0]["embedding"] == [0.0] * world.elmo.width
    assert post(client, "/v1/embeddings", input=[]).json()["data"] == []
    assert post(client, "/embed", inputs=[]).json() == post(client, "/embed_all", inputs=[]).json() == []
    assert post(client, "/embed_all", inputs=["", "a"]).json()[0] == []
    assert post(client, "/v1/tokens", inputs=[]).json()["sentences"] == []
    assert post(client, "/v1/score", inputs=[]).json()["sentences"] == []
    assert post(client, "/v1/tasks/ner", inputs=[]).json()["predictions"] == []


def test_what_openai_has_and_elmo_has_not_is_refused_with_a_reason(client):
    error = refused(client, "/v1/embeddings", 422, input="a", dimensions=64)
    assert (error["param"], error["type"]) == ("dimensions", "invalid_request_error")
    assert "one size" in error["message"]
    for ids in ([1, 2], [[1, 2], [3]]):
        error = refused(client, "/v1/embeddings", 422, input=ids)
        assert "token ids" in error["message"]
        assert "check_embedding_ctx_length=False" in error["message"]
    post(client, "/v1/embeddings", input="a", dimensions=None, user="u", something_new={"more": 1})


def test_text_embeddings_inference_is_what_the_library_gives(client, world):
    same(post(client, "/embed", inputs=TEXTS).json(), world.elmo.encode(TEXTS, normalize=True))
    same(post(client, "/embed", inputs=TEXTS, normalize=False).json(), world.elmo.encode(TEXTS))
    expected = world.elmo.embed(TEXTS, layers="mean")
    for found, array in zip(post(client, "/embed_all", inputs=TEXTS).json(), expected, strict=True):
        same(found, array)
    error = client.post("/embed", json={"inputs": 3}).json()
    assert set(error) == {"error", "error_type"}
    assert error["error_type"] == "validation"
    assert "3" not in error["error"]


def unpacked(content, pooled):
    tensors = load(content)
    vectors, ends = tensors["vectors"], np.cumsum(tensors["lengths"])
    return list(vectors) if pooled else np.split(vectors, ends[:-1], axis=-2)


@pytest.mark.parametrize("layers", LAYERS, ids=str)
@pytest.mark.parametrize("pooling", [None, "mean", "max"])
def test_tokens_are_what_embed_gives(client, world, layers, pooling):
    inputs = [*TEXTS, *TOKENS]
    for dtype, boundaries in itertools.product(("float32", "float16"), (False, True)):
        options = {"layers": layers, "pooling": pooling, "dtype": dtype, "boundaries": boundaries}
        expected = world.elmo.embed(inputs, **options)
        answer = post(client, "/v1/tokens", inputs=inputs, **options).json()
        for sentence, text, array in zip(answer["sentences"], inputs, expected, strict=True):
            same(sentence["vectors"], array)
            tokens = world.elmo.tokens(text)
            assert sentence["tokens"] == (["<S>", *tokens, "</S>"] if boundaries else tokens)
        binary = post(client, "/v1/tokens", inputs=inputs, format="safetensors", **options).content
        for found, array in zip(unpacked(binary, pooling), expected, strict=True):
            assert found.dtype == array.dtype
            same(found, array)
        about = json.loads(binary[8 : 8 + int.from_bytes(binary[:8], "little")])["__metadata__"]
        assert (about["model"], about["digest"]) == ("small", world.elmo.digest)
        assert json.loads(about["tokens"]) == [world.elmo.tokens(text) for text in inputs]


@pytest.mark.parametrize("layers", LAYERS, ids=str)
def test_no_sentence_has_the_shape_of_none(client, world, layers):
    for pooling in ("mean", None):
        body = {"inputs": [], "layers": layers, "pooling": pooling, "format": "safetensors"}
        vectors = load(post(client, "/v1/tokens", **body).content)["vectors"]
        one = world.elmo.embed(["a"], layers=layers, pooling=pooling)[0]
        assert vectors.shape == ((0, *one.shape) if pooling else (*one.shape[:-2], 0, one.shape[-1]))


def test_similar_fill_score_neighbours_and_tasks_are_what_the_library_gives(client, world):
    elmo = world.elmo
    found = post(client, "/v1/similar", sentences=MARKED).json()
    assert found == {"model": "small", "pairs": compare_words(elmo, MARKED).to_list()}
    for top, punctuation in ((1, False), (1000, True)):
        body = {"sentence": "He sat ___ .", "top": top, "punctuation": punctuation}
        expected = fill(elmo, "He sat ___ .", top=top, punctuation=punctuation)
        assert post(client, "/v1/fill", **body).json()["candidates"] == [each._asdict() for each in expected]
    inputs = [*TEXTS, ["the", "river"]]
    for row, expected in zip(post(client, "/v1/score", inputs=inputs).json()["sentences"], score(elmo, inputs)):
        assert row["tokens"] == [token._asdict() for token in expected]
        assert row["forward"] == sum(token.forward or 0.0 for token in expected)
    for layers, top in ((None, 1), ([2, 0], 3)):
        found = post(client, "/v1/neighbours", sentence=MARKED[0], layers=layers, top=top).json()
        expected = neighbours(elmo, MARKED[0], index=world.index, which_layers=layers, most=top)
        assert found == {"model": "small", **expected.to_dict()}
    items = ["Anna lives in Seoul .", ["Anna", "lives"], ""]
    found = post(client, "/v1/tasks/ner", inputs=items).json()
    assert found == {"task": "ner", "predictions": world.task.annotate(items)}


def test_models_are_chosen_by_name_and_unknown_ones_named_with_the_nearest(client, world):
    other = make_elmo().encode(["밥을 먹었다"], normalize=True)
    same(
        post(client, "/v1/embeddings", input="밥을 먹었다", model="other").json()["data"][0]["embedding"], other[0]
    )
    listed = {facts["id"]: facts for facts in client.get("/v1/models").json()["data"]}
    assert list(listed) == ["small", "other"]
    assert [(facts["predicts"], facts["index"]) for facts in listed.values()] == [(True, True), (False, False)]
    assert listed["small"]["digest"] == world.elmo.digest
    assert client.get("/info").json()["tasks"] == [{"name": "ner", "task": "ner"}]
    for path, body in {
        "/v1/embeddings": {"input": "a"},
        "/v1/tokens": {"inputs": ["a"]},
        "/v1/score": {"inputs": ["a"]},
        "/v1/fill": {"sentence": "a ___"},
        "/v1/similar": {"sentences": MARKED},
        "/v1/neighbours": {"sentence": MARKED[0]},
    }.items():
        error = refused(client, path, 404, model="smal", **body)
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert "small" in error["message"]
    assert "ner" in refused(client, "/v1/tasks/nerd", 404, inputs=["a"])["message"]
    assert refused(client, "/v1/neighbours", 404, sentence=MARKED[0], model="other")["code"] == "index_not_found"
    assert "no softmax head" in refused(client, "/v1/fill", 422, sentence="a ___", model="other")["message"]
    long = refused(client, "/v1/embeddings", 404, input="a", model="m" * 100_000)
    assert len(long["message"]) < 300
    assert client.get("/v1/nothing").json()["error"]["code"] == "not_found"
    assert client.get("/embed").status_code == 405


@pytest.mark.parametrize("layers", [3, -4, [1.0], [], [1.0] * 100_000, 1e300, "first", True, None, 0.5])
def test_layers_that_a_model_has_not_are_refused_briefly(client, layers):
    for path, name in (("/v1/embeddings", "input"), ("/v1/tokens", "inputs")):
        error = refused(client, path, 422, **{name: ["a"], "layers": layers})
        assert error["param"] == "layers"
        assert len(error["message"]) < 500
    assert refused(client, "/v1/embeddings", 422, input="a", layers="all")["param"] == "layers"


def test_the_document_says_which_layers_there_are(world):
    def layers(application, name):
        return application.openapi()["components"]["schemas"][name]["properties"]["layers"]["anyOf"]

    application = elmokit.serve.app({"small": world.elmo}, indexes=[world.index.folder])
    assert {"type": "integer", "minimum": -3, "maximum": 2} in layers(application, "TokensRequest")
    assert layers(application, "NeighboursRequest")[0]["items"]["enum"] == [0, 1, 2]
    several = elmokit.serve.app({"small": world.elmo, "flat": make_elmo(small_config(layers=1))})
    assert {"type": "integer"} in layers(several, "TokensRequest")


def test_what_cannot_be_served_is_refused_at_the_start(world, tmp_path):
    with pytest.raises(UserError, match="expected a model to serve"):
        elmokit.serve.app([])
    with pytest.raises(UserError, match="two models are called small"):
        elmokit.serve.app([f"small={world.model_folder}", f"small={world.model_folder}"])
    with pytest.raises(UserError, match="would mix the texts"):
        elmokit.serve.app({"small": make_elmo(state="carry")})
    with pytest.raises(UserError, match="a model that is not served"):
        elmokit.serve.app({"other": make_elmo()}, indexes=[world.index.folder])
    (tmp_path / "run" / "model").mkdir(parents=True)
    assert named(tmp_path / "run" / "model")[0] == named(tmp_path / "run")[0] == "run"
    assert named("mine=some/where") == ("mine", "some/where")
    assert named("owner/name") == ("owner/name", "owner/name")
