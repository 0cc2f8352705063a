"""The games and the intervals of benchmarks/hanabi_partners.py."""

from __future__ import annotations

import json

import pytest
from hanabi_partners import (
    BEST,
    BOTS,
    FIGURES,
    GAMES,
    GUESSERS,
    RESULTS,
    SEEDS,
    TEAM,
    bot,
    matches,
    over_seeds,
    play,
    rows,
)


def test_games_side_by_side_are_those_that_are_played_one_by_one() -> None:
    team = [bot("iggi"), bot("outer")]
    assert play(team, range(6), "validation") == [play(team, [seed], "validation")[0] for seed in range(6)]


def test_who_plays_until_one_card_lies_has_it_where_the_oldest_card_is_a_1() -> None:
    guesser = GUESSERS["play 0 until 1"]
    oldest = [TEAM.task.generate(seed, "validation").hands[0][0].card.rank for seed in range(30)]
    assert play([guesser, guesser], range(30), "validation") == [int(rank == 1) for rank in oldest]


def test_hints_alone_score_nothing() -> None:
    hints = GUESSERS["+1 color R"]
    assert play([hints, hints], range(10), "validation") == [0] * 10


CELLS = {(0, 0): [4, 2], (1, 1): [2, 2], (0, 1): [1, 3], (1, 0): [1, 1]}


@pytest.mark.parametrize(
    ("figure", "by_deal"), [("self-play", [3, 2]), ("cross-play", [1, 2]), ("self-play minus cross-play", [2, 0])]
)
def test_a_figure_is_a_mean_over_models_for_each_deal(figure: str, by_deal: list[int]) -> None:
    assert FIGURES[figure](CELLS, [0, 1]) == by_deal


def test_of_single_models_the_jackknife_is_the_usual_standard_error() -> None:
    """1, 2, 3: the deviation is 1, the error 1/sqrt(3) = 0.577, and 4.303 times that 2.48."""
    cells = {(i, i): [i + 1] for i in range(3)}
    assert over_seeds(cells, FIGURES["self-play"]) == "2.00 (-0.48 to 4.48)"


def test_a_seed_is_left_out_with_all_pairs_that_it_is_in() -> None:
    """Pairs with seed 2 score 0, the other pair 3: 1 on average. Without seed 0 or 1 it is 0, without 2 it is 3:
    sqrt(2/3 * (1 + 1 + 4)) = 2, and 4.303 times that 8.61."""
    cells = {(i, j): [0 if 2 in (i, j) else 3] for i in range(3) for j in range(3)}
    assert over_seeds(cells, FIGURES["cross-play"]) == "1.00 (-7.61 to 9.61)"


def test_every_pair_of_seeds_is_played_in_both_orders() -> None:
    pairs = set(matches())
    assert len(pairs) == len([*matches()])
    assert all((f"trained {i}", f"trained {j}") in pairs for i in SEEDS for j in SEEDS)
    assert all((f"trained {i}", name) in pairs for i in SEEDS for name in BOTS)


def test_the_table_names_the_guesser_that_is_best_on_other_deals() -> None:
    """On those that are reported, `play 1` scores more here."""
    cells = {f"{name} | {name}": "01" for name in (*BOTS, *GUESSERS)} | {"play 1 | play 1": "11"}
    assert [row[:2] for row in rows(cells)][2:] == [
        ("best guesser: play 0 until 1", "0.50 (-0.48 to 1.48)"),
        ("random legal moves", "0.50 (-0.48 to 1.48)"),
    ]


@pytest.mark.skipif(not (RESULTS / "games.json").exists(), reason="nothing was played yet")
def test_the_committed_games_are_of_all_deals() -> None:
    cells = json.loads((RESULTS / "games.json").read_text())
    assert all(len(scores) == GAMES and max(map(int, scores)) <= BEST for scores in cells.values())
    assert next(rows(cells))[0] == "team"
