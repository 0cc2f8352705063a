"""Returns and ratings of agents that compete, worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from made_rows import row
from pettingllms_envs.agents.spec import AgentSpec
from pettingllms_envs.evaluation import bench as benches
from pettingllms_envs.research.payoffs import Payoffs, Seating, cells, payoffs, seatings


TWO = ("player_0", "player_1")
THREE = ("player_0", "player_1", "player_2")


def rows(*returns: Sequence[float] | None, seats: Sequence[str] = TWO) -> list[dict[str, Any]]:
    """A row for each problem with the returns of the seats; None is an episode that ended with an error."""
    return [
        {
            **row(i, None, error="refused" if each is None else None),
            "returns": dict(zip(seats, each or (), strict=False)),
        }
        for i, each in enumerate(returns)
    ]


def zero_sum(table: Mapping[Seating, Sequence[float]]) -> Payoffs:
    """Of games for two, given what the first seat wins on each problem."""
    return payoffs(
        {seating: rows(*[(won, -won) for won in each]) for seating, each in table.items()}, TWO, zero_sum=True
    )


def test_of_two_runs_each_takes_every_seat_against_the_other_and_against_itself() -> None:
    assert seatings(["a", "b"], 2) == [("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")]
    assert sorted(map("".join, seatings(["a", "b"], 3))) == ["aaa", "aab", "aba", "abb", "baa", "bab", "bba", "bbb"]
    assert len(seatings(["a", "b", "c"], 3)) == 3 + 6 * 3  # nobody sits between two different others


def test_the_return_of_a_run_is_its_mean_over_seats_and_problems() -> None:
    """a wins 2 and 0 in the first seat, and in the second 1 and 1: 1 on average; b loses it."""
    found = zero_sum({("a", "a"): [5, -5], ("a", "b"): [2, 0], ("b", "a"): [-1, -1], ("b", "b"): [0, 0]})
    means = {
        seat: {one: {other: each.mean for other, each in row.items()} for one, row in table.items()}
        for seat, table in found.matrix.items()
    }
    assert means == {
        "player_0": {"a": {"a": 0, "b": 1}, "b": {"a": -1, "b": 0}},
        "player_1": {"a": {"a": 0, "b": 1}, "b": {"a": -1, "b": 0}},
    }
    assert {name: each.mean for name, each in found.returns.items()} == {"a": 1.0, "b": -1.0}
    assert {name: each.mean for name, each in found.ratings.items()} == {"a": 1.0, "b": -1.0}
    assert (found.num_problems, found.cyclic) == (2, None)
    assert found.returns["a"].low <= 1.0 <= found.returns["a"].high


def test_luck_that_both_seats_share_is_not_in_the_intervals() -> None:
    """The first seat wins 4 or loses 4 by its cards alone, and a wins 1 more in both seats."""
    luck = [4.0, -4.0] * 10
    shifted: dict[Seating, list[float]] = {
        ("a", "b"): [each + 1 for each in luck],
        ("b", "a"): [each - 1 for each in luck],
    }
    found = zero_sum({("a", "a"): luck, ("b", "b"): luck, **shifted})
    assert (found.returns["a"].low, found.returns["a"].mean, found.returns["a"].high) == (1.0, 1.0, 1.0)
    assert found.matrix["player_0"]["a"]["b"].high - found.matrix["player_0"]["a"]["b"].low > 2


def round_robin(*, ab: float, bc: float, ac: float) -> Payoffs:
    """Of three runs, given what the first of a pair wins of the second in either seat, on two problems."""
    table: dict[Seating, list[float]] = {(name, name): [0, 0] for name in "abc"}
    for one, other, won in (("a", "b", ab), ("b", "c", bc), ("a", "c", ac)):
        table[one, other], table[other, one] = [won, won], [-won, -won]
    return zero_sum(table)


def test_differences_of_ratings_are_differences_of_returns_where_everything_is_transitive() -> None:
    """a outscores b by 2, b outscores c by 4, a outscores c by 6: ratings of 8/3, 2/3 and -10/3."""
    found = round_robin(ab=1, bc=2, ac=3)
    assert [each.mean for each in found.ratings.values()] == pytest.approx([8 / 3, 2 / 3, -10 / 3])
    assert found.cyclic == pytest.approx(0.0)


def test_rock_paper_and_scissors_have_equal_ratings_and_all_of_it_is_cyclic() -> None:
    found = round_robin(ab=1, bc=1, ac=-1)
    assert [each.mean for each in found.ratings.values()] == [0, 0, 0]
    assert found.cyclic == 1.0


def test_among_three_seats_one_run_is_alone_against_the_others() -> None:
    """Alone a wins 2 in every seat, of which each of the others loses 1; alone b loses 2 to both."""
    table: dict[Seating, list[dict[str, Any]]] = {}
    for seating in seatings(["a", "b"], 3):
        count = seating.count("a")
        worth = {0: 0.0, 1: 2.0, 2: 1.0, 3: 0.0}[count]
        won = [worth if name == "a" else -worth * count / (3 - count) for name in seating]
        table[seating] = rows(won, won, seats=THREE)
    found = payoffs(table, THREE, zero_sum=True)
    assert {name: each.mean for name, each in found.returns.items()} == {"a": 2.0, "b": -2.0}
    assert {name: each.mean for name, each in found.ratings.items()} == {"a": 1.5, "b": -1.5}  # 3 between their seats
    assert found.matrix["player_2"]["a"]["b"].mean == 2.0


def test_a_game_of_mixed_motives_has_returns_and_no_ratings() -> None:
    both = {seating: rows((4, 4), (2, 2)) for seating in seatings(["a", "b"], 2)}
    found = payoffs(both, TWO, zero_sum=False)
    assert ({name: each.mean for name, each in found.returns.items()}, found.ratings) == ({"a": 3.0, "b": 3.0}, {})
    assert found.cyclic is None


def test_problems_that_a_pairing_lacks_are_left_out_everywhere() -> None:
    played = {seating: rows((1, -1), (3, -3), (5, -5)) for seating in seatings(["a", "b"], 2)}
    played["a", "b"] = rows((1, -1), None, (5, -5))
    found = payoffs(played, TWO, zero_sum=True)
    assert (found.num_problems, found.matrix["player_0"]["b"]["a"].mean) == (2, 3.0)
    played["b", "a"] = rows((1, -1))
    with pytest.raises(ValueError, match=r"1 problems have a result in all 4 pairings; expected at least 2"):
        payoffs(played, TWO, zero_sum=True)


def bench(kind: str, **settings: Any) -> benches.Bench:
    env = pettingllms_envs.make("kuhn_poker", **settings)
    return benches.Bench(
        env="kuhn_poker_v0",
        settings=settings,
        agents=dict.fromkeys(env.possible_agents, AgentSpec(kind)),
        chosen=benches.choose(env, "kuhn_poker_v0", settings, limit=40),
    )


@pytest.mark.parametrize("players", [2, 3])
def test_played_hands_are_zero_sum_and_whoever_only_folds_is_last(players: int, tmp_path: Path) -> None:
    runs = {kind: bench(kind, players=players) for kind in ("oracle", "null")}
    played = {
        seating: benches.play(cell, tmp_path / "+".join(seating), concurrency=1).ended.rows
        for seating, cell in cells(runs).items()
    }
    assert len(played) == 2**players
    assert all(sum(each["returns"].values()) == 0 for of_cell in played.values() for each in of_cell)
    assert {each["error"] for of_cell in played.values() for each in of_cell} == {None}
    found = payoffs(played, THREE[:players], zero_sum=True)
    assert found.returns["oracle"].mean > 0 > found.returns["null"].mean
    assert found.ratings["oracle"].low > found.ratings["null"].high


def test_runs_of_different_games_are_not_opponents() -> None:
    with pytest.raises(ValueError, match=r"a and b differ in settings; expected runs of the same environment"):
        cells({"a": bench("null"), "b": bench("null", players=3)})
