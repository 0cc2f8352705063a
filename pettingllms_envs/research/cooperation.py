"""What cooperation is worth: a team beside its forms without messages, alone, and shown everything. Pure.

| arm     | agents                                                                                                |
|---------|-------------------------------------------------------------------------------------------------------|
| `full`  | one agent that is shown everything                                                                    |
| `routed`| one agent that is told in each turn what the team's order says, and shown what the team's agent is    |
| `team`  | the team                                                                                              |
| `cut`   | the team, and no message arrives                                                                      |
| `alone` | one member alone, an arm for each: `alone`, or `alone-librarian_0` and `alone-librarian_1`            |

The *cooperation gain* is team - alone, of the best member; the *cost of distributed information* is full - team; the
*value of communication* is team - cut; the *value of the team's order* is routed - full. All are differences on the
same instances, with paired intervals.

`evaluation/team_forms.py` has the forms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from pettingllms_envs.episodes.files import JsonObject
from pettingllms_envs.evaluation.compare import difference_of_shares, success_by_problem
from pettingllms_envs.evaluation.guessers import GuesserResult
from pettingllms_envs.evaluation.statistics import mean_interval, wilson
from pettingllms_envs.evaluation.team_forms import CUT, FULL, ROUTED, TEAM, is_alone
from pettingllms_envs.page.cooperation import FORMAT


MISSED = 0.05
"""Share of intervals that miss."""

Shares = Mapping[str, Sequence[Fraction]]
"""For each arm the share of successful samples of each problem, the same problems in the same order."""


class Difference(NamedTuple):
    """A difference of two arms, in [-1, 1], with its 95% interval.

    Args:
        of: The arms, such as `"team - cut"`.
    """

    name: str
    of: str
    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """`"positive"`, `"negative"` or `"cannot tell"`."""
        return "positive" if self.low > 0 else "negative" if self.high < 0 else "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guesser:
    """The best guesser in the form of an arm, on all problems, with its 95% interval; see `evaluation.guessers`."""

    name: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """The result of an arm.

    Args:
        agents: What plays each of its agents, as `run.json` has it.
        mean, low, high: Success on the common problems, and its 95% interval.
        tokens: Mean of the completion tokens of an episode; None if an agent's are not counted.
        num_out_of_tokens: Episodes that ended because all tokens were generated; they count as failures.
        guesser: The best guesser in the same form; None if the environment has none.
    """

    name: str
    settings: Mapping[str, Any]
    agents: Mapping[str, Any]
    mean: float
    low: float
    high: float
    tokens: float | None
    most_tokens: int | None
    num_out_of_tokens: int
    num_problems: int
    guesser: Guesser | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The proven bound of an agent alone that sees its prompts, and neither rewards nor infos.

    Args:
        recomputed: The suite's, not greater; None if it could not be recomputed or exceeds the declared one.
        by: How it was recomputed, or why it was not.
    """

    declared: float
    recomputed: float | None
    by: str

    @property
    def shows_need(self) -> bool:
        """Whether it is shown that an agent alone cannot always succeed."""
        return self.recomputed is not None and self.declared < 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooperation:
    """Arms on the same problems.

    Args:
        arms: Their results, in the order of `ARMS`.
        differences: What cooperation gains, costs and owes to messages, as far as there are arms for it.
        generated_tokens: Most completion tokens of an episode, the same for every arm; None if there was no limit.
        bound: The bound of an agent alone; None if the environment declares none.
        blind_bound: The bound of agents that do not read a part of the question; None if it declares none.
    """

    env: str
    arms: Sequence[ArmResult]
    differences: Sequence[Difference]
    num_problems: int
    generated_tokens: int | None
    bound: Bound | None
    blind_bound: float | None = None

    @property
    def plain(self) -> dict[str, Any]:
        """As JSON data: the content of `cooperation.json`."""
        return {
            "format": FORMAT,
            **asdict(self),
            "differences": [each._asdict() | {"verdict": each.verdict} for each in self.differences],
            "sentences": sentences(self),
        }


