"""A model in other processes: forked children do not hang, and an Elmo is pickled and copied.

What could hang runs in a process of its own, with a time limit and two threads; tests here have one.
"""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import torch

from elmokit import Elmo, UserError
from elmokit.model.kernels.library import available_variants
from helpers.models import SENTENCES, make_elmo

LIMIT = 120  # seconds; a child that hangs would never end
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

PRELUDE = """
import os, sys, threading
import numpy as np, torch
from elmokit import Elmo
torch.set_num_threads(2)
SENTENCES = ["He sat on the bank of the river .", "Stop", "밥을 먹었다 ."] * 10
elmo = Elmo.from_pretrained("en-small")
before = elmo.encode(SENTENCES)
torch.randn(600, 600) @ torch.randn(600, 600)  # OpenMP's threads have begun

def encode(sentences):
    new = [sentence + " Words that the parent has not read ." for sentence in sentences]
    return elmo.encode(sentences), elmo.encode(new), torch.get_num_threads()

def check(vectors, unread, threads):
    assert threads == 1, threads
    same = np.array_equal if elmo_is_native else lambda a, b: np.allclose(a, b, atol=1e-5)
    assert same(vectors, before)
    assert same(unread, encode(SENTENCES)[1])

from elmokit.model.kernels.library import variant
elmo_is_native = variant() not in ("torch", "definition")
"""
FORKS = {
    "os.fork": """
read, write = os.pipe()
child = os.fork()
if child == 0:
    import pickle
    with open(write, "wb") as file:
        pickle.dump(encode(SENTENCES), file)
    os._exit(0)
os.close(write)
import pickle
with open(read, "rb") as file:
    check(*pickle.load(file))
assert os.waitpid(child, 0)[1] == 0
""",
    "Pool.map": """
from multiprocessing import get_context
with get_context("fork").Pool(2) as pool:
    for found in pool.map(encode, [SENTENCES] * 3, chunksize=1):
        check(*found)
""",
    "DataLoader": """
from torch.utils.data import DataLoader
texts = SENTENCES[:8]
loader = DataLoader(texts, batch_size=4, num_workers=2, collate_fn=encode, multiprocessing_context="fork")
found = list(loader)
assert np.array_equal(np.concatenate([vectors for vectors, _, _ in found]), elmo.encode(texts))
""",
    "while another thread computes": """
stop = threading.Event()
def compute():
    number = 0
    while not stop.is_set():
        number += 1
        elmo.embed([f"word{number} number{number}", *SENTENCES[:3]])
thread = threading.Thread(target=compute)
thread.start()
from multiprocessing import get_context
fork = get_context("fork")
for _ in range(10):
    process = fork.Process(target=encode, args=(SENTENCES,))
    process.start()
    process.join()
    assert process.exitcode == 0
stop.set()
thread.join()
""",
}


def run(script: str, **environment: str) -> None:
    settings = {**os.environ, "OMP_NUM_THREADS": "2", **environment}
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=settings, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        error = process.communicate(timeout=LIMIT)[1]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with its children, which are what hangs
        raise
    assert process.returncode == 0, error


@forks
def test_a_forked_child_does_not_hang_and_computes_the_same():
    """All ways to fork in one process: most of the time is torch's, to be imported."""
    run(PRELUDE + "\n".join(f"print({way!r}, flush=True)\n{script}" for way, script in FORKS.items()))


@forks
def test_a_forked_child_does_not_hang_without_the_native_library():
    run(PRELUDE + FORKS["os.fork"], ELMOKIT_KERNELS="torch")


@forks
def test_forks_are_left_alone_where_no_model_was_made():
    run("""
import os, torch
from elmokit import Elmo
torch.set_num_threads(2)
child = os.fork()
if child == 0:
    os._exit(torch.get_num_threads())
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
""")


@forks
def test_what_forks_need_is_registered_once(monkeypatch):
    from elmokit.model.kernels.forking import prepare_for_forks

    registered = []
    monkeypatch.setattr(os, "register_at_fork", lambda **hooks: registered.append(hooks))
    prepare_for_forks.cache_clear()
    make_elmo(), make_elmo()
    assert len(registered) == 1


def equal(one: Elmo, other: Elmo) -> None:
    assert repr(one) == repr(other)
    assert one.tokenizer.config == other.tokenizer.config
    assert one.batch_tokens == other.batch_tokens
    for array, same in zip(one.embed(SENTENCES), other.embed(SENTENCES)):
        np.testing.assert_array_equal(array, same)


@pytest.fixture
def opened(model_folder) -> Elmo:
    return Elmo.from_pretrained(model_folder, batch_tokens=50, tokenizer="words")


