"""The order of the rows, a function of seed and epoch alone, so that a resumed run meets those that were to come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from trl.trainer.utils import RepeatSampler

from pettingllms_trl.config import MultiAgentGRPOConfig


T = TypeVar("T")


def each_generation_once(batches: Iterator[T], begins: Callable[[int], bool]) -> Iterator[T]:
    """A generation's rows as one list for all of its micro-steps.

    The data loader makes them once for each, and transformers holds the batches of an optimizer step all at once:
    memory would grow with the product of rows and micro-steps, which both grow with a batch.

    Args:
        batches: The data loader's.
        begins: Whether a generation begins with the batch of this number, from 0.
    """
    rows: T
    for number, batch in enumerate(batches):
        if number == 0 or begins(number):
            rows = batch
        yield rows


def places(sampler: EpochSampler, start: int, number: int) -> list[int]:
    """The rows of the data set that come at the places `start`, `start + 1`, ... of its epochs, one after the other.

    The same rows as the data loader's where no row is repeated (`repeat_count=1`), so that a run which needs more rows
    than its data loader gives goes through the data in the same order, and knows its place by one number.

    Args:
        sampler: Of the data set, with at least one row in an epoch.
        start: How many rows were played before.
        number: How many are wanted.
    """
    found: list[int] = []
    while len(found) < number:
        epoch, first = divmod(start + len(found), len(sampler))
        sampler.set_epoch(epoch)
        found += list(sampler)[first : first + number - len(found)]
    return found


class EpochSampler(RepeatSampler):
    """TRL's sampler, in TRL's order, whichever epoch it begins with.

    TRL's draws a permutation whenever it is iterated over, from a generator that nobody saves. A run resumed in its
    third epoch would go on in the order of the first: meet some rows twice in that epoch, and others not at all.
    """

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iteration is; accelerate's data loader says so."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            self.generator.manual_seed(self.seed)
            for _ in range(self.epoch):
                torch.randperm(self.num_samples, generator=self.generator)
        return super().__iter__()


class RowsPlayed:
    """How many rows of the training data were played since its first epoch began."""

    number = 0

    def next(self, number: int) -> int:
        """Count further rows. Returns the place of the first of them."""
        start, self.number = self.number, self.number + number
        return start

    def state_dict(self) -> dict[str, int]:
        """The number."""
        return {"number": self.number}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from there."""
        self.number = state["number"]


def check_num_rows(dataset: Any, args: MultiAgentGRPOConfig) -> None:
    """
    Args:
        dataset: That is trained on; `None` or a stream, whose length nobody knows, is not looked at.
        args: With `generation_batch_size`, which counts the sequences of all processes.

    Raises:
        ValueError: It has fewer rows than one generation plays. Incomplete generations are left out, as in TRL, so
            that not a single step would be trained.
    """
    if not hasattr(dataset, "__len__"):
        return
    assert args.generation_batch_size is not None
    assert args.steps_per_generation is not None
    needed = args.generation_batch_size // args.num_generations
    if len(dataset) < needed:
        raise ValueError(
            f"the train_dataset has {len(dataset)} rows, but one generation plays {needed} (generation_batch_size "
            f"{args.generation_batch_size} / num_generations {args.num_generations}), so no step would be trained. "
            f"Give {needed} rows or more, or a smaller generation_batch_size, which is per_device_train_batch_size "
            f"{args.per_device_train_batch_size} x steps_per_generation {args.steps_per_generation} x "
            f"{args.world_size} processes."
        )
