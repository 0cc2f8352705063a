"""The team of `hanabi_partners.py` and the settings of its training: Hanabi's smallest deck, two players."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pettingllms_envs.environments.hanabi.rules import Hanabi, HanabiState
from pettingllms_envs.teams.cooperative import CooperativeTeam, TableState


Table = TableState[HanabiState]
SETTINGS: Mapping[str, Any] = {"players": 2, "level": 1, "wording": "symbols"}
TEAM = CooperativeTeam(Hanabi(**SETTINGS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of a training, which were chosen on the validation split.

    Args:
        steps: Optimizer steps of AT-GRPO.
        rate: Their learning rate.
        value: What AT-GRPO compares: the `"reward"` of the own step, or the `"return_to_go"`.
    """

    steps: int = 10
    rate: float = 5e-4
    value: str = "return_to_go"
