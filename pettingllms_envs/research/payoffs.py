"""Returns and ratings of agents that compete: every pair of runs in every seat, on the same problems. Pure.

A seat is an agent of the environment, such as `player_0`. One run takes one seat, another run all others, so that a
game of n seats has n pairings for each ordered pair of runs; with two seats these are the games of a round robin.
All are played on the same problems, and everything is averaged problem by problem: a good hand is dealt to everybody.

The rating is the least-squares rating of the differences of returns (Massey 1997; the transitive part of the Hodge
decomposition in Balduzzi et al. 2018, arXiv:1806.02643): the numbers, 0 on average, whose differences predict best by
how much one run outscores another, in the unit of the rewards. Elo's and Bradley and Terry's models predict who wins
and ignore how much, which misleads where stakes differ: many small pots won do not outweigh a large one lost. The part
of the differences that no rating can express, as in rock, paper, scissors, is reported as `cyclic`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pettingllms_envs.episodes.files import JsonObject, problem
from pettingllms_envs.evaluation.bench import Bench
from pettingllms_envs.evaluation.statistics import studentized_bootstrap
from pettingllms_envs.research.crossplay import check_alike


Seating = tuple[str, ...]
"""The run whose agent takes each seat, in the order of the environment's agents."""

Returns = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over problems with its 95% interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Payoffs:
    """How runs do against each other.

    Args:
        matrix: By seat, run and opponent: the return of the run in that seat, the opponent (or itself) in all others.
        returns: By run: its mean return over all seats and all other runs.
        ratings: By run: its rating; empty unless the game is zero-sum.
        cyclic: The share of the squared differences between runs that ratings leave out, in [0, 1], noise included;
            None unless there are three runs or more and the game is zero-sum.
    """

    seats: tuple[str, ...]
    num_problems: int
    matrix: Mapping[str, Mapping[str, Mapping[str, Estimate]]]
    returns: Mapping[str, Estimate]
    ratings: Mapping[str, Estimate]
    cyclic: float | None


def seatings(names: Sequence[str], num_seats: int) -> list[Seating]:
    """Every seating in which one run takes one seat and another, or the same, all others; each once."""
    found: dict[Seating, None] = {}
    for one in names:
        for other in names:
            for seat in range(num_seats):
                found[_seating(one, other, seat, num_seats)] = None
    return list(found)


def cells(benches: Mapping[str, Bench]) -> dict[Seating, Bench]:
    """The benchmarks of all seatings. A run's agent for a seat is the one that it has there itself."""
    check_alike(benches)
    first = next(iter(benches.values()))
    return {
        seating: replace(
            first, agents={seat: benches[name].agents[seat] for seat, name in zip(first.agents, seating, strict=True)}
        )
        for seating in seatings(list(benches), len(first.agents))
    }


def payoffs(played: Mapping[Seating, Sequence[JsonObject]], seats: Sequence[str], *, zero_sum: bool) -> Payoffs:
    """Returns and ratings from the rows of all `seatings`.

    Args:
        zero_sum: Whether the returns add up to 0. Ratings are relative: where both may gain, they would reward spite.

    Raises:
        ValueError: There are fewer than two problems that every seating has a result for.
    """
    names = list(dict.fromkeys(name for seating in played for name in seating))
    table = _table(played, seats)
    num_seats = len(seats)

    def own(one: str, other: str, seat: int) -> Returns:
        return table[_seating(one, other, seat, num_seats)][:, seat]

    matrix = {
        agent: {one: {other: _estimate(own(one, other, seat)) for other in names} for one in names}
        for seat, agent in enumerate(seats)
    }
    returns = {
        one: _estimate(np.mean([own(one, other, s) for other in names if other != one for s in range(num_seats)], 0))
        for one in names
    }
    leads = np.array(
        [[_lead(table, one, other, num_seats) for other in names] for one in names]
    )  # (run, run, problem)
    ratings = zip(names, leads.mean(axis=1), strict=True)
    return Payoffs(
        seats=tuple(seats),
        num_problems=len(next(iter(table.values()))),
        matrix=matrix,
        returns=returns,
        ratings={name: _estimate(each) for name, each in ratings} if zero_sum else {},
        cyclic=_cyclic(leads.mean(axis=2)) if zero_sum and len(names) > 2 else None,
    )


def _seating(one: str, other: str, seat: int, num_seats: int) -> Seating:
    return tuple(one if i == seat else other for i in range(num_seats))


def _table(played: Mapping[Seating, Sequence[JsonObject]], seats: Sequence[str]) -> dict[Seating, Returns]:
    """The returns of each seating, (problem, seat): means over samples, of the problems that all seatings have."""
    found = {seating: _by_problem(rows, seats) for seating, rows in played.items()}
    first, *others = found.values()
    common = [key for key in first if all(key in other for other in others)]
    if len(common) < 2:
        raise ValueError(
            f"{len(common)} problems have a result in all {len(found)} pairings; expected at least 2. Play the "
            "pairings that are missing, or more problems."
        )
    return {seating: np.array([own[key] for key in common]) for seating, own in found.items()}


def _by_problem(rows: Sequence[JsonObject], seats: Sequence[str]) -> dict[str, Returns]:
    """The returns of each seat by problem, without episodes that ended with an error."""
    samples: dict[str, list[list[float]]] = {}
    for row in rows:
        if row["error"] is None:
            samples.setdefault(problem(row), []).append([row["returns"].get(seat, 0.0) for seat in seats])
    return {key: np.mean(each, axis=0) for key, each in samples.items()}


def _lead(table: Mapping[Seating, Returns], one: str, other: str, num_seats: int) -> Returns:
    """By how much the seats of a run outscore those of another on each problem, whichever of the two is alone."""
    found = []
    for alone, many, sign in ((one, other, 1.0), (other, one, -1.0)):
        for seat in range(num_seats):
            returns = table[_seating(alone, many, seat, num_seats)]
            rest = (returns.sum(axis=1) - returns[:, seat]) / (num_seats - 1)
            found.append(sign * (returns[:, seat] - rest))
    return np.asarray(np.mean(found, axis=0))


def _cyclic(leads: NDArray[np.float64]) -> float:
    """The share of the squared mean leads that differences of ratings leave out; 0 if nobody leads."""
    ratings = leads.mean(axis=1)
    whole = float((leads**2).sum())
    rest = float(((leads - (ratings[:, None] - ratings[None, :])) ** 2).sum())
    return rest / whole if whole else 0.0


def _estimate(values: Returns) -> Estimate:
    low, high = studentized_bootstrap(values.tolist())
    return Estimate(float(values.mean()), low, high)
