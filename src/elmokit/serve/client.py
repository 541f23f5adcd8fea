"""`Client`: the vectors of a server, `elmo serve`, by the calls of `Elmo` and as patient as a restart takes.

Shapes: N sentences, L layers, T tokens, D width.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.sentences import Sentence, by_number, check_sentence, checked_sentences
from elmokit.errors import UserError, clipped, listed
from elmokit.serve.connection import Connection, checked_url
from elmokit.text.characters import LONE_SURROGATE
from elmokit.text.tokens import Tokenizer, TokenizerConfig, clean_token, tokenizer_for

if TYPE_CHECKING:  # it imports torch, which nobody here waits for
    from elmokit.embed.pooling import DType, Pooling, WhichLayers

Array = NDArray[Any]
Matrix = NDArray[np.float32]

# What is sent at once. All layers of so many tokens are 100 MB of a small model's.
REQUEST_INPUTS, REQUEST_TOKENS, REQUEST_CHARACTERS = 512, 16_384, 100_000
BYTES_PER_TOKEN = 5  # of text that the server is to tokenize: a low guess, in any script


@dataclass(frozen=True)
class _Facts:
    """What the server says of a model."""

    name: str
    digest: str
    layers: int
    width: int
    tokenizer: TokenizerConfig
    weights: str
    state: str
    batch_tokens: int


class Client:
    """
    url         where `elmo serve` is, as http://127.0.0.1:8000.
    model       one of `models()`; by default the server's first. A client stays with the model that it found: if
                another one has that name later, calls fail rather than mix the vectors of two.
    tokenizer   a tokenizer's name, instead of the model's own, as of `Elmo`; text is then tokenized here.
    api_key     the server's key; by default the environment's ELMO_API_KEY.
    timeout     seconds without a sign of life after which a try has failed.
    patience    seconds, from the first try that fails, in which a request is sent again: while a server is being
                started, restarted or busy, nothing is lost. 0: at once an error.

    May be used by several threads at a time.
    """

    state = None  # what `EmbedJob` would save to resume from: the server remembers nothing

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        tokenizer: str | TokenizerConfig | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        patience: float = 60.0,
    ) -> None:
        if not timeout > 0:
            raise UserError(f"timeout: expected more than 0 seconds, found {timeout}")
        if not patience >= 0:
            raise UserError(f"patience: expected 0 seconds or more, found {patience}")
        api_key = os.environ.get("ELMO_API_KEY") if api_key is None else api_key
        self._connection = Connection(checked_url(url), api_key, timeout, patience)
        self._asked_model, self._asked_tokenizer = model, tokenizer

    @property
    def url(self) -> str:
        return self._connection.url

    @property
    def model(self) -> str:
        """Its name on the server."""
        return self._facts.name

    @property
    def digest(self) -> str:
        """As `Elmo.digest`: the same for equal models, wherever they are."""
        return self._facts.digest

    @property
    def layers(self) -> int:
        """How many there are: the token layer and the LSTM layers."""
        return self._facts.layers

    @property
    def width(self) -> int:
        """D, the size of a vector."""
        return self._facts.width

    @property
    def weights(self) -> str:
        """What the server computes with."""
        return self._facts.weights

    @property
    def state_name(self) -> str:
        return self._facts.state

    @property
    def batch_tokens(self) -> int:
        """Of the server's batches."""
        return self._facts.batch_tokens

    @property
    def window_tokens(self) -> int:
        """Sentences of about so many tokens are one request."""
        return REQUEST_TOKENS

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's, or the one asked for."""
        return tokenizer_for(self._facts.tokenizer, self._asked_tokenizer)

    def models(self) -> list[dict[str, Any]]:
        """What the server has: of each model its `id`, `digest`, `layers`, `width`, `tokenizer` and more."""
        found = self._connection.get("/v1/models")
        try:
            models = [dict(facts) for facts in found["data"]]
        except (KeyError, TypeError, ValueError):
            raise self._connection.no_server("a list of models was expected") from None
        return models

    @overload
    def embed(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: WhichLayers = "all",
        pooling: Pooling | None = None,
        dtype: DType = "float32",
        boundaries: bool = False,
        matrix: Literal[False] = False,
    ) -> list[Array]: ...

    @overload
    def embed(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: WhichLayers = "all",
        pooling: Pooling,
        dtype: DType = "float32",
        boundaries: bool = False,
        matrix: Literal[True],
    ) -> Array: ...

    def embed(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: WhichLayers = "all",
        pooling: Pooling | None = None,
        dtype: DType = "float32",
        boundaries: bool = False,
        matrix: bool = False,
    ) -> list[Array] | Array:
        """As `Elmo.embed`, and the same arrays: one per sentence, [L, T, D] for "all", else [T, D]; without T
        where pooled; with `matrix`, one for all sentences. A ScalarMix is sent as its weights, gamma * s_j."""
        if matrix and pooling is None:
            raise UserError('matrix=True: sentences differ in length: choose pooling="mean" or "max" too')
        arrays = list(self.stream(sentences, layers=layers, pooling=pooling, dtype=dtype, boundaries=boundaries))
        if not matrix:
            return arrays
        shape = (self.layers, self.width) if isinstance(layers, str) and layers == "all" else (self.width,)
        return np.stack(arrays) if arrays else np.empty((0, *shape), dtype)

    def stream(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: WhichLayers = "all",
        pooling: Pooling | None = None,
        dtype: DType = "float32",
        boundaries: bool = False,
    ) -> Iterator[Array]:
        """As `embed`, but from any iterable, one array at a time: one request's sentences are held, not more."""
        self.check(layers, pooling, dtype)
        options = {
            "layers": _sendable(layers, self.layers),
            "pooling": pooling,
            "dtype": np.dtype(dtype).name,
            "boundaries": bool(boundaries),
        }
        return self._stream(checked_sentences(sentences), options)

    def encode(
        self,
        texts: str | Iterable[Sentence],
        *,
        layers: WhichLayers = "mean",
        pooling: Pooling = "mean",
        normalize: bool = False,
    ) -> Matrix:
        """As `Elmo.encode`: one vector for each text, [N, D], float32; of a single string, [D]."""
        if isinstance(layers, str) and layers == "all":
            raise UserError(
                'encode gives a text one vector: expected layers="mean", a number or weights, found "all"; '
                'embed(texts, pooling="mean", matrix=True) gives [texts, layers, width]'
            )
        if pooling is None:
            raise UserError('encode gives a text one vector: expected pooling="mean" or "max", found None')
        if isinstance(texts, str):
            only: Matrix = self.encode([texts], layers=layers, pooling=pooling, normalize=normalize)[0]
            return only
        matrix: Matrix = self.embed(texts, layers=layers, pooling=pooling, matrix=True)
        if normalize:  # as elmokit.embed.similarity.unit_rows, which needs torch
            lengths: Matrix = np.linalg.norm(matrix, axis=1, keepdims=True)
            lengths[lengths == 0] = 1
            matrix = matrix / lengths
        return matrix

    def check(self, which_layers: WhichLayers, pooling: str | None, dtype: DType) -> None:
        """Refuse at once what the server would refuse after the first sentences, as `Elmo` does."""
        if pooling not in (None, "mean", "max"):
            raise UserError(f'pooling: expected None, "mean" or "max", found {pooling!r}')
        try:
            known = np.dtype(dtype) in (np.float32, np.float16)
        except TypeError:
            known = False
        if not known:
            raise UserError(f'dtype: expected "float32" or "float16", found {dtype!r}')
        _sendable(which_layers, self.layers)

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url}: {self._asked_model or 'its first model'})"

    @cached_property
    def _facts(self) -> _Facts:
        models = self.models()
        asked = self._asked_model
        found = [facts for facts in models if asked is None or facts.get("id") == asked]
        if not found:
            names = listed(facts.get("id") for facts in models)
            raise UserError(f"{self.url} has no model {clipped(asked)}; it has {names or 'none'}")
        facts = found[0]
        try:
            return _Facts(
                name=facts["id"],
                digest=facts["digest"],
                layers=int(facts["layers"]),
                width=int(facts["width"]),
                tokenizer=TokenizerConfig(**facts["tokenizer"]),
                weights=facts["weights"],
                state=facts.get("state", "zero"),
                batch_tokens=int(facts["batch_tokens"]),
            )
        except (KeyError, TypeError, ValueError):
            raise self._connection.no_server("its models are not described as an ELMo's are") from None

    @cached_property
    def _most_inputs(self) -> int:
        most = self._connection.get("/info").get("max_client_batch_size", REQUEST_INPUTS)
        return max(1, min(REQUEST_INPUTS, int(most)))

    def _stream(self, sentences: Iterable[Sentence], options: Mapping[str, Any]) -> Iterator[Array]:
        first = 0
        for inputs in self._requests(by_number(self._input, sentences)):
            body = {"model": self.model, "inputs": inputs, **options, "format": "safetensors"}
            try:
                answer = self._connection.ask("POST", "/v1/tokens", json.dumps(body).encode())
            except UserError as error:
                raise UserError(_numbered_from(first, str(error))) from None
            yield from self._arrays(answer, len(inputs), options)
            first += len(inputs)

    def _input(self, sentence: Sentence) -> str | list[str]:
        """What is sent for a sentence: text for the server to tokenize, or tokens."""
        check_sentence(sentence)
        if isinstance(sentence, str):
            # Half of a surrogate pair is not UTF-8 and cannot be sent; among tokens it has been replaced.
            is_sent = self._asked_tokenizer is None and (sentence.isascii() or not LONE_SURROGATE.search(sentence))
            return sentence if is_sent else self.tokenizer.tokens(sentence)
        return [clean_token(token, self._facts.tokenizer.normalize) for token in sentence]

    def _requests(self, inputs: Iterable[str | list[str]]) -> Iterator[list[str | list[str]]]:
        """Consecutive inputs that are sent together."""
        request: list[str | list[str]] = []
        tokens = characters = 0
        for each in inputs:
            request.append(each)
            if isinstance(each, str):
                tokens += len(each.encode()) // BYTES_PER_TOKEN + 2
                characters += len(each)
            else:
                tokens += len(each) + 2
                characters += sum(map(len, each))
            full = tokens >= REQUEST_TOKENS or characters >= REQUEST_CHARACTERS
            if full or len(request) == self._most_inputs:
                yield request
                request, tokens, characters = [], 0, 0
        if request:
            yield request

    def _arrays(self, answer: bytes, count: int, options: Mapping[str, Any]) -> list[Array]:
        """One array per sentence, in memory of its own: the answer need not stay."""
        try:
            vectors, lengths, about = _unpacked(answer)
        except ValueError:
            raise self._connection.no_server("vectors in safetensors' format were expected") from None
        if about.get("digest") != self.digest or about.get("weights", self.weights) != self.weights:
            raise UserError(
                f"{self.url} has another model by the name {self.model} than when this client first asked: "
                "make a new Client, and embed again what is to be compared"
            )
        every = (self.layers,) if options["layers"] == "all" else ()
        total = int(lengths.sum())
        shape = (count, *every, self.width) if options["pooling"] else (*every, total, self.width)
        if lengths.shape != (count,) or vectors.shape != shape or vectors.dtype.name != options["dtype"]:
            raise self._connection.no_server(f"vectors {list(shape)} were expected, found {list(vectors.shape)}")
        if options["pooling"]:
            return [row.copy() for row in vectors]
        ends = np.cumsum(lengths)
        return [vectors[..., end - length : end, :].copy() for end, length in zip(ends, lengths)]


