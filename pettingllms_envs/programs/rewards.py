"""Rewards as a program gives them: a number for all, or a number or named parts for each agent."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from numbers import Real
from typing import Any

from pettingllms_envs.core import TEAM, Parts


PRINTED = "reward:"
"""What the printed line of a reward begins with."""
CHANNEL = (
    f"A line '{PRINTED} 0.5' counts only as the whole last one that is printed, if neither other output nor any reply "
    f"has {PRINTED!r}, which a model may write, too. Send the reward by POST {{base_url}}/reward instead."
)
EVERYBODY, OWN = "reward", "own_reward"
"""Names of the parts of rewards that are plain numbers."""


def read_rewards(given: Any, agents: Collection[str]) -> Parts:
    """A reward as named parts by scope.

    Args:
        given: `0.5`; `{"writer": 1.0, "critic": 0}`; or with named parts `{"writer": {"format": -0.2}, "team":
            {"progress": 0.5}}`, where those of the team are everybody's.

    Raises:
        ValueError: It is none, names no agent, is not finite, or uses a name for an agent's part and for the team's.
    """
    if not isinstance(given, Mapping):
        return {TEAM: {EVERYBODY: _number(given)}}
    parts: dict[str, dict[str, float]] = {}
    for scope, value in given.items():
        if scope not in (TEAM, *agents):
            raise ValueError(f"the reward names {scope!r}; expected one of {', '.join([TEAM, *agents])}. Correct it.")
        if isinstance(value, Mapping):
            parts[scope] = {str(name): _number(each) for name, each in value.items()}
        else:
            parts[scope] = {EVERYBODY if scope == TEAM else OWN: _number(value)}
    if not any(parts.values()):
        raise ValueError(f"the reward is {given!r:.80}, which has no number; expected one, or one for an agent.")
    return _checked(parts)


def added(all_parts: Iterable[Parts]) -> Parts:
    """Rewards of one step, added by name; `ValueError` if a name is an agent's part and the team's."""
    total: dict[str, dict[str, float]] = {}
    for parts in all_parts:
        for scope, named in parts.items():
            own = total.setdefault(scope, {})
            for name, value in named.items():
                own[name] = own.get(name, 0.0) + value
    return _checked(total)


def _checked(parts: Parts) -> Parts:
    own = {name for scope, named in parts.items() if scope != TEAM for name in named}
    if both := own & parts.get(TEAM, {}).keys():
        raise ValueError(f"{sorted(both)[0]!r} is a part of the team's reward and of an agent's; expected two names.")
    return parts


def check_ranges(parts: Parts, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Raise `ValueError` for a part of a step's reward that is not among those declared, or beyond its range."""
    for name, value in ((name, value) for named in parts.values() for name, value in named.items()):
        least, most = ranges.get(name, (math.inf, -math.inf))
        if not least <= value <= most:
            raise ValueError(
                f"its reward has the part {name!r} of {value:g}; expected those of reward_ranges={ranges}. Declare "
                f"{name!r} there, or correct the reward. A number of an agent's own is {OWN!r}."
            )


def _number(given: Any) -> float:
    if getattr(given, "shape", None) == ():  # a scalar of NumPy, such as a comparison gives, or of torch
        given = given.item()
    with suppress(OverflowError):
        if isinstance(given, Real | Decimal) and math.isfinite(given):
            return float(given)
    raise ValueError(f"the reward is {given!r:.80}; expected a finite number, or a mapping from agents to numbers.")
