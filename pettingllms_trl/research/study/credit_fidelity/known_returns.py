"""Returns of continuations on disk, by the state that they were played from.

A measurement of credit fidelity that is started again goes on after the states that it has finished, and methods that
take the same decisions with the same policies, such as `grpo` and `loo`, play each state's continuations once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pettingllms_envs.research.studies.results import digest_of


CREDIT_FIELDS = (
    "credit",
    "sampling",
    "num_generations",
    "num_continuations",
    "learning_rate",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
)
"""Fields of a training configuration that neither the policies at its start nor how they play on depend on."""


class Returns(NamedTuple):
    """The return of each continuation that was played from a state, and the tokens generated for all of them."""

    values: tuple[float, ...]
    tokens: int


class KnownReturns:
    """A file, perhaps new, with a line for each state, for several processes; lines that a kill cut are left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Returns] = {}
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            try:
                state, values, tokens = json.loads(line)
            except ValueError:
                continue
            self._known[state] = Returns(tuple(values), tokens)

    def get(self, state: str) -> Returns | None:
        """Those of a state, `None` if they are not known."""
        return self._known.get(state)

    def add(self, states: Sequence[str], returns: Sequence[Returns]) -> None:
        """Keep those of states."""
        self._known |= zip(states, returns, strict=True)
        lines = [
            json.dumps([state, list(each.values), each.tokens]) for state, each in zip(states, returns, strict=True)
        ]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "a", encoding="utf-8") as file:
            file.write("".join(f"\n{line}\n" for line in lines))  # apart from a line that was cut before


def file_name(config: Mapping[str, Any]) -> str:
    """The same for runs that measure fidelity whose states have the same returns."""
    train = {name: value for name, value in config["train"].items() if name not in CREDIT_FIELDS}
    return f"returns-{digest_of({**config, 'train': train})}.jsonl"