def differences(shares: Shares) -> list[Difference]:
    """The differences between the arms that there are.

    The gain is that over the best member alone: the least of the gains over each. Their intervals hold together
    (Bonferroni), so the least of their ends are ends of an interval of it.
    """
    alone = {name: own for name, own in shares.items() if is_alone(name)}
    found = []
    if alone:
        gains = [
            _difference("cooperation gain", (TEAM, shares[TEAM]), (name, own), len(alone))
            for name, own in alone.items()
        ]
        least = min(gains, key=lambda each: each.mean)
        found.append(least._replace(low=min(each.low for each in gains), high=min(each.high for each in gains)))
    if FULL in shares:
        found.append(_difference("cost of distributed information", (FULL, shares[FULL]), (TEAM, shares[TEAM])))
    if FULL in shares and ROUTED in shares:
        found.append(_difference("value of the team's order", (ROUTED, shares[ROUTED]), (FULL, shares[FULL])))
    if CUT in shares:
        found.append(_difference("value of communication", (TEAM, shares[TEAM]), (CUT, shares[CUT])))
    return found


def compare(
    env: str,
    runs: Mapping[str, tuple[Mapping[str, Any], Sequence[JsonObject]]],
    *,
    generated_tokens: int | None = None,
    bound: Bound | None = None,
    blind_bound: float | None = None,
    guessers: Mapping[str, GuesserResult] | None = None,
) -> Cooperation:
    """Compare arms on the problems for which all have a result.

    Args:
        guessers: The best guesser in the form of each arm, where there are some.
    """
    scores = {name: success_by_problem([_judged(row) for row in rows]) for name, (_, rows) in runs.items()}
    common = [key for key in scores[TEAM] if all(key in own for own in scores.values())]
    if not common:
        raise ValueError(
            f"{', '.join(runs)} have no problem with a result in common; expected some with a success or a failure in "
            "every arm. Play the episodes that are missing."
        )
    shares = {name: [own[key] for key in common] for name, own in scores.items()}
    return Cooperation(
        env=env,
        arms=[
            _arm(name, config, rows, shares[name], len(scores[name]), (guessers or {}).get(name))
            for name, (config, rows) in runs.items()
        ],
        differences=differences(shares),
        num_problems=len(common),
        generated_tokens=generated_tokens,
        bound=bound,
        blind_bound=blind_bound,
    )


def generated(row: JsonObject) -> int | None:
    """Completion tokens of an episode; None if a reply of an agent that counts none is among its steps."""
    counts = [step["tokens"]["completion"] for step in row["steps"]]
    return None if None in counts else sum(counts)


def sentences(found: Cooperation) -> list[str]:
    """What the numbers say: of tokens, of the bound and the need of a team, of guessers; and warnings of arms."""
    return [_of_tokens(found), _of_bound(found), *_of_guessers(found), *_warnings(found)]


def _of_tokens(found: Cooperation) -> str:
    if found.generated_tokens is None:
        return "There was no limit of tokens."
    return (
        f"Every arm may generate {found.generated_tokens:,} tokens in an episode, thinking included. The reply that "
        "goes beyond is not played, and the episode is a failure. What an arm does not use is left."
    )


def _of_bound(found: Cooperation) -> str:
    bound = found.bound
    nothing = "so nothing here shows that the task needs a team."
    if bound is None:
        return f"No bound of an agent alone is known, {nothing}"
    if bound.recomputed is None:
        return f"The bound of an agent alone, {bound.declared:.1%}, was not recomputed ({bound.by}), {nothing}"
    if not bound.shows_need:
        return f"The bound of an agent alone is {bound.declared:.1%}, {nothing}"
    team = next(arm for arm in found.arms if arm.name == TEAM)
    above = "is above that" if team.low > bound.declared else "is not shown to be above that"
    return (
        f"The task needs a team: an agent alone that sees its prompts and no rewards succeeds in at most "
        f"{bound.declared:.1%} of the episodes, recomputed from {bound.by}. This team {above}."
    )


