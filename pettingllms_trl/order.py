"""The order of the rows, a function of seed and epoch alone, so that a resumed run meets those that were to come."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from trl.trainer.utils import RepeatSampler


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


def shuffled(number: int, seed: str) -> list[int]:
    """The numbers below, in an order that the seed decides: the same on each process."""
    order = list(range(number))
    random.Random(seed).shuffle(order)
    return order
