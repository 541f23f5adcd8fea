"""What the benchmarks compute themselves: FLOPs, made-up words, curves beside each other. Nothing is timed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from elmokit.bench import rates
from elmokit.bench.flops import lstm_flops, step_flops
from elmokit.bench.lstms import TorchLSTM
from elmokit.bench.sentences import made_up_words
from elmokit.model.kernels import variant
from elmokit.model.kernels.packing import WEIGHT_FORMATS
from elmokit.model.lstm import LSTMState, ProjectedLSTM
from helpers.models import small_config

pytest.importorskip("matplotlib")
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def script(name):
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pretrain():
    return script("pretrain")


def test_variants_are_compared_where_the_shorter_one_ends():
    """Tokens, CPU seconds, perplexity: between two points the logarithm is a straight line."""
    at_equal_time = script("variants").at_equal_time
    base = [[1, 100, 400.0], [2, 200, 200.0]]
    assert at_equal_time(base, base) == 0
    assert at_equal_time(base, [[1, 50, 300.0], [2, 150, 100.0]]) == pytest.approx(1 - 100 / (200 * 2**0.5))
    assert at_equal_time(base, [[1, 150, 300.0], [2, 250, 75.0]]) == pytest.approx(1 - 150 / 200)
    assert at_equal_time(base, [[1, 100, 400.0], [2, 200, 300.0]]) == pytest.approx(-0.5)


def counted(*products) -> int:
    """FLOPs of products and their gradients, as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        for product in products:
            product().sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("softmax_width", [0, 8, 5])
def test_flops_are_those_that_torch_counts(softmax_width):
    config, characters, distinct, inputs, predictions, columns = small_config(), 10, 7, 6, 5, 12
    encoder, lstm = config.encoder, config.lstm

    def product(rows, into, out, times=1):
        def run():
            a, b = (torch.zeros(shape, requires_grad=True) for shape in ((rows, into), (into, out)))
            return sum(a @ b for _ in range(times))

        return run

    def convolution(width, count):
        x = torch.zeros(distinct, encoder.embedding, characters, requires_grad=True)
        return lambda: F.conv1d(x, torch.zeros(count, encoder.embedding, width, requires_grad=True))

    layers = 2 * lstm.layers  # of both directions
    expected = {
        "character CNN": counted(*(convolution(width, count) for width, count in encoder.filters)),
        "highway": counted(product(distinct, 18, 18, times=2 * encoder.highway)),
        "projection": counted(product(distinct, 18, lstm.width)),
        "LSTM, input": counted(product(inputs, lstm.width, 4 * lstm.cells, layers)),
        "LSTM, recurrent": counted(product(inputs, lstm.width, 4 * lstm.cells, layers)),
        "LSTM, projection": counted(product(inputs, lstm.cells, lstm.width, layers)),
        "softmax": counted(product(predictions, softmax_width or lstm.width, columns, times=2)),
    }
    if softmax_width == 5:  # another width than the 8 of a direction: a linear map before it
        expected["softmax"] += counted(product(predictions, lstm.width, softmax_width, times=2))
    assert step_flops(config, characters, distinct, inputs, predictions, columns, softmax_width) == expected


def test_flops_of_the_recurrence_by_hand():
    # 2 directions x 2 layers x 6 steps x (24 x 8 projected), 2 a multiply-add, forward and twice that backward
    assert step_flops(small_config(), 10, 7, 6, 5, 12)["LSTM, projection"] == 3 * 2 * 2 * 2 * 6 * 24 * 8
    # forward alone, and two products of 8 x (4 x 24) besides
    assert lstm_flops(small_config().lstm, 6) == 2 * 2 * 2 * 6 * (24 * 8 + 2 * 8 * 4 * 24)


def test_flops_of_muon_are_those_of_its_products_in_their_turn():
    # 8 x 20: its Gram matrix and the last product 8 x 8 x 20 each, and thirteen of 8 x 8 x 8; in every second step
    flops = script("step_parts").muon_flops([torch.zeros(8, 20), torch.zeros(20, 8)], every=2)
    assert flops == 2 * (2 * 8 * 8 * 20 + 13 * 8**3)


