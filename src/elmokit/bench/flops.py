"""Floating-point operations of a model's matrix products, part by part."""

from __future__ import annotations

from elmokit.model.bilm import BiLMConfig
from elmokit.model.char_encoder import CharEncoderConfig
from elmokit.model.lstm import LSTMConfig


def lstm_products(lstm: LSTMConfig, inputs: int) -> dict[str, int]:
    """Multiply-adds of all layers of both directions; inputs: steps of all rows, of one direction."""
    return {
        "LSTM, input": 2 * lstm.layers * inputs * 4 * lstm.cells * lstm.width,
        "LSTM, recurrent": 2 * lstm.layers * inputs * 4 * lstm.cells * lstm.width,
        "LSTM, projection": 2 * lstm.layers * inputs * lstm.cells * lstm.width,
    }


def lstm_flops(lstm: LSTMConfig, tokens: int) -> float:
    """Of reading so many tokens, both directions and all layers, forward alone."""
    return 2.0 * sum(lstm_products(lstm, tokens).values())


def step_flops(
    config: BiLMConfig,
    characters: int,
    distinct: int,
    inputs: int,
    predictions: int,
    columns: int,
    softmax_width: int = 0,
) -> dict[str, float]:
    """Of a training step, by part: matrix products alone, 2 a multiply-add; backward costs two forwards.

    distinct       tokens that the encoder sees, each at all `characters` positions
    inputs         steps of all rows, of one direction; so are `predictions`, those that have a target
    columns        words that a prediction is chosen from: the sampled ones and the target, or the vocabulary
    softmax_width  0: as wide as a direction's output; of another width, one more linear map stands before it
    """
    encoder, lstm = config.encoder, config.lstm
    assert isinstance(encoder, CharEncoderConfig)
    filters = sum(count for _, count in encoder.filters)
    positions = sum(width * count * (characters - width + 1) for width, count in encoder.filters)
    wide = softmax_width or lstm.width
    mapped = lstm.width * wide if wide != lstm.width else 0
    products = {  # multiply-adds, forward
        "character CNN": distinct * encoder.embedding * positions,
        "highway": distinct * encoder.highway * 2 * filters**2,
        "projection": distinct * encoder.features * lstm.width * encoder.projection,
        **lstm_products(lstm, inputs),
        "softmax": 2 * predictions * (columns * wide + mapped),
    }
    return {part: 3.0 * 2.0 * count for part, count in products.items()}
