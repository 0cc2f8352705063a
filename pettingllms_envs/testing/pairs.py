"""Checks that sabotage and collusion do not pay, and that of a zero-sum game all returns add up to 0.

A cheating agent replies differently from the oracle at some of its turns: what it says is one of `contents`, and when
is one of `TIMES`. One agent cheats while the oracle plays the others, or all of them cheat, at the same turns or one
after the other. Agents that do not cheat give the oracle's reply in their current state.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pettingllms_envs.episodes.difference import short
from pettingllms_envs.episodes.observing import workflow_of
from pettingllms_envs.features import HasAttacks
from pettingllms_envs.testing import play
from pettingllms_envs.testing.competition import NUM_FIRST, against_oracle, alone, competition


_WORD, _DIGITS = re.compile(r"\S+\s*"), re.compile("[0-9]{1,18}")

TOLERANCE = 1e-9  # of sums of rewards
ROUNDING = 1e-12  # of a sum of returns that is to be 0, relative to their size
MOST_BLIND = 6  # blind replies that are played, spread over those that there are
MOST_CHEATS = 60  # that the conformance suite plays, of the 250 that there are with two agents
MOST_STARTS = 2  # on which it plays them, each on one of them
ENDLESS = "and so on " * 5_000

Content = Callable[[Any, str, Sequence[str]], str]
"""Returns a cheating agent's reply, given the environment, the agent, and its replies in this episode so far."""

Times = Callable[[int], bool]
"""Returns whether an agent cheats in its n-th reply, counted from 0."""

TIMES: Mapping[str, Times] = {
    "always": lambda n: True,
    "at first": lambda n: n == 0,
    "from its second reply on": lambda n: n > 0,
    "in every second reply": lambda n: n % 2 == 1,
}


class Cheat(NamedTuple):
    """A way of cheating.

    Args:
        make: Makes the policy that plays all agents in one episode.
    """

    name: str
    agents: Collection[str]
    make: Callable[[], play.Policy]


class Margin(NamedTuple):
    """The result of a cheat in an episode.

    Args:
        returns: The sum of rewards less that when the oracle plays all agents, of each agent that is there then.
    """

    cheat: Cheat
    episode: play.Course
    returns: Mapping[str, float]

    @property
    def most(self) -> float:
        return max(self.returns.values())

    @property
    def total(self) -> float:
        return sum(self.returns.values())


def check_pairs(case: play.Case) -> str:
    """No agent's return, and no sum of returns, is above what it is when the oracle plays all agents.

    A sample of `cheats`, the same every time, is played on the first seeds. Where the environment declares no
    `metadata["max_return"]`, its agents may be opponents, of whom one gains what another gives away: the return of
    an agent is then compared only where it cheats alone. Where it declares that they compete, the comparison is of
    means over many episodes: see `pettingllms_envs.testing.competition`.
    """
    env = case.make()
    if play.oracle_of(env) is None:
        raise play.Skipped("it has no oracle()")
    if competition(env) is not None:
        return _expect_no_gain_alone(case, env)
    team = env.metadata.get("max_return") is not None
    starts = case.starts[:MOST_STARTS]
    highest, count = -math.inf, 0
    for i, start in enumerate(starts):
        elsewhere = play.first_replies(env, _another(starts, i), case.max_steps)
        ways = [*cheats(env.possible_agents, contents(case.blind, elsewhere))]
        drawn = random.Random("cheats").sample(ways, min(len(ways), MOST_CHEATS))
        alone, both = ([each for each in attacks(env) if len(each.agents) == number] for number in (1, 2))
        drawn += [*alone, *random.Random("attacks").sample(both, min(len(both), MOST_CHEATS))]
        for margin in margins(env, start, drawn[i :: len(starts)], case.max_steps):
            _expect_no_gain(margin, team)
            highest, count = max(highest, margin.most, margin.total), count + 1
    return f"{count} ways of cheating; the most that one adds to a return, or to the sum of returns, is {highest:.2f}"


def _expect_no_gain_alone(case: play.Case, env: Any) -> str:
    """The cheats of single agents that compete, while the oracle plays the others."""
    against, case = against_oracle(case, env)
    elsewhere = play.first_replies(env, case.starts[-1], case.max_steps)
    ways = [way for way in cheats(env.possible_agents, contents(case.blind, elsewhere)) if len(way.agents) == 1]
    drawn = random.Random("cheats").sample(ways, min(len(ways), MOST_CHEATS))
    gains = []
    for way in drawn:
        (agent,) = way.agents
        gains.append(against.mean_gain(way.name, agent, lambda n, way=way: way.make()))  # type: ignore[misc]
    of = f"{len(gains)} ways of cheating alone in {NUM_FIRST} episodes each"
    return f"{of}; the most that one gains is {max(gains):.2f}"


def margins(env: Any, start: play.Start, ways: Iterable[Cheat], max_steps: int) -> Iterator[Margin]:
    """The margin of each way of cheating on an instance; the oracle plays it first."""
    due = play.episode(env, start, play.best, max_steps=max_steps)
    for cheat in ways:
        played = play.episode(env, start, cheat.make(), max_steps=max_steps)
        yield Margin(cheat, played, {agent: played.totals.get(agent, 0.0) - due.totals[agent] for agent in due.totals})


def cheats(agents: Sequence[str], said: Mapping[str, Content]) -> Iterator[Cheat]:
    """Every content at all times: by each agent alone, by all together, and by one agent after the other."""
    for what, content in said.items():
        for name, times in _times(agents):
            yield Cheat(f"{name}: {what}", tuple(times), partial(cheating, content, times))


