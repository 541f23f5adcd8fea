"""What requests and answers look like: OpenAI's and text-embeddings-inference's shapes, and ours."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

TEXT = "He sat on the bank of the river."
# As `read_marked` reads: a bracket after a backslash is a plain one; in the brackets, one line with a word in it.
MARKED = r"^([^\[\]\\]|\\+[^\\])*\[([^\[\]\\\n]|\\+[^\\\n])*\w([^\[\]\\\n]|\\+[^\\\n])*\]([^\[\]\\]|\\+[^\\])*\\*$"
GAPPED = r"^([^_]* )?___( [^_]*)?$"
WORD = r"^[^\s\x1c-\x1f\x85]+$"
PATTERNS = {  # what is expected, in words
    MARKED: r"expected one word in [brackets]; \[ and \] are plain ones",
    GAPPED: "expected one gap, ___ between spaces, and no other _",
    WORD: "expected tokens without white space in them",
}

ModelName = Annotated[str | None, Field(description="A name that GET /v1/models lists; by default the first.")]
Truncate = Annotated[
    bool, Field(description="Cut inputs that are too long; how many were is in the header X-Truncated.")
]


def _integral(value: Any) -> Any:
    """2.0 is an integer in JSON Schema."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Integer = Annotated[int, BeforeValidator(_integral)]
Top = Annotated[int, Field(ge=1, le=1000), BeforeValidator(_integral)]
Weight = Annotated[float, Field(ge=-1e6, le=1e6)]
Layers = Annotated[
    Literal["all", "mean"] | Integer | list[Weight],
    Field(description="all; mean; a layer's number, 0 the token layer's; or weights, one per layer, as given."),
]
OneLayer = Annotated[
    Literal["mean"] | Integer | list[Weight],
    Field(description="mean of all layers; a layer's number, 0 the token layer's; or weights, one per layer."),
]
Pooling = Literal["mean", "max"]
Marked = Annotated[str, Field(pattern=MARKED)]
Sentence = str | list[str]
Token = Annotated[str, Field(pattern=WORD)]


class Request(BaseModel):
    """No type is guessed, and what is not known is refused."""

    model_config = ConfigDict(strict=True, extra="forbid")


class TheirRequest(BaseModel):
    """Of a client that others wrote: it may send more than is known here."""

    model_config = ConfigDict(strict=True, extra="ignore")


class EmbeddingsRequest(TheirRequest):
    """As OpenAI's. An input's vector is `Elmo.encode(input, normalize=True)`: the mean over its tokens of the mean
    of all layers, of length 1; `layers`, `pooling` and `normalize` choose otherwise."""

    model_config = ConfigDict(
        strict=True,
        extra="ignore",
        json_schema_extra={"examples": [{"input": [TEXT, "She works at a bank."]}, {"input": TEXT, "layers": 2}]},
    )
    input: str | list[str]
    model: ModelName = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[None, Field(description="Refused: an ELMo's vectors have one size.")] = None
    user: Annotated[str | None, Field(description="Not used, and not logged.")] = None
    layers: OneLayer = "mean"
    pooling: Pooling = "mean"
    normalize: bool = True
    truncate: Truncate = False

    @field_validator("dimensions", mode="before")
    @classmethod
    def _no_dimensions(cls, value: Any) -> Any:
        if value is not None:
            raise ValueError(
                "this model's vectors have one size, and a part of one means nothing: leave dimensions out"
            )
        return value

    @field_validator("input", mode="before")
    @classmethod
    def _no_token_ids(cls, value: Any) -> Any:
        items = value if isinstance(value, list) else []
        if any(isinstance(item, int) or (isinstance(item, list) and item) for item in items):
            raise ValueError(
                "expected text, found token ids or lists: ELMo reads words by their letters, so send the text "
                "itself (LangChain: check_embedding_ctx_length=False)"
            )
        return value


class TeiRequest(TheirRequest):
    inputs: str | list[str]
    truncate: Truncate = False
    truncation_direction: Literal["Right", "right"] = "Right"
    prompt_name: None = None
    dimensions: None = None


class EmbedRequest(TeiRequest):
    """As text-embeddings-inference's: `Elmo.encode(inputs, normalize=True)`, by the first model."""

    model_config = ConfigDict(
        strict=True, extra="ignore", json_schema_extra={"examples": [{"inputs": "What is Deep Learning?"}]}
    )
    normalize: bool = True


class EmbedAllRequest(TeiRequest):
    """As text-embeddings-inference's: a vector per token, `Elmo.embed(inputs, layers="mean")`."""

    model_config = ConfigDict(
        strict=True, extra="ignore", json_schema_extra={"examples": [{"inputs": "What is Deep Learning?"}]}
    )


