"""What a walk through a model's modules finds, kept for an optimizer step: one has many passes, a model many modules.

A walk takes as long as a small model's own arithmetic, and a pass needs several: which layers carry adapters, whose
attention is to be told of a layout, whether all modules are in training mode. What they find is forgotten after every
step, so that a callback may put other modules in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, TypeVar

from torch import nn


Found = TypeVar("Found")
TRAINING = attrgetter("training")


class Walks:
    """Walks through models, each once until it is forgotten."""

    def __init__(self) -> None:
        self._found: dict[tuple[nn.Module, Callable[..., Any]], Any] = {}

    def of(self, model: nn.Module, find: Callable[[nn.Module], Found]) -> Found:
        """What `find` finds in a model, now or before."""
        key = (model, find)
        if key not in self._found:
            self._found[key] = find(model)
        found: Found = self._found[key]
        return found

    def forget(self) -> None:
        """All that was found: from here on models may have changed."""
        self._found.clear()


def modules_of(model: nn.Module) -> tuple[nn.Module, ...]:
    """The model and all that is in it."""
    return tuple(model.modules())


@contextmanager
def training(model: nn.Module, modules: tuple[nn.Module, ...]) -> Iterator[None]:
    """A model in training mode, whose `train()`, where it has nothing to do, does nothing.

    transformers calls it before every pass, and it goes through all modules.

    Args:
        model: Any.
        modules: As `modules_of` gave them.
    """
    plain = model.train

    def train(mode: bool = True) -> nn.Module:
        return model if mode and all(map(TRAINING, modules)) else plain(mode)

    train()
    before = vars(model).get("train")
    model.train = train  # type: ignore[method-assign]
    try:
        yield
    finally:
        if before is None:
            del model.train
        else:
            model.train = before  # type: ignore[method-assign]
