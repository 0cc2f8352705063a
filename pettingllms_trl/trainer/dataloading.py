"""The order of the training rows: a function of seed and epoch alone, so that a resumed run continues it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from datasets import IterableDataset
from trl.trainer.utils import RepeatSampler, repeat_iterable_dataset

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.engines.factory import kind_of
from pettingllms_trl.imitation.rounds import Rounds
from pettingllms_trl.records import DataRow


T = TypeVar("T")


def each_generation_once(batches: Iterator[T], begins: Callable[[int], bool]) -> Iterator[T]:
    """Share one list of a generation's rows among its micro-steps; `begins(n)`: one begins with batch n, from 0.

    The data loader makes a list for each, and transformers keeps all batches of an optimizer step: memory would grow
    with the product of rows and micro-steps.
    """
    rows: T
    for number, batch in enumerate(batches):
        if number == 0 or begins(number):
            rows = batch
        yield rows


def places(sampler: EpochSampler, start: int, number: int) -> list[int]:
    """Indices of `number` rows at the places `start`, `start + 1`, ... in the sequence of all epochs.

    These are the data loader's rows if no row is repeated (`repeat_count=1`), so that a run that needs more rows than
    its data loader gives uses the data in the same order, and needs only one number to store its place.
    """
    found: list[int] = []
    while len(found) < number:
        epoch, first = divmod(start + len(found), len(sampler))
        order = _order(sampler.num_samples, sampler.batch_size, sampler.shuffle, sampler.seed, epoch)
        found += order[first : first + number - len(found)]
    return found


@lru_cache(maxsize=1)  # each generation asks for a few rows of the same epoch
def _order(num_rows: int, batch_size: int, shuffle: bool, seed: int, epoch: int) -> array[int]:
    sampler = EpochSampler(range(num_rows), 1, batch_size, shuffle=shuffle, seed=seed)
    sampler.epoch = epoch
    return array("q", sampler)


class EpochSampler(RepeatSampler):
    """TRL's sampler with an order that depends on the epoch's number.

    TRL's sampler draws a permutation at each iteration, from a generator that is not saved. A run resumed in its third
    epoch would continue in the order of the first: some rows would come twice in that epoch, and others not at all.
    """

    epoch = 0  # of the next iteration; the trainer sets it

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            self.generator.manual_seed(self.seed)
            for _ in range(self.epoch):
                torch.randperm(self.num_samples, generator=self.generator)
        return super().__iter__()


class GenerationPlan:
    """How the micro-steps of a training are divided into generations, and in which order they use the rows.

    Attributes:
        rows: That a generation plays, without further ones for what filters drop.
        micro_steps: That are trained on a generation's sequences.
        num_repeats: How often a generation's rows are yielded: accelerate distributes batches; each process needs all.
        step_began: The micro-step that the optimizer step in progress began with.
    """

    def __init__(self, args: MultiAgentGRPOConfig, *, num_processes: int) -> None:
        self._args = args
        self.rows = args.generation_batch_size // args.num_generations
        self.micro_steps = args.steps_per_generation * args.num_iterations
        self.num_repeats = self.micro_steps * num_processes
        self.step_began = 0

    def begins(self, micro_step: int) -> bool:
        return micro_step % self.micro_steps == 0

    def place(self, micro_step: int) -> int:
        return micro_step % self.micro_steps

    def number(self, step: int) -> int:
        """The number, from 0, of the generation that an optimizer step trains on."""
        return int(step * self._args.gradient_accumulation_steps // self.micro_steps)

    def is_due(self, step: int, every: int) -> bool:
        """Whether the generation that begins with a step is the first in each `every` of them."""
        return step % every < max(self.micro_steps // self._args.gradient_accumulation_steps, 1)

    def name(self, step: int, micro_step: int) -> str:
        """Name of a generation: the optimizer step in which it begins; the second one of a step is "7.1"."""
        further = (micro_step - self.step_began) // self.micro_steps
        return f"{step}.{further}" if further else str(step)

    def sampler(self, rows: Any, *, repeat_count: int = 1) -> EpochSampler:
        """The order of the rows of a data set, each `repeat_count` times."""
        return EpochSampler(
            data_source=rows,
            mini_repeat_count=1,
            batch_size=self.rows,
            repeat_count=repeat_count,
            shuffle=self._args.shuffle_dataset,
            seed=self._args.seed,
        )

    def repeated(self, rows: IterableDataset) -> IterableDataset:
        """The rows of a stream in the same order, as often as a sampler would yield them."""
        shuffled = rows.shuffle(seed=self._args.seed) if self._args.shuffle_dataset else rows
        return repeat_iterable_dataset(
            shuffled, mini_repeat_count=1, batch_size=self.rows, repeat_count=self.num_repeats
        )


class RoundPlan(GenerationPlan):
    """The plan of expert iteration: a generation of TRL's loop is a pass over what is imitated, as `rounds` count.

    It is asked of the next micro-step alone. A schedule's generation is a round.
    """

    def __init__(self, args: MultiAgentGRPOConfig, *, num_processes: int, rounds: Rounds) -> None:
        super().__init__(args, num_processes=num_processes)
        self._rounds = rounds

    def begins(self, micro_step: int) -> bool:
        return self._rounds.steps_left == 0

    def place(self, micro_step: int) -> int:
        if self._rounds.steps_left == 0:
            return 0
        of_step = self._args.gradient_accumulation_steps
        return (self._rounds.num_steps - self._rounds.steps_left) * of_step + micro_step % of_step

    def number(self, step: int) -> int:
        return max(self._rounds.number - 1, 0)

    def is_due(self, step: int, every: int) -> bool:
        return self._rounds.generation == 0

    def name(self, step: int, micro_step: int) -> str:
        return f"round {self._rounds.number}.{self._rounds.generation}"


NUMBER = "__number__"
"""Field of a stream's rows in evaluation by several processes."""


