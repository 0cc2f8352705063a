"""The order of the training rows: a function of seed and epoch alone, so that a resumed run continues it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from trl.trainer.utils import RepeatSampler

from pettingllms_trl.config import MultiAgentGRPOConfig


T = TypeVar("T")


def each_generation_once(batches: Iterator[T], begins: Callable[[int], bool]) -> Iterator[T]:
    """Share one list of a generation's rows among all of its micro-steps.

    The data loader makes a list for each, and transformers keeps all batches of an optimizer step: memory would grow
    with the product of rows and micro-steps.

    Args:
        batches: The data loader's batches.
        begins: Returns whether a generation begins with the n-th batch, counted from 0.
    """
    rows: T
    for number, batch in enumerate(batches):
        if number == 0 or begins(number):
            rows = batch
        yield rows


def places(sampler: EpochSampler, start: int, number: int) -> list[int]:
    """Indices of the rows at the places `start`, `start + 1`, ... in the sequence of all epochs.

    These are the data loader's rows if no row is repeated (`repeat_count=1`), so that a run that needs more rows than
    its data loader gives uses the data in the same order, and needs only one number to store its place.

    Args:
        sampler: Sampler of the data set, with at least one row per epoch.
        start: Number of rows that were played before.
        number: Number of rows to return.
    """
    found: list[int] = []
    while len(found) < number:
        epoch, first = divmod(start + len(found), len(sampler))
        sampler.set_epoch(epoch)
        found += list(sampler)[first : first + number - len(found)]
    return found


class EpochSampler(RepeatSampler):
    """TRL's sampler with an order that depends on the epoch's number.

    TRL's sampler draws a permutation at each iteration, from a generator that is not saved. A run resumed in its third
    epoch would continue in the order of the first: some rows would come twice in that epoch, and others not at all.
    """

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; called by accelerate's data loader."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            self.generator.manual_seed(self.seed)
            for _ in range(self.epoch):
                torch.randperm(self.num_samples, generator=self.generator)
        return super().__iter__()


class RowsPlayed:
    """Counts the rows of the training data that were played since the start of its first epoch."""

    number = 0

    def next(self, number: int) -> int:
        """Count further rows. Returns the place of the first one."""
        start, self.number = self.number, self.number + number
        return start

    def state_dict(self) -> dict[str, int]:
        """The number."""
        return {"number": self.number}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from there."""
        self.number = state["number"]


def check_num_rows(dataset: Any, args: MultiAgentGRPOConfig) -> None:
    """Validate that a data set has enough rows for a generation.

    Args:
        dataset: The training data; `None` and streams, whose length is unknown, are not checked.
        args: The trainer's; `generation_batch_size` counts the sequences of all processes.

    Raises:
        ValueError: It has fewer rows than one generation plays. As in TRL, incomplete generations are dropped, so no
            step would be trained.
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