def _of_guessers(found: Cooperation) -> Iterator[str]:
    unread = [arm.name for arm in found.arms if arm.guesser is not None and arm.low <= arm.guesser.mean]
    if unread:
        yield (
            f"Not shown to be above the best guesser in the same form: {', '.join(unread)}; so nothing here shows "
            "that their agents read the question."
        )


def _warnings(found: Cooperation) -> Iterator[str]:
    for arm in found.arms:
        if arm.name not in (FULL, ROUTED, TEAM) and any(each["kind"] == "oracle" for each in arm.agents.values()):
            yield (
                f"warning: {arm.name} was played by the oracle, which reads the state and not its prompt, so its "
                f"success says nothing. Name an agent that replies to prompts: --arm-agents {arm.name}=AGENT."
            )
        elif is_alone(arm.name) and found.bound and found.bound.shows_need and arm.low > found.bound.declared:
            yield (
                f"warning: {arm.name} is above the bound of {found.bound.declared:.1%}, so its agent knows more than "
                "its prompts, such as earlier ones or rewards. Show it one prompt at a time, and nothing else."
            )
    members = [
        arm.name
        for arm in found.arms
        if arm.name not in (TEAM, CUT) and any("team" in each for each in arm.agents.values())
    ]
    if members:
        yield (
            f"warning: {', '.join(members)} were played by members of a saved team, which was not trained on such "
            "prompts. Name agents that were, for a comparison with them: --arm-agents ARM=AGENT."
        )
    uncounted = [arm.name for arm in found.arms if arm.tokens is None]
    if found.generated_tokens is not None and uncounted:
        yield (
            f"warning: not all tokens of {', '.join(uncounted)} are counted, so the limit does not hold there. Name "
            "agents that count them, as models do."
        )


def _difference(
    name: str, first: tuple[str, Sequence[Fraction]], second: tuple[str, Sequence[Fraction]], num: int = 1
) -> Difference:
    """The first arm's success less the second's; the interval is one of `num` that hold together."""
    low, high = difference_of_shares(second[1], first[1], 1 - MISSED / num)
    mean = float(sum(first[1]) - sum(second[1])) / len(first[1])
    return Difference(name, f"{first[0]} - {second[0]}", mean, low, high)


def _arm(
    name: str,
    config: Mapping[str, Any],
    rows: Sequence[JsonObject],
    shares: Sequence[Fraction],
    num_problems: int,
    guesser: GuesserResult | None,
) -> ArmResult:
    low, high = mean_interval([float(share) for share in shares])
    ended = [row for row in rows if row["error"] is None]
    tokens = [generated(row) for row in ended]
    counted = [each for each in tokens if each is not None]
    return ArmResult(
        name=name,
        settings=config["settings"],
        agents=config["agents"],
        mean=float(sum(shares)) / len(shares),
        low=low,
        high=high,
        tokens=sum(counted) / len(counted) if counted and len(counted) == len(tokens) else None,
        most_tokens=max(counted) if counted and len(counted) == len(tokens) else None,
        num_out_of_tokens=sum(row["end"] == "budget" for row in ended),
        num_problems=num_problems,
        guesser=None if guesser is None else _guesser(guesser),
    )


def _guesser(found: GuesserResult) -> Guesser:
    num, total = sum(found.successes), len(found.successes)
    low, high = wilson(num, total)
    return Guesser(name=found.name, mean=num / total, low=low, high=high)


def _judged(row: JsonObject) -> JsonObject:
    """The row; a failure if all tokens were generated before the environment said how it ended."""
    return {**row, "success": False} if row["end"] == "budget" else row