def numbered(row: DataRow, number: int) -> DataRow:
    """A row of a stream that says which it is."""
    return {**row, NUMBER: number}


class EvaluatedRows:
    """Gathers the rows of an evaluation from all processes, each once."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._numbers: set[int | None] = set()

    def begin(self) -> None:
        self._numbers.clear()

    def gather(self, rows: Sequence[DataRow]) -> list[DataRow]:
        """The rows of all processes. Of a set with a length accelerate leaves out those that it has repeated until
        each process has as many; of a stream it does not know them, and they are left out by their numbers."""
        gathered: list[DataRow] = self._accelerator.gather_for_metrics(rows, use_gather_object=True)
        new: list[DataRow] = []
        for row in gathered:
            number = row.get(NUMBER)
            if number is None or number not in self._numbers:
                new.append({name: value for name, value in row.items() if name != NUMBER})
            self._numbers.add(number)
        return new


class RowsPlayed:
    """Counts the rows of the training data that were played since the start of its first epoch."""

    number = 0

    def next(self, number: int) -> int:
        """Count further rows. Returns the place of the first one."""
        start, self.number = self.number, self.number + number
        return start

    def state_dict(self) -> dict[str, int]:
        return {"number": self.number}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.number = state["number"]


def check_num_rows(dataset: Any, args: MultiAgentGRPOConfig) -> None:
    """Validate that a data set has enough rows for a generation; `None` and streams, whose length is unknown, are not
    checked.

    Raises:
        ValueError: It has fewer rows than one generation plays, and incomplete generations are dropped as in TRL.
    """
    if not hasattr(dataset, "__len__"):
        return
    needed = GenerationPlan(args, num_processes=args.world_size).rows
    if len(dataset) < needed:
        raise ValueError(
            f"the train_dataset has {len(dataset)} rows, but one generation plays {needed} (generation_batch_size "
            f"{args.generation_batch_size} / num_generations {args.num_generations}), so no step would be trained. "
            f"Give {needed} rows or more, or a smaller generation_batch_size, which is per_device_train_batch_size "
            f"{args.per_device_train_batch_size} x steps_per_generation {args.steps_per_generation} x "
            f"{args.world_size} processes."
        )


def rows_left_out(dataset: Any, args: MultiAgentGRPOConfig) -> str:
    """What to say of rows that an epoch does not reach, since a generation would not be full; empty: none."""
    if not hasattr(dataset, "__len__"):
        return ""
    plan = GenerationPlan(args, num_processes=args.world_size)
    generations, rest = divmod(len(dataset), plan.rows)
    if rest == 0 or (args.max_steps > 0 and plan.number(args.max_steps) <= generations):
        return ""
    which = "others each time" if args.shuffle_dataset else "always the last"
    return (
        f"Each epoch leaves {rest} of {len(dataset)} rows out, {which}, as in TRL: a generation plays {plan.rows}. "
        f"Give a multiple of {plan.rows} rows to play all."
    )


def shifting_evaluation(args: MultiAgentGRPOConfig) -> str:
    """What to say where an evaluation during training changes what is sampled after it; else empty."""
    if args.eval_strategy == "no" or kind_of(args).is_seeded:
        return ""
    return (
        "Evaluations draw from the random numbers that training samples with, as in TRL: evaluated at other steps, a "
        "run has other samples. Compare runs that are evaluated at the same steps, or set eval_strategy='no'."
    )


def several_rollouts(args: MultiAgentGRPOConfig) -> str:
    """What to say where an optimizer step trains on the sequences of several rollouts; else empty.

    `gradient_accumulation_steps` of a configuration for one process makes it so with more processes.
    """
    passes, steps = args.gradient_accumulation_steps, GenerationPlan(args, num_processes=args.world_size).micro_steps
    if passes <= steps:
        return ""
    rows = args.per_device_train_batch_size * args.world_size
    kept, rest = divmod(passes, args.world_size)
    same = f", or {kept}, which keeps one process's mini-batch of {args.per_device_train_batch_size * passes}"
    return (
        f"an optimizer step waits for {passes / steps:.3g} rollouts: its mini-batch of {passes * rows} sequences "
        f"(gradient_accumulation_steps {passes} x per_device_train_batch_size {args.per_device_train_batch_size} x "
        f"{args.world_size} processes) is larger than generation_batch_size {args.generation_batch_size}"
        + (
            f", and max_steps {args.max_steps} takes {args.max_steps * passes / steps:,.0f} rollouts"
            * (args.max_steps > 0)
        )
        + f". Set gradient_accumulation_steps={steps} for one optimizer step a rollout"
        + same * (rest == 0 and 0 < kept < steps)
        + "."
    )
