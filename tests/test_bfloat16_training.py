"""Training in bfloat16: beside float32, by several processes, and where the processor cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from elmokit.model.kernels.bfloat16 import available
from elmokit.model.kernels.library import VARIABLE
from elmokit.pretrain.run import Run
from helpers.training import FAST, SPREAD, made_up_text, make_corpus, make_run, make_trainer

needs_it = pytest.mark.skipif(not available(), reason="this processor has no AVX512_BF16, or there are no kernels")


@needs_it
@pytest.mark.parametrize(
    "options",
    [{"dropout": 0.1}, {}, {"full_softmax": 1, "negatives": 12, "softmax_width": 12, "state": "either"}],
)
def test_fifty_steps_follow_those_in_float32(tmp_path, options):
    corpus = make_corpus(tmp_path, made_up_text(200))
    curves = {}
    for precision in ("float32", "bfloat16"):
        trainer = make_trainer(corpus, optimizer=FAST, precision=precision, rows=16, **options)
        curves[precision] = np.array([trainer.train_step(i / 50).loss for i in range(50)])
        assert all(p.dtype == torch.float32 for p in trainer.state_dict().values() if p.is_floating_point())
        trainer.close()
    difference = np.abs(curves["float32"] - curves["bfloat16"])
    assert 0 < difference.max() < 0.01
    assert curves["bfloat16"][-5:].mean() < curves["bfloat16"][:5].mean() - 0.1


@pytest.mark.slow
@needs_it
def test_two_processes_train_as_one_does(tmp_path):
    """Sums over rows are summed in another order, then rounded: not the same bits, but the same curve."""
    curves = []
    for name in ("one", "two"):
        folder = tmp_path / name
        make_run(folder, settings=("train.precision=bfloat16",)).close()
        config = json.loads((folder / "run.json").read_text())
        assert config["recipe"]["train"]["precision"] == "bfloat16"
        (folder / "run.json").write_text(json.dumps({**config, "report_steps": 1}))
        if name == "two":
            (tmp_path / "spread.py").write_text(SPREAD)
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
            process = subprocess.run(
                [*command, tmp_path / "spread.py", folder],
                capture_output=True,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                check=False,
            )
            assert process.returncode == 0, process.stderr
        else:
            run = Run.open(folder)
            run.train()
            run.close()
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        curves.append([line["loss"] for line in lines if "loss" in line])
    assert len(curves[0]) > 20
    np.testing.assert_allclose(*curves, atol=5e-3)


ELSEWHERE = """
import sys
from pathlib import Path
from elmokit.pretrain.run import Run
run = Run.open(Path(sys.argv[1]))
told = []
run.train(lambda now: now.message and told.append(now.message))
print(run.trainer.precision, run.trainer.step, *told, sep="\\n")
run.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["portable", "torch"])
def test_where_the_processor_cannot_a_run_resumes_in_float32_and_says_so(tmp_path, kernels):
    run = make_run(tmp_path / "run", tokens=600, settings=("train.precision=bfloat16",))
    for _ in range(3):
        run.trainer.train_step(0.1)
    begun = run.trainer.precision
    run.train(stop=lambda: True)
    run.close()
    assert begun == ("bfloat16" if available() else "float32")
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", ELSEWHERE, tmp_path / "run"],
        capture_output=True,
        text=True,
        env={**os.environ, VARIABLE: kernels},
        check=False,
    )
    assert process.returncode == 0, process.stderr
    precision, step, told, *others = process.stdout.splitlines()
    assert precision == "float32"
    assert int(step) > 3
    assert "AVX512_BF16" in told
    assert not others


def test_a_run_from_before_there_was_a_choice_opens(tmp_path):
    make_run(tmp_path / "run").close()
    path = tmp_path / "run" / "run.json"
    config = json.loads(path.read_text())
    del config["recipe"]["train"]["precision"]
    path.write_text(json.dumps(config))
    run = Run.open(tmp_path / "run")
    assert run.trainer.precision == "float32"
    run.close()


def test_another_precision_is_refused(tmp_path):
    with pytest.raises(ValueError, match="precision"):
        make_run(tmp_path / "run", settings=("train.precision=float8",))
