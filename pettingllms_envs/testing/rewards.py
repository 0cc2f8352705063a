"""Checks of rewards: the oracle reaches the maximum, and policies that ignore the state next to nothing."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache, partial
from statistics import fmean
from typing import Any

from pettingllms_envs.core import TEAM
from pettingllms_envs.episodes.difference import short
from pettingllms_envs.testing import play
from pettingllms_envs.testing.competition import NUM_FIRST, against_oracle, competition


LEAST_STARTS = 20
LEAST_FURTHER = 80  # seeds that decide on a policy above the floor; of a share of 1 in 4 the standard error is 0.05
UNKNOWING = ("empty", "echo", "copy")  # policies that know nothing but the prompt
TOLERANCE = 1e-9  # of sums of rewards
MOST_LINES = 12  # of a prompt of which every block of lines is copied; of a longer one every tail
MOST_PIECES = 120

_QUOTED = re.compile(r"```\w*+\n?(.*?)```|`([^`]+)`|\"([^\"]+)\"|“([^“”]+)”|(?<!\w)'([^']+)'(?!\w)", re.S)
_LABEL = re.compile(r"\b\w+:\s*")


def check_oracle(case: play.Case) -> str:
    """The oracle, which must not change the environment, reaches the declared maximum and success on every seed.

    Where agents compete there is no such maximum, and the oracle only has to bring every episode to its end.
    """
    env = case.make()
    if play.oracle_of(env) is None:
        raise play.Skipped("it has no oracle()")
    kind = competition(env)
    most = env.metadata.get("max_return")
    steps = 0
    for start in case.starts:
        played = play.episode(env, start, _asked_twice, max_steps=case.max_steps)
        steps += sum(reply is not None for reply in played.replies)
        with play.blaming(partial(play.told, start, played.replies)):
            if not played.over:
                raise play.Failed(f"the oracle's episode is not over after {case.max_steps} steps")
            if played.success is False and kind is None:
                raise play.Failed("the oracle has no success; expected infos[agent]['outcome']['success'] to be True")
            if most is not None and abs(played.team - most) > TOLERANCE:
                raise play.Failed(
                    f"the oracle's return: expected metadata['max_return'], {most:g}, got {played.team:g}"
                )
    if kind is not None:
        return f"{len(case.starts)} episodes of {steps / len(case.starts):.1f} replies, played by it to their end"
    if most is None and played.success is None:
        raise play.Skipped("it declares no metadata['max_return'] and reports no infos[agent]['outcome']['success']")
    reached = [*(["success"] if played.success else []), *([f"the maximum {most:g}"] if most is not None else [])]
    return f"{' and '.join(reached)} in {len(case.starts)} episodes of {steps / len(case.starts):.1f} replies"


def check_floors(case: play.Case) -> str:
    """Policies that ignore the state stay at the floor.

    They are: the empty reply; the prompt echoed; every piece of the system prompt copied (lines, blocks of lines,
    quotations, text after a colon; of the whole prompt if there is no system prompt); the oracle's first replies in
    another instance as constants; each blind reply, and all of them in turn.

    * On no seed is their return greater than the oracle's, nor on average any agent's own sum of rewards.
    * Its mean success is at most `floor`, and its mean return at most `floor` times the oracle's (or the declared
      maximum's, without an oracle). One of many policies is lucky on the seeds that are played, so a policy above
      the floor is played on further seeds, and these alone decide.
    * Empty, echoed and copied replies never succeed, and no further seeds are played with them.

    Where agents compete, each has such a policy alone, while the oracle plays the others, and gains nothing by it on
    average: see `pettingllms_envs.testing.competition`.
    """
    env = case.make()
    if competition(env) is not None:
        return _expect_no_gain_alone(case, env)
    case = replace(case, starts=(*case.starts, *_further(case.starts, LEAST_STARTS - len(case.starts))))
    number = len(case.starts) * math.ceil(LEAST_FURTHER / len(case.starts))  # all options equally often
    further = replace(case, starts=_further(case.starts, number))
    oracles = _course(case, lambda i: play.best) if play.oracle_of(env) is not None else []
    bound = fmean(each.team for each in oracles) if oracles else env.metadata.get("max_return")

    @cache
    def further_bound() -> float | None:
        return fmean(each.team for each in _course(further, lambda i: play.best)) if oracles else bound

    figures, num_lucky = [], 0
    for name, policy_of in floor_policies(case, env):
        played = _course(case, policy_of)
        if bound is None and played[0].success is None:
            raise play.Skipped("it has no oracle(), declares no metadata['max_return'] and reports no success")
        is_lucky = not name.startswith(UNKNOWING) and _is_above(case.floor, played, bound)
        num_lucky += is_lucky
        decisive, most = (_course(further, policy_of), further_bound()) if is_lucky else (played, bound)
        _expect_floor(case.floor, name, decisive, most)
        figures.append((*_means(decisive), name))
        _expect_no_more(name, played, oracles)
    success, returned, name = max(figures, key=lambda each: each[:2])
    of = "" if bound is None else f" of {bound:.2f}"
    where = f"{len(figures)} policies in {len(case.starts)} episodes each"
    where += f", {num_lucky} of them above the floor and so in {number} further ones, which count" if num_lucky else ""
    return f"{where}; the best succeeds on {success:.0%} and returns {returned:.2f}{of}: {name}"


def _expect_no_gain_alone(case: play.Case, env: Any) -> str:
    """The floors of agents that compete."""
    if play.oracle_of(env) is None:
        raise play.Skipped("its agents compete, and it has no oracle() to play against")
    against, case = against_oracle(case, env)
    gains = [
        (against.mean_gain(f"the policy {name}", agent, policy_of), agent, name)
        for name, policy_of in floor_policies(case, env)
        for agent in env.possible_agents
    ]
    most, agent, name = max(gains)
    of = f"{len(gains)} policies of single agents in {NUM_FIRST} episodes each"
    return f"{of}; most is gained by {agent}, {most:.2f}: {name}"


def _further(starts: tuple[play.Start, ...], number: int) -> tuple[play.Start, ...]:
    """A number of starts with the seeds after the last one, and the options of the others in turn."""
    seeds = itertools.count(max(start.seed for start in starts) + 1)
    in_turn = zip(range(number), itertools.cycle(starts), seeds, strict=False)
    return tuple(play.Start(seed, start.options) for _, start, seed in in_turn)


def check_rewards(case: play.Case) -> str:
    """Rewards are finite; parts are declared and in their ranges; an agent is paid alpha * team + local.

    Some play earns something: a success, a positive reward, or where no success is reported more than another play.
    An environment without an oracle that reports neither success nor ranges may leave all rewards to reward functions.
    The result says if success was never seen, as in a game that pays partial credit and that nobody can win.

    What an environment does not declare (its ranges, its maximum, its parts with their scopes) is not checked.
    """
    env = case.make()
    competition(env)
    ranges, most = env.metadata.get("reward_ranges"), env.metadata.get("max_return")
    spread: dict[str, tuple[float, float]] = {}
    paid: set[float] = set()
    successes: set[bool | None] = set()

    def look(env: Any) -> None:
        _expect_sound_pay(env)
        paid.update(env.rewards.values())
        for agent in env.agents:
            parts = env.infos[agent].get("rewards", {})
            for name, value in parts.items() if isinstance(parts, Mapping) else ():
                low, high = spread.get(name, (value, value))
                spread[name] = min(low, value), max(high, value)
                if ranges is not None:
                    _expect_in_range(name, value, ranges)

    for start in case.starts:
        policies = [play.mixed_play(case, start), *map(play.always, case.blind)]
        for policy in policies if play.oracle_of(env) is None else (play.best, *policies):
            played = play.episode(env, start, policy, max_steps=case.max_steps, look=look)
            successes.add(played.success)
            if most is not None and played.team > most + TOLERANCE:
                words = f"a return of {played.team:g}; expected at most metadata['max_return'], {most:g}"
                raise play.Failed(f"{words}\n{play.told(start, played.replies)}")
    judges = False in successes or ranges is not None or play.oracle_of(env) is not None
    # Reward functions of a trainer judge, or a program, of which no reply is known that it pays for.
    judges = judges and not (env.metadata.get("judged") or "program" in env.metadata)
    if judges and True not in successes and max(paid, default=0.0) <= 0 and (False in successes or len(paid) == 1):
        by = "nor the oracle" if play.oracle_of(env) is not None else "and it has no oracle()"
        raise play.Failed(
            f"no reply that was tried earns anything, {by}, so nobody is seen to win it. Give it an oracle() that "
            "does, or replies that earn something now and then: blind_replies of the task, samples of the action "
            "space (ChatText(replies=[...])), or check(blind=[...])"
        )
    unseen = judges and successes == {False} and play.oracle_of(env) is None
    note = "; success was never seen: no oracle, and no reply that was tried" if unseen else ""
    if ranges is None:
        raise play.Skipped(f"it declares no metadata['reward_ranges']; all rewards were finite{note}")
    seen = ", ".join(f"{name} {low:.2f} to {high:.2f}" for name, (low, high) in spread.items()) or "no parts"
    return f"{seen}{note}"


def floor_policies(case: play.Case, env: Any) -> Iterator[tuple[str, Callable[[int], play.Policy]]]:
    """The name of each floor policy, and a function that makes it for the n-th episode."""
    yield "empty", lambda i: play.always("")
    yield "echo of the prompt", lambda i: lambda env, agent: "\n".join(play.texts(env.observe(agent)))
    yield "echo of the situation", lambda i: lambda env, agent: play.texts(env.observe(agent))[-1]
    prompts: dict[str, None] = {}
    for start in case.starts[:3]:
        env.reset(seed=start.seed, options=dict(start.options) or None)
        prompts |= dict.fromkeys(play.texts(env.observe(agent))[0] for agent in env.agents)
    known = [pieces(prompt) for prompt in prompts]
    for k in range(max(map(len, known), default=0)):
        example = next(each[k] for each in known if k < len(each))
        yield f"copy of {short(example)}", partial(_given, partial(_copy, k))
    if play.oracle_of(env) is not None and len(case.starts) > 1:
        firsts = [play.first_replies(case.make(), start, case.max_steps) for start in case.starts]
        yield "the oracle's replies in another instance", lambda i: partial(_recite, firsts[(i - 1) % len(firsts)])
    for reply in case.blind:
        yield f"always {short(reply)}", partial(_given, play.always(reply))
    if case.blind:
        yield "the blind replies in turn", lambda i: play.scripted(itertools.cycle(case.blind))


@lru_cache(maxsize=1024)
def pieces(prompt: str) -> tuple[str, ...]:
    """Parts of a prompt that may be example replies: quotations, text after a colon, lines, and blocks of lines."""
    lines = [line.strip() for line in prompt.splitlines() if line.strip()]
    found = ["".join(quoted).strip() for quoted in _QUOTED.findall(prompt)]
    for line in reversed(lines):
        for label in _LABEL.finditer(line):
            found += [line[label.start() :], line[label.end() :]]
    found += lines[::-1]
    count = len(lines)
    if count <= MOST_LINES:
        found += ["\n".join(lines[i:j]) for i in range(count) for j in range(i + 2, count + 1)]
    else:
        found += ["\n".join(lines[i:]) for i in reversed(range(count - 1))]
    found += [piece.rstrip(".") for piece in found]
    return tuple(piece for piece in dict.fromkeys(found) if piece)[:MOST_PIECES]


def _course(case: play.Case, policy_of: Callable[[int], play.Policy]) -> list[play.Course]:
    """An episode of each start."""
    return [
        play.episode(case.make(), start, policy_of(i), max_steps=case.max_steps) for i, start in enumerate(case.starts)
    ]


def _asked_twice(env: Any, agent: str) -> str:
    before = play.view(env)
    reply, again = env.unwrapped.oracle(), env.unwrapped.oracle()
    if type(reply) is not str or reply != again:
        raise play.Failed(f"the oracle, asked twice: expected the same str, got {short(reply)} and {short(again)}")
    play.same(before, play.view(env), "asking the oracle changed what is shown")
    return reply


def _copy(k: int, env: Any, agent: str) -> str:
    found = pieces(play.texts(env.observe(agent))[0])
    return found[k] if k < len(found) else ""


def _recite(replies: Mapping[str, str], env: Any, agent: str) -> str:
    return replies.get(agent, "")


def _given(policy: play.Policy, i: int) -> play.Policy:
    return policy


def _means(played: list[play.Course]) -> tuple[float, float]:
    return fmean(bool(each.success) for each in played), fmean(each.team for each in played)


def _is_above(floor: float, played: list[play.Course], bound: float | None) -> bool:
    success, returned = _means(played)
    return success > floor or (bound is not None and returned > floor * bound + TOLERANCE)


def _expect_floor(floor: float, name: str, played: list[play.Course], bound: float | None) -> None:
    """Raise `Failed` if the mean success or return of a policy is too high."""
    success, returned = _means(played)
    lucky = next((each for each in played if each.success), played[0])
    remedy = "If that is right, as where there are few answers, give another floor: --floor SHARE, conforms(floor=...)"
    with play.blaming(partial(play.told, lucky.start, lucky.replies)):
        if name.startswith(UNKNOWING) and success:
            raise play.Failed(f"the policy {name} succeeds; expected that it never does")
        if success > floor:
            words = f"succeeds on {success:.0%} of {len(played)} further seeds; expected at most {floor:.0%}"
            raise play.Failed(f"the policy {name} {words}. {remedy}")
    rich = max(played, key=lambda each: each.team)
    with play.blaming(partial(play.told, rich.start, rich.replies)):
        if _is_above(floor, played, bound):
            share = f"{floor:g} times the best, {bound:.2f}"
            words = f"has a mean return of {returned:.2f} on {len(played)} seeds; expected at most {share}"
            raise play.Failed(f"the policy {name} {words}. {remedy}")


def _expect_no_more(name: str, played: list[play.Course], oracles: list[play.Course]) -> None:
    """Raise `Failed` if a policy has a higher return than the oracle."""
    for one, best_one in zip(played, oracles, strict=bool(oracles)):
        with play.blaming(partial(play.told, one.start, one.replies)):
            if one.team > best_one.team + TOLERANCE:
                words = f"expected at most the oracle's return, {best_one.team:g}, got {one.team:g}"
                raise play.Failed(f"the policy {name}: {words}")
    for agent in oracles[0].totals if oracles else ():
        mean, most = (fmean(each.totals.get(agent, 0.0) for each in course) for course in (played, oracles))
        if mean > most + TOLERANCE:
            words = f"sum of {agent}'s rewards: expected at most the oracle's mean, {most:g}, got {mean:g}"
            raise play.Failed(f"the policy {name}, {words}\n{play.told(played[0].start, played[0].replies)}")


def _expect_sound_pay(env: Any) -> None:
    """Raise `Failed` unless rewards are finite and, if parts and alpha are known, the weighted sum of their parts."""
    parts, alpha = play.scoped_parts(env), getattr(env.unwrapped, "alpha", None)
    known = {TEAM, *(name for agent in env.possible_agents for name in (agent, agent.rpartition("_")[0]))}
    if stray := sorted((parts or {}).keys() - known):
        raise play.Failed(
            f"the scope {stray[0]!r} of a reward; expected {TEAM!r}, a role or an agent, or nobody is paid it"
        )
    for agent, reward in env.rewards.items():
        if not math.isfinite(reward):
            raise play.Failed(f"the reward of {agent} is {reward}; expected a finite number")
        if parts is None or alpha is None or len(env.agents) < len(env.possible_agents):
            continue  # not given, or after a dead step, when the parts of the last step are still shown
        due = _due(parts, agent, alpha)
        if abs(reward - due) > TOLERANCE:
            raise play.Failed(
                f"the reward of {agent}: expected alpha * team + local = {due:g} of {parts}, got {reward:g}"
            )


def _due(parts: Mapping[str, Mapping[str, float]], agent: str, alpha: float) -> float:
    """`alpha * team + local`, where local is the agent's own scope or, of a role's only agent, the role's."""
    team, of_role, own = (sum(parts.get(scope, {}).values()) for scope in (TEAM, agent.rpartition("_")[0], agent))
    return alpha * team + of_role + own


def _expect_in_range(name: str, value: float, ranges: Mapping[str, tuple[float, float]]) -> None:
    if name not in ranges:
        raise play.Failed(f"the reward has a part {name!r}; metadata['reward_ranges'] declares {list(ranges)}")
    low, high = ranges[name]
    if not low - TOLERANCE <= value <= high + TOLERANCE:
        raise play.Failed(f"the part {name!r} of the reward: expected {low:g} to {high:g}, got {value:g}")
