"""Checks that what one agent wins the others lose, where an environment declares it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pettingllms_envs.testing import play
from pettingllms_envs.testing.competition import alone, competition
from pettingllms_envs.testing.pairs import MOST_CHEATS, cheats, contents


TOLERANCE = 1e-12  # of a sum of returns, relative to their size


def check_zero_sum(case: play.Case) -> str:
    """The returns of all agents add up to 0 in every episode, whether they play well, cheat, or cannot be read.

    In an environment with an oracle a sample of the cheats of `pettingllms_envs.testing.pairs` is played, each on one
    of the starts; everything else is played on all of them.
    """
    env = case.make()
    if competition(env) != "zero_sum":
        raise play.Skipped("it does not declare metadata['competitive'] = 'zero_sum'")
    cheating = _cheats(case, env)
    count, largest = 0, 0.0
    for i, start in enumerate(case.starts):
        makes: list[Callable[[], play.Policy]] = [*_policies(case, env), *cheating[i :: len(case.starts)]]
        makes.append(partial(play.mixed_play, case, start))
        for make in makes:
            played = play.episode(env, start, make(), max_steps=case.max_steps)
            with play.blaming(partial(play.told, start, played.replies)):
                _expect_zero(played)
            count, largest = count + 1, max(largest, *map(abs, played.totals.values()))
    return f"the returns add up to 0 in {count} episodes; the greatest is {largest:g}"


def _policies(case: play.Case, env: Any) -> Iterator[Callable[[], play.Policy]]:
    """Unreadable and blind play and, beside the oracle, an agent that never replies."""
    yield from (partial(play.always, reply) for reply in ("", *case.blind))
    if play.oracle_of(env) is not None:
        yield lambda: play.best
        yield from (partial(alone, agent, play.always("")) for agent in env.possible_agents)


def _cheats(case: play.Case, env: Any) -> list[Callable[[], play.Policy]]:
    if play.oracle_of(env) is None:
        return []
    elsewhere = play.first_replies(env, case.starts[-1], case.max_steps)
    ways = [way.make for way in cheats(env.possible_agents, contents(case.blind, elsewhere))]
    return random.Random("cheats").sample(ways, min(len(ways), MOST_CHEATS))


def _expect_zero(played: play.Course) -> None:
    if not played.over:
        raise play.Failed("the episode is not over, so that its returns cannot be added up; expected an end")
    total, size = math.fsum(played.totals.values()), sum(map(abs, played.totals.values()))
    if abs(total) > TOLERANCE * max(1.0, size):
        raise play.Failed(
            f"the returns add up to {total:g}; expected 0 of a zero-sum environment, got {played.totals}"
        )