def _unpacked(answer: bytes) -> tuple[Array, Array, dict[str, str]]:
    """Vectors, lengths, and what the answer says of itself, which safetensors itself reads from files only."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(answer)
        header = json.loads(answer[8 : 8 + int.from_bytes(answer[:8], "little")])
        return tensors["vectors"], tensors["lengths"], header.get("__metadata__", {})
    except (SafetensorError, KeyError) as error:
        raise ValueError(*error.args) from None


def _sendable(which_layers: WhichLayers, layers: int) -> str | int | list[float]:
    """The choice as JSON has it; refused in the words of elmokit.embed.pooling.layer_mix, which needs torch."""
    mixes = sys.modules.get("elmokit.model.scalar_mix")  # who has a ScalarMix has imported it
    if mixes is not None and isinstance(which_layers, mixes.ScalarMix):
        if which_layers.layer_norm is not None:
            raise UserError(
                f'a ScalarMix with layer_norm="{which_layers.layer_norm}" is more than weights: get all layers '
                "from the server, and mix them here"
            )
        if which_layers.num_layers != layers:
            raise UserError(f"expected {which_layers.num_layers} layers, found {layers}")
        weights = [0.0] * layers
        for number, weight in zip(
            which_layers.which_layers, (which_layers.gamma * which_layers.shares()).tolist()
        ):
            weights[number] = weight
        return weights
    if isinstance(which_layers, str):
        if which_layers not in ("all", "mean"):
            raise UserError(f'layers: expected "all", "mean", a number or weights, found {which_layers!r}')
        return which_layers
    if isinstance(which_layers, (int, np.integer)) and not isinstance(which_layers, bool):
        if not -layers <= which_layers < layers:
            raise UserError(f"layers: this model has layers 0 to {layers - 1}, found {which_layers}")
        return range(layers)[which_layers]
    try:
        given = np.asarray(which_layers, dtype=np.float32)
    except (TypeError, ValueError):
        given = np.empty(0, dtype=np.float32)
    if given.shape != (layers,) or not np.isfinite(given).all():
        raise UserError(f"layers: expected {layers} finite weights, one per layer, found {which_layers!r}")
    return [float(weight) for weight in given]


def _numbered_from(first: int, message: str) -> str:
    """The server counts a request's inputs, the caller all sentences."""
    return re.sub(r"^(?:input|sentence) (\d+)", lambda match: f"sentence {first + int(match[1])}", message)