def test_time_within_a_part_is_its_own_and_all_of_it_is_counted(monkeypatch):
    parts, now = script("step_parts"), iter(range(0, 100, 10))
    monkeypatch.setattr(parts.time, "perf_counter", lambda: next(now))
    watch = parts.Parts()
    inner = watch.watched("inner", lambda: None)
    watch.watched(lambda given: given, lambda _: inner())("outer")
    assert watch.seconds == {"the rest": 0, "outer": 20, "inner": 10}


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_torchs_lstm_is_ours_where_nothing_is_clipped():
    torch.manual_seed(0)
    ours = ProjectedLSTM(8, small_config(cell_clip=None, projection_clip=None).lstm)
    nn.init.normal_(ours.bias)
    x, mask = torch.randn(3, 5, 8), torch.ones(3, 5, dtype=torch.bool)
    state = LSTMState(torch.randn(3, 8), torch.randn(3, 24))
    h, after = ours(x, mask, state)
    h_torch, after_torch = TorchLSTM(ours)(x, mask, state, None)
    torch.testing.assert_close(h_torch, h)
    torch.testing.assert_close(tuple(after_torch), tuple(after))


def test_made_up_words_are_all_different_and_the_frequent_ones_shorter():
    words = made_up_words(20_000)
    assert len(set(words)) == 20_000
    assert sum(map(len, words[:100])) < sum(map(len, words[-100:]))


def test_curves_are_compared_at_the_end_and_where_they_reach_the_first_ones_end(pretrain):
    first = [pretrain.Point(100, 10.0, 400.0), pretrain.Point(200, 20.0, 100.0)]
    better = [pretrain.Point(100, 30.0, 200.0), pretrain.Point(200, 60.0, 50.0)]
    worse = [pretrain.Point(100, 1.0, 500.0), pretrain.Point(200, 2.0, 150.0)]
    table = pretrain.compare({"first": first, "better": better, "worse": worse})
    assert table["first"] == {**first[-1]._asdict(), "ratio": 1.0, "goal_tokens": 1.0, "goal_seconds": 1.0}
    assert table["better"]["ratio"] == 0.5
    # 100 is halfway from 200 to 50 in the logarithm: at 150 tokens and 45 seconds, of 200 and 20
    assert table["better"]["goal_tokens"] == pytest.approx(0.75)
    assert table["better"]["goal_seconds"] == pytest.approx(2.25)
    assert table["worse"]["ratio"] == 1.5
    assert table["worse"]["goal_tokens"] is None


def test_a_curve_that_begins_below_is_there_at_its_first_point(pretrain):
    curve = [pretrain.Point(100, 1.0, 90.0), pretrain.Point(200, 2.0, 80.0)]
    assert pretrain.reaches(curve, 95.0) == (100, 1.0)


def test_recipes_share_the_words_of_the_first(pretrain):
    recipes = pretrain.shared_recipes(["published", "tiny"], ["train.rows=8"])
    assert list(recipes) == ["published", "tiny"]
    for recipe in recipes.values():
        assert (recipe.train.vocabulary, recipe.train.min_count, recipe.train.rows) == (800_000, 1, 8)
    with pytest.raises(ValueError, match="different names"):
        pretrain.shared_recipes(["tiny", "tiny"], [])


@pytest.mark.slow
@pytest.mark.skipif(variant() == "torch", reason="elmokit was installed without a compiler")
def test_the_embedding_benchmark_runs_and_its_contenders_agree(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    embed = importlib.import_module("embed")
    monkeypatch.setattr(rates, "SIDES", (8,))  # nothing here is about large products
    monkeypatch.setattr(embed, "SHORT", 0.0)
    sizes = "--recipe tiny --sentences 6 --corpus 20 --rounds 1 --parts lstm text batch --out"
    embed.main([*sizes.split(), str(tmp_path)])
    result = json.loads((tmp_path / "embed.json").read_text())
    assert set(result) == {"about", "lstm", "text", "batch"}
    assert (tmp_path / "embed.png").is_file()
    assert result["text"]["difference"] < 1e-5
    for rows in result["lstm"]["cases"].values():
        cosines = {row["LSTMs"]: row["cosine"] for row in rows}
        assert all(cosines[f"ours, {weights}"] > 0.99 for weights in WEIGHT_FORMATS)
    assert [row["at once"] for row in result["text"]["at once"]] == [
        *(f"ours, {known}, {weights}" for weights in WEIGHT_FORMATS for known in ("cold", "warm")),
        "definition, cold",
    ]


def test_the_chart_has_a_bar_for_each_peer_and_precision(tmp_path):
    chart = script("chart")
    data = json.loads((BENCHMARKS / "peers.json").read_text(encoding="utf-8"))
    names = {name for name, _, _ in chart.bars(data)}
    assert names == {*data["peers"], *(f"elmokit, {precision}" for precision in data["elmokit"])}
    assert {"AllenNLP", "bilm-tf", "simple_elmo", "ELMoForManyLangs"} <= names
    chart.main(["--out", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["speed-dark.png", "speed.png"]