class TokensRequest(Request):
    """As `Elmo.embed`: texts, or lists of tokens that are taken as they are."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"inputs": [TEXT, ["밥", "을", "먹었다", "."]], "layers": 2, "dtype": "float16"},
                {"inputs": [TEXT], "layers": [0.2, 0.3, 0.5], "pooling": "mean"},
                {"inputs": [TEXT], "format": "safetensors"},
            ]
        }
    )
    inputs: list[Sentence]
    model: ModelName = None
    layers: Layers = "all"
    pooling: Pooling | None = None
    dtype: Literal["float32", "float16"] = "float32"
    boundaries: Annotated[bool, Field(description="The vectors of <S> and </S>, too.")] = False
    truncate: Truncate = False
    format: Annotated[
        Literal["json", "safetensors"],
        Field(description="safetensors: `vectors`, all sentences' one after the other, and `lengths`."),
    ] = "json"


class SimilarRequest(Request):
    """One word in several contexts: as `elmo similar`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"sentences": ["He sat on the [bank] of the river .", "She works at a [bank] ."]}]
        }
    )
    sentences: Annotated[list[Marked], Field(min_length=2, max_length=100)]
    model: ModelName = None


class FillRequest(Request):
    """The words that fit in a gap: as `elmo fill`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"sentence": "He went to the ___ .", "top": 5}]})
    sentence: Annotated[str, Field(pattern=GAPPED, description="With one gap, ___ between spaces.")]
    model: ModelName = None
    top: Top = 10
    punctuation: bool = False


class ScoreRequest(Request):
    """The log probability of every token: as `elmo score`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": [TEXT]}]})
    inputs: list[Sentence]
    model: ModelName = None


class NeighboursRequest(Request):
    """The nearest contexts of a word in an index: as `elmo neighbours --index`."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"sentence": "He sat on the [bank] of the river .", "top": 3}]}
    )
    sentence: Marked
    model: ModelName = None
    layers: Annotated[
        Annotated[list[Integer], Field(min_length=1, max_length=100)] | None,
        Field(description="By default all that the index has."),
    ] = None
    top: Top = 5


class TaskRequest(Request):
    """Predictions of a trained task: as `elmo task predict --json`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": ["Anna lives in Seoul ."]}]})
    inputs: list[str | list[Token]]


class Usage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class Embedding(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsAnswer(BaseModel):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage
    truncated: int


class Tokens(BaseModel):
    tokens: list[str]
    vectors: Annotated[
        list[Any], Field(description="[layers, T, D] for all layers, else [T, D]; without T where pooled.")
    ]


class TokensAnswer(BaseModel):
    model: str
    sentences: list[Tokens]
    usage: Usage
    truncated: int


class Pair(BaseModel):
    first: str
    second: str
    cosine: Annotated[list[float], Field(description="By layer.")]


class SimilarAnswer(BaseModel):
    model: str
    pairs: list[Pair]


class Filling(BaseModel):
    word: str
    probability: float
    forward: Annotated[float, Field(description="log p by the left context alone.")]
    backward: float


class FillAnswer(BaseModel):
    model: str
    candidates: list[Filling]


class ScoredToken(BaseModel):
    token: str
    forward: float | None
    backward: float | None
    unknown: bool


class ScoredSentence(BaseModel):
    tokens: list[ScoredToken]
    forward: float
    backward: float


class ScoreAnswer(BaseModel):
    model: str
    sentences: list[ScoredSentence]


class Context(BaseModel):
    cosine: float
    word: str
    place: int
    sentence: str
    tokens: list[str]


class LayerContexts(BaseModel):
    layer: int
    contexts: list[Context]


class NeighboursAnswer(BaseModel):
    model: str
    query: list[str]
    word: str
    place: int
    static: None
    layers: list[LayerContexts]
    compared: int


class TaskAnswer(BaseModel):
    task: str
    predictions: list[Any]


class ModelFacts(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    digest: Annotated[str, Field(description="Of the function from tokens to vectors.")]
    layers: int
    width: int
    tokenizer: dict[str, str]
    weights: str
    state: str
    batch_tokens: int
    predicts: Annotated[bool, Field(description="Whether it has a softmax head: /v1/fill, /v1/score.")]
    index: Annotated[bool, Field(description="Whether there is an index of it: /v1/neighbours.")]


class ModelsAnswer(BaseModel):
    object: Literal["list"]
    data: list[ModelFacts]


class TaskFacts(BaseModel):
    name: str
    task: str


class Info(BaseModel):
    """The members that text-embeddings-inference has, and the tasks."""

    model_id: str
    model_sha: str
    model_dtype: str
    model_type: dict[str, dict[str, str]]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_client_batch_size: int
    auto_truncate: bool
    version: str
    tasks: list[TaskFacts]


class Status(BaseModel):
    status: str


class ErrorFacts(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    """As OpenAI's."""

    error: ErrorFacts


class TeiError(BaseModel):
    """As text-embeddings-inference's."""

    error: str
    error_type: str
