"""Other people's clients against the real process: OpenAI's, text-embeddings-inference's curl, and schemathesis.

By hand, with more cases (10,000 take four minutes):

    ELMO_SCHEMATHESIS_EXAMPLES=1000 .venv/bin/python -m pytest tests/test_serve_clients.py -k described -s
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from helpers.servers import make_world, running

EXAMPLES = os.environ.get("ELMO_SCHEMATHESIS_EXAMPLES", "10")
TEXTS = ["He sat on the bank of the river.", "밥을 먹었다.", "", "a"]
# In a process of its own: a warning of the client's is not an error of ours.
OPENAI = """
import json, sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="a-key")
options = json.loads(sys.argv[3])
answer = client.embeddings.create(model="small", input=json.loads(sys.argv[2]), **options)
print(json.dumps([[row.embedding for row in answer.data], answer.usage.total_tokens, answer.model]))
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def server(world):
    with running(*world.arguments, "--api-key", "a-key") as server:
        yield server


@pytest.fixture(scope="module")
def open_server(world):
    """Without a key."""
    with running(*world.arguments) as server:
        yield server


@pytest.mark.parametrize("options", [{}, {"encoding_format": "float"}])  # its own choice is base64
def test_the_client_of_openai_gets_the_vectors_of_the_library(server, world, options):
    command = [sys.executable, "-c", OPENAI, server.url, json.dumps(TEXTS), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    vectors, tokens, model = json.loads(done.stdout)
    np.testing.assert_array_equal(np.array(vectors, dtype=np.float32), world.elmo.encode(TEXTS, normalize=True))
    assert (tokens, model) == (sum(len(world.elmo.tokens(text)) for text in TEXTS), "small")


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_the_documented_curl_gets_the_vectors_of_the_library(open_server, world):
    line = f"curl {open_server.url}/embed -X POST"
    body = '{"inputs":"What is Deep Learning?"}'
    command = [*line.split(), "-d", body, "-H", "Content-Type: application/json"]
    done = subprocess.run(command, capture_output=True, check=True)
    expected = world.elmo.encode(["What is Deep Learning?"], normalize=True)
    np.testing.assert_array_equal(np.array(json.loads(done.stdout), dtype=np.float32), expected)


@pytest.mark.slow
def test_every_request_is_answered_as_described(open_server, tmp_path):
    """All of schemathesis' checks: no 500, no status that is not in the document, right requests are taken."""
    before = open_server.memory
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{open_server.url}/openapi.json"]
    command += ["--checks", "all", "--max-examples", EXAMPLES, "--seed", "1", "--suppress-health-check", "all"]
    command += ["--phases", "examples,coverage,fuzzing", "--no-color", "--generation-database", "none"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    cases = re.findall(r"(\d+) generated", done.stdout)
    print(f"{cases} cases; memory {before >> 20} -> {open_server.memory >> 20} MiB")
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert cases, done.stdout[-2000:]
    assert open_server.memory < 1.1 * before
    assert open_server.ask("GET", "/readyz").status == 200