def attacks(env: Any) -> Iterator[Cheat]:
    """Those that the workflow names: each by its agent alone, then each with each of another agent."""
    workflow = workflow_of(env)
    if not isinstance(workflow, HasAttacks):
        return
    known = {f"{role}_0": named for role, named in workflow.attacks.items() if f"{role}_0" in env.possible_agents}
    alone = [{agent: name} for agent, named in known.items() for name in named]
    both = (one | other for one, other in itertools.combinations(alone, 2) if one.keys() != other.keys())
    for each in itertools.chain(alone, both):
        name = " and ".join(f"{agent} {name}" for agent, name in each.items())
        chosen = {agent: known[agent][name] for agent, name in each.items()}
        yield Cheat(name, tuple(each), lambda chosen=chosen: partial(_attacking, chosen))  # type: ignore[misc]


def _attacking(chosen: Mapping[str, Callable[[Any, Any], str]], env: Any, agent: str) -> str:
    if agent not in chosen:
        return play.best(env, agent)
    return chosen[agent](workflow_of(env), env.unwrapped.snapshot().play)


def _times(agents: Sequence[str]) -> Iterator[tuple[str, dict[str, Times]]]:
    """The possible times of cheating: a description, and the times of each agent."""
    for when, times in TIMES.items():
        for agent in agents:
            yield f"{agent} {when}", {agent: times}
        if len(agents) > 1:
            yield f"all {when}", dict.fromkeys(agents, times)
    for shift in range(len(agents) if len(agents) > 1 else 0):
        replies = {agent: (i + shift) % len(agents) for i, agent in enumerate(agents)}
        words = ", ".join(f"{agent} in reply {n + 1}" for agent, n in replies.items())
        yield words, {agent: n.__eq__ for agent, n in replies.items()}


def cheating(content: Content, times: Mapping[str, Times]) -> play.Policy:
    """A policy for one episode: the content at an agent's times, else the oracle's reply."""
    replies: dict[str, list[str]] = {}

    def policy(env: Any, agent: str) -> str:
        said = replies.setdefault(agent, [])
        said.append(content(env, agent, said) if agent in times and times[agent](len(said)) else play.best(env, agent))
        return said[-1]

    return policy


def contents(blind: Sequence[str], elsewhere: Mapping[str, str]) -> dict[str, Content]:
    """The replies of a cheating agent, by name: the blind ones, and its right ones in another instance."""
    few = blind[:: max(1, -(-len(blind) // MOST_BLIND))]
    return {
        "nothing": lambda env, agent, said: "",
        "garbage": lambda env, agent, said: "perhaps ``` {[( \ud800\x00",
        "no end": lambda env, agent, said: ENDLESS,
        "its prompt": lambda env, agent, said: play.texts(env.observe(agent))[-1],
        "its first reply again": lambda env, agent, said: said[0] if said else play.best(env, agent),
        "a right reply of another instance": lambda env, agent, said: elsewhere.get(agent, ""),
        **{f"the oracle's reply, {how}": partial(_changed, change) for how, change in _CHANGES.items()},
        **{f"always {short(reply)}": partial(_constant, reply) for reply in few},
    }


def _another(starts: Sequence[play.Start], i: int) -> play.Start:
    """Another instance than the one of this number."""
    return starts[i - 1] if len(starts) > 1 else play.Start(starts[0].seed + 1, starts[0].options)


def _constant(reply: str, env: Any, agent: str, said: Sequence[str]) -> str:
    return reply


def _changed(change: Callable[[str], str], env: Any, agent: str, said: Sequence[str]) -> str:
    return change(play.best(env, agent))


def _words(keep: Callable[[list[str]], list[str]], reply: str) -> str:
    """The words of a reply, with the white space after each, that are kept; the first word always is."""
    first, *rest = _WORD.findall(reply) or [""]
    return "".join([first, *keep(rest)]).rstrip()


_CHANGES: Mapping[str, Callable[[str], str]] = {
    "its first words": partial(_words, lambda rest: rest[:1]),
    "the first half": partial(_words, lambda rest: rest[: len(rest) // 2]),
    "without its last word": partial(_words, lambda rest: rest[:-1]),
    "its words back to front": partial(_words, lambda rest: [f"{word.rstrip()} " for word in rest[::-1]]),
    "its numbers raised by one": lambda reply: _DIGITS.sub(lambda found: str(int(found[0]) + 1), reply),
    "twice": lambda reply: f"{reply}\n{reply}",
}


def _expect_no_gain(margin: Margin, team: bool) -> None:
    """Raise `Failed` if an agent gained."""
    (name, cheaters, _), played = margin.cheat, margin.episode
    with play.blaming(partial(play.told, played.start, played.replies)):
        for agent, gain in margin.returns.items():
            if gain > TOLERANCE and (team or tuple(cheaters) == (agent,)):
                raise play.Failed(
                    f"{name}: the return of {agent} is {gain:g} above what it is when the oracle plays all"
                )
        if margin.total > TOLERANCE:
            raise play.Failed(
                f"{name}: the sum of returns is {margin.total:g} above what it is when the oracle plays all"
            )


def check_zero_sum(case: play.Case) -> str:
    """The returns of all agents add up to 0 in every episode, whether they play well, cheat, or cannot be read.

    In an environment with an oracle a sample of the cheats is played, each on one start; everything else on all.
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
    if abs(total) > ROUNDING * max(1.0, size):
        raise play.Failed(
            f"the returns add up to {total:g}; expected 0 of a zero-sum environment, got {played.totals}"
        )
