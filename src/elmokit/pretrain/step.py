"""One training step of the biLM, and all that must be saved to take it up again exactly.

Both directions are language models of their own that share the token encoder and the softmax: forward reads a
stream of sentences, backward a stream of the same sentences reversed. The state is carried from window to
window; gradients end at a window's beginning. All chance (dropout, negatives) comes from the seed and the
number of the step, so a run that is taken up again, or spread over more processes, draws the same.

Shapes: R rows of this rank, T steps of a window, P width of a direction, N distinct tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.checkpoint import Checkpoint
from elmokit.config import check_dropout
from elmokit.errors import UserError
from elmokit.model.bilm import BiLM, BiLMState
from elmokit.model.kernels.bfloat16 import Precision, possible, products_in
from elmokit.model.kernels.recurrent import Repeated
from elmokit.model.language_head import SoftmaxRows
from elmokit.model.sampling import LogUniformSampler
from elmokit.pretrain.optimizer import Optimizer, OptimizerConfig, row_gradients
from elmokit.pretrain.ranks import Ranks
from elmokit.pretrain.windows import Prefetch, Window, WindowStream
from elmokit.text.batches import pad
from elmokit.text.characters import TokenMapper
from elmokit.text.vocabulary import BEGIN, END, Vocabulary

if TYPE_CHECKING:
    from elmokit.pretrain.corpus import PreparedCorpus

# Kinds of chance: each has random numbers of its own.
NEGATIVES, DROPOUT, BEGINS = 1, 2, 3


@dataclass(frozen=True)
class TrainConfig:
    rows: int = 64  # of a batch, those of all processes together
    steps: int = 20  # of a window: how far back gradients flow
    dropout: float = 0.1
    state: Literal["carry", "reset", "either"] = "carry"  # reset: every sentence begins from nothing; either: half
    vocabulary: int = 100_000  # words that are predicted, at most
    min_count: int = 3  # a rarer word is <UNK> when it is to be predicted; as input its characters are read
    negatives: int = 8192
    full_softmax: int = 20_000  # up to so many words every one is computed, none sampled
    softmax_width: int = 0  # 0: as wide as a direction's output; another width: one more linear map before it
    precision: Precision = "float32"  # of what is multiplied; bfloat16 where the processor can, else float32 again
    loss_times_steps: bool = False  # bilm-tf: gradients, and so clipping and Adagrad's sums, are T times larger
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rows", "steps", "vocabulary", "min_count", "negatives"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: expected 1 or more, found {getattr(self, name)}")
        if self.softmax_width < 0:
            raise UserError(f"softmax_width: expected 0 or more, found {self.softmax_width}")
        check_dropout(dropout=self.dropout)


class StepResult(NamedTuple):
    forward: float  # mean negative log likelihood, in nats; of the sampled softmax where that is used
    backward: float
    tokens: int  # predictions of one direction, over all processes
    norm: float  # of the gradient, before clipping
    learning_rate: float

    @property
    def loss(self) -> float:
        return (self.forward + self.backward) / 2


class Trainer:
    def __init__(
        self,
        model: Checkpoint,
        corpus: PreparedCorpus,
        config: TrainConfig,
        optimizer: OptimizerConfig,
        ranks: Ranks | None = None,
    ) -> None:
        if model.head is None or model.vocabulary is None:
            raise UserError("a model without a softmax head and its vocabulary cannot be trained further")
        self.model, self.config = model, config
        self.bilm, self.head = model.bilm, model.head
        self.ranks = ranks or Ranks()
        self.first_row, last_row = self.ranks.rows(config.rows)
        self.spelling = spell_types(corpus, model.mapper)
        self.words = number_types(corpus, model.vocabulary)
        self.sampler = (
            LogUniformSampler(len(model.vocabulary))
            if len(model.vocabulary) > max(config.full_softmax, config.negatives)
            else None
        )
        trained = [p for p in self.bilm.parameters() if p.requires_grad]
        self.optimizer = Optimizer(
            trained,
            self.head,
            optimizer,
            sampled=self.sampler is not None,
            matrices=matrices_of(self.bilm),
        )
        self.windows = Prefetch(
            WindowStream(
                corpus,
                rows=config.rows,
                steps=config.steps,
                seed=config.seed,
                first_row=self.first_row,
                last_row=last_row,
            )
        )
        self.state = self.bilm.zero_state(last_row - self.first_row)
        self.step = 0
        self.tokens = 0

    def train_step(self, progress: float) -> StepResult:
        """One window of every row. `progress`, 0 to 1, is how much of the budget is used: it sets the rate."""
        with products_in(self.precision):
            return self._train_step(progress)

    @property
    def precision(self) -> Precision:
        """That of the settings, where this machine can: a run may go on at another."""
        return possible(self.config.precision)

    def _train_step(self, progress: float) -> StepResult:
        window = next(self.windows)
        targets = [self._targets(window.forward_targets), self._targets(window.backward_targets)]
        hidden, self.state = self.hidden(window)  # [R, T, P] of each direction
        (count,) = self.ranks.sum(float(window.tokens))
        losses, rows = self._losses(hidden, targets)
        scale = (self.config.steps if self.config.loss_times_steps else 1) / (2 * max(count, 1))
        ((losses[0] + losses[1]) * scale).backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for p in self.optimizer.dense if p.grad is not None]
        self.ranks.sum_(gradients + ([] if rows is None else list(row_gradients(rows).values())))
        norm, rate = self.optimizer.step(rows, progress)
        forward, backward = self.ranks.sum(*(float(loss.detach()) for loss in losses))
        self.step += 1
        self.tokens += int(count)
        return StepResult(forward / max(count, 1), backward / max(count, 1), int(count), norm, rate)

    def hidden(self, window: Window) -> tuple[list[Tensor], BiLMState]:
        """The top layer of each direction, and the state to carry on."""
        inputs = np.stack([window.forward_inputs, window.backward_inputs])  # [2, R, T]
        # With dropout, equal tokens differ: then each is multiplied by itself.
        once = self.precision == "bfloat16" and self.config.dropout == 0
        xs = self.encode_once(inputs) if once else self.encode(inputs).unbind(0)
        mask = torch.ones(inputs.shape[1:], dtype=torch.bool)
        begins = self._begins(window)
        layers, after = self.bilm.run(xs, mask, self.state, begins=begins, dropout=self._dropout)
        above = self.bilm.config.lstm.layers
        tops = [self._dropout(outputs[-1], direction, above) for direction, outputs in enumerate(layers)]
        return tops, BiLMState(*(part.detach() for part in after))

    def _begins(self, window: Window) -> Tensor | None:  # [R, T]
        """Where the state is forgotten; by chance, draws for the rows of all ranks and takes its own."""
        if self.config.state == "carry":
            return None
        begins = torch.from_numpy(window.begins)
        if self.config.state == "reset":
            return begins
        forgets = self._random(BEGINS).random((self.config.rows, begins.shape[1])) < 0.5
        return begins & torch.from_numpy(forgets)[self.first_row : self.first_row + len(begins)]

    def encode(self, inputs: NDArray[np.int64]) -> Tensor:
        """Stream ids [2, R, T] -> x [2, R, T, P]; each distinct token is computed once."""
        distinct, where = np.unique(inputs, return_inverse=True)
        x = self.bilm.encoder.encode(torch.from_numpy(self.spelling[distinct].astype(np.int64)))  # [N, P]
        return x[torch.from_numpy(where.reshape(inputs.shape))]

    def encode_once(self, inputs: NDArray[np.int64]) -> list[Repeated]:
        """As `encode`, but each direction's distinct tokens stay by themselves."""
        distinct, where = np.unique(inputs, return_inverse=True)
        x = self.bilm.encoder.encode(torch.from_numpy(self.spelling[distinct].astype(np.int64)))  # [N, P]
        xs = []
        for one in where.reshape(inputs.shape):  # [R, T]
            own, places = np.unique(one, return_inverse=True)
            xs.append(Repeated(x[torch.from_numpy(own)], torch.from_numpy(places.reshape(one.shape))))
        return xs

    def _losses(self, hidden: list[Tensor], targets: list[Tensor]) -> tuple[list[Tensor], SoftmaxRows | None]:
        """The sums of negative log likelihoods of both directions."""
        flat = [(h.flatten(0, 1), t.flatten()) for h, t in zip(hidden, targets)]
        if self.sampler is None:
            return [self.head.full_loss(h, t) for h, t in flat], None
        # The same negatives on all ranks: then only the rows that are touched need to travel.
        negatives = self.sampler.sample(self.config.negatives, self._random(NEGATIVES))
        wanted = self.ranks.gather(torch.cat([t for _, t in flat]))
        rows = self.head.rows(wanted, negatives.ids)
        return [rows.sampled_loss(h, t, negatives, self.sampler) for h, t in flat], rows

    def _targets(self, types: NDArray[np.int64]) -> Tensor:
        """Stream ids -> vocabulary ids; -1, nothing to predict, stays."""
        return torch.from_numpy(np.where(types >= 0, self.words[types], -1))

    def _random(self, kind: int, site: int = 0) -> np.random.Generator:
        return np.random.default_rng([self.config.seed, self.step, kind, site])

    def _dropout(self, x: Tensor, direction: int, layer: int) -> Tensor:  # [R, T, P]
        """Draws for the rows of all ranks and takes its own: how many ranks there are changes nothing."""
        if self.config.dropout == 0:
            return x
        keep = 1 - self.config.dropout
        site = 1 + layer + direction * (1 + self.bilm.config.lstm.layers)
        generator = torch.Generator().manual_seed(int(self._random(DROPOUT, site).integers(2**63)))
        kept = torch.rand((self.config.rows, *x.shape[1:]), generator=generator) < keep
        return x * kept[self.first_row : self.first_row + len(x)] / keep

    def state_dict(self) -> dict[str, Tensor]:
        """Everything, as flat tensors; under several ranks, with the rows of all of them."""
        cursor = {name: torch.from_numpy(array) for name, array in self.windows.state().items()}
        return {
            **{f"bilm.{name}": tensor for name, tensor in self.bilm.state_dict().items()},
            **{f"head.{name}": tensor for name, tensor in self.head.state_dict().items()},
            **{f"optimizer.{name}": tensor for name, tensor in self.optimizer.state_dict().items()},
            **{f"cursor.{name}": self.ranks.gather(tensor) for name, tensor in cursor.items()},
            "state.hidden": self.ranks.gather(self.state.hidden, dim=2),
            "state.cell": self.ranks.gather(self.state.cell, dim=2),
            "progress": torch.tensor([self.step, self.tokens]),
        }

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        def part(prefix: str) -> dict[str, Tensor]:
            return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}

        mine = slice(self.first_row, self.first_row + self.state.hidden.shape[2])
        self.bilm.load_state_dict(part("bilm."))
        self.head.load_state_dict(part("head."))
        self.optimizer.load_state_dict(part("optimizer."))
        self.windows.restore({name: tensor[mine].numpy() for name, tensor in part("cursor.").items()})
        self.state = BiLMState(tensors["state.hidden"][:, :, mine], tensors["state.cell"][:, :, mine])
        self.step, self.tokens = (int(value) for value in tensors["progress"])

    def close(self) -> None:
        self.windows.close()


def spell_types(corpus: PreparedCorpus, mapper: TokenMapper) -> NDArray[np.int32]:
    """The ids of every token of the corpus [2 + types, W]: <S>, </S> and the types, numbered as the stream is."""
    types = pad(mapper, [corpus.types], boundaries=False)[0]
    return np.concatenate([[mapper.begin], [mapper.end], types]).astype(np.int32)


def number_types(corpus: PreparedCorpus, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """The vocabulary's number of every token of the corpus [2 + types]."""
    return np.array([vocabulary.id(word) for word in (BEGIN, END, *corpus.types)], dtype=np.int64)


def matrices_of(bilm: BiLM) -> list[nn.Parameter]:
    """What multiplies, and is for Muon: all matrices that are trained but tables, which are looked up."""
    return [
        parameter
        for module in bilm.modules()
        if not isinstance(module, nn.Embedding)
        for parameter in module.parameters(recurse=False)
        if parameter.dim() == 2 and parameter.requires_grad
    ]
