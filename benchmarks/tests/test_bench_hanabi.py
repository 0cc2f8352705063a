"""The tables of benchmarks/bench_hanabi.py."""

import pytest
from bench_hanabi import BOTS, cross_play, interval, main, mini_decks, play


def test_a_mean_has_the_interval_of_its_standard_error() -> None:
    """1 and 3: the mean is 2, the deviation the root of 2, the error 1, and 1.96 times that the half width."""
    assert interval([1, 3]) == "2.00 (0.04 to 3.96)"


def test_the_same_deals_are_played_by_all_and_a_lost_life_leaves_cards_but_no_score() -> None:
    assert play(("iggi", "iggi"), 2, 3) == play(("iggi", "iggi"), 2, 3)
    games = play(("random", "random"), 1, 20)
    assert any(game.score == 0 < game.cards for game in games)
    assert all(game.score in (0, game.cards) for game in games)


def test_every_table_has_a_row_and_a_column_for_each_bot() -> None:
    assert [row[0] for row in mini_decks(2)] == ["bot", *BOTS]
    for _, rows in cross_play(2):
        head, *body = rows
        assert head == ("", *BOTS)
        assert [list(column) for column in zip(*[row[1:] for row in body], strict=True)] == [
            [*row[1:]] for row in body
        ]


def test_a_number_of_games_out_of_range_is_an_error() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--games", "1"])