def test_an_elmo_is_pickled_by_its_source_and_options(opened, tmp_path, monkeypatch):
    content = pickle.dumps(opened)
    assert len(content) < 2000  # no weights
    equal(pickle.loads(content), opened)
    weights = sum(weight.nbytes for weight in opened._bilm.parameters())
    assert weights > 4 * len(content)

    monkeypatch.chdir(tmp_path)
    relative = pickle.dumps(Elmo.from_pretrained("model"))
    monkeypatch.chdir("/")
    assert pickle.loads(relative).layers == 3
    assert len(pickle.dumps(Elmo.from_pretrained("en-small", weights="float16"))) < 2000


def test_the_published_pair_is_pickled_by_its_source(published_pair):
    elmo = Elmo.from_original(*published_pair)
    content = pickle.dumps(elmo)
    assert len(content) < 2000
    equal(pickle.loads(content), elmo)


def test_a_pickled_elmo_whose_source_is_gone_or_changed_says_so(opened, model_folder):
    content = pickle.dumps(opened)
    model_folder.rename(model_folder.parent / "elsewhere")
    with pytest.raises(UserError, match=r"its source, which cannot be opened here: .*model is no folder"):
        pickle.loads(content)
    other = make_elmo()
    with torch.no_grad():
        other.bilm.encoder.projection.weight.mul_(2)
    other.save(model_folder)
    with pytest.raises(UserError, match="other weights here: expected digest"):
        pickle.loads(content)


def test_an_elmo_without_a_source_is_pickled_with_its_weights(elmo):
    equal(pickle.loads(pickle.dumps(elmo)), elmo)
    fresh = Elmo.from_recipe("tiny", seed=3)
    equal(pickle.loads(pickle.dumps(fresh)), fresh)


def test_an_edited_elmo_is_pickled_with_its_edited_weights(opened):
    before = opened.encode(SENTENCES)
    pickle.dumps(opened)
    with torch.no_grad():
        opened.bilm.encoder.projection.weight.mul_(2)
    again = pickle.loads(pickle.dumps(opened))
    equal(again, opened)
    assert again.checkpoint.digest == type(again.checkpoint).digest.func(opened.checkpoint)
    assert np.abs(again.encode(SENTENCES) - before).max() > 1e-3


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda elmo: pickle.loads(pickle.dumps(elmo))])
@pytest.mark.parametrize("options", [{"state": "carry"}, {"state": "warm", "warm_text": ["He sat ."]}], ids=str)
def test_a_copy_goes_on_from_the_state_and_then_by_itself(model_folder, options, copied):
    elmo, expected = (Elmo.from_pretrained(model_folder, **options) for _ in range(2))
    for reader in (elmo, expected):
        reader.embed(SENTENCES)
    other, third = copied(elmo), copied(elmo)
    other.embed(["This is read by the copy alone ."] * 3)
    right = expected.embed(SENTENCES)
    for reader in (elmo, third):
        for array, same in zip(reader.embed(SENTENCES), right):
            np.testing.assert_array_equal(array, same)


def test_a_deep_copy_has_weights_and_kept_words_of_its_own(opened):
    expected = opened.encode(SENTENCES)
    other = copy.deepcopy(opened)
    equal(other, opened)
    assert other.token_layer is not opened.token_layer
    with torch.no_grad():
        other.bilm.encoder.projection.weight.mul_(2)
    other.checkpoint.bilm.forward_lstms[0].hidden_weight.data.mul_(2)
    np.testing.assert_array_equal(opened.encode(SENTENCES), expected)
    assert np.abs(other.encode(SENTENCES) - expected).max() > 1e-3


def test_a_copy_shares_its_weights(elmo):
    other = copy.copy(elmo)
    with torch.no_grad():
        other.bilm.encoder.projection.weight.mul_(2)
    np.testing.assert_array_equal(elmo.encode(SENTENCES), other.encode(SENTENCES))


def test_an_elmo_passes_to_spawned_processes(opened):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        vectors = pool.submit(opened.encode, SENTENCES).result(timeout=LIMIT)
    np.testing.assert_allclose(vectors, opened.encode(SENTENCES), atol=0 if available_variants() else 1e-6)


def test_an_elmo_passes_to_joblib(opened):
    joblib = pytest.importorskip("joblib")
    (vectors,) = joblib.Parallel(n_jobs=2, timeout=LIMIT)([joblib.delayed(opened.encode)(SENTENCES)])
    np.testing.assert_allclose(vectors, opened.encode(SENTENCES), atol=0 if available_variants() else 1e-6)
