"""`rollout.play` with the options given by name, as tests vary them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pettingllms_trl.rollout import Rollout, RolloutOptions
from pettingllms_trl.rollout import play as play_with


OPTIONS = {field.name for field in fields(RolloutOptions)}


def play(rows: Sequence[Any], *, engine: Any, **settings: Any) -> Rollout:
    """Play rows; `settings` are the fields of `RolloutOptions` and the other arguments of `rollout.play`."""
    options = RolloutOptions(**{name: settings.pop(name) for name in OPTIONS & settings.keys()})
    return play_with(rows, engine, options, **settings)
