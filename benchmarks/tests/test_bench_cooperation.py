"""The tables of benchmarks/bench_cooperation.py: what scripted agents reach in each form."""

import pytest
from bench_cooperation import (
    WORKFLOWS,
    bare_question,
    forms,
    guessers,
    guessers_of_facts,
    main,
    messages,
    play_all,
    unread,
    worth,
)
from scripted_teams import MESSAGES


def test_teams_and_full_views_are_always_right_and_the_others_are_not() -> None:
    played = list(play_all(20))
    _, *rows = forms(played)
    assert [row[1][:6] for row in rows] == ["100.0%"] * 7
    assert [row[2][:6] for row in rows] == ["100.0%"] * 7
    assert all(float(cell.split("%")[0]) < 100 for row in rows for cell in row[3:])
    assert [row[5] for row in rows] == ["56.3%", "50.8%", "60.5%", "2.5%", "2.5%", "2.5%", "12.5%"]
    heads, *rows = worth(played)
    assert heads[1:4] == ("cooperation gain", "cost of distributed information", "value of communication")
    assert heads[4:] == ("value of the team's order",)
    assert [row[2][:5] for row in rows] == ["+0.0 "] * 7


def test_the_bound_is_within_the_interval_of_the_best_guessers() -> None:
    _, *rows = guessers(500)
    assert [row[2] for row in rows] == ["55.5%", *["12.5%"] * 9]
    assert {row[3] for row in rows} == {"yes"}


def test_the_bounds_are_within_the_intervals_of_the_best_guessers_where_a_name_has_several_facts() -> None:
    _, *rows = guessers_of_facts(100)
    lone = ["12.5%"] * 3
    assert [row[2] for row in rows[:12]] == [*lone, "25.0%", *lone, "12.5%", *lone, "12.5%"]
    assert [row[2] for row in rows[12:]] == ["11.1%"] * 12
    assert {row[3] for row in rows} == {"yes"}


def test_a_form_that_need_not_be_read_is_solved_without_and_one_that_has_to_be_is_not() -> None:
    _, *rows = unread(30)
    assert [row[0] for row in rows] == [*WORKFLOWS, "bound"]
    one, two = ([float(row[column].split("%")[0]) for row in rows] for column in (1, 2))
    assert one[:3] == [100.0] * 3
    assert max(one[3:7]) <= 60  # one agent with both archives, which it searches in any order: 28% of 2,000
    assert max(two[:7]) <= 30  # at most 12.5% of many
    assert (one[7], two[7]) == (100.0, 12.5)


def test_a_message_arrives_if_its_name_comes_before_the_capacity() -> None:
    _, *rows = messages(10)
    right = [[cell.startswith("100.0%") for cell in row[2:]] for row in rows]
    assert right == [[False, True, True, True], [False, False, True, True], [False, False, False, True]] * 3


def test_messages_are_as_long_as_the_docstring_says() -> None:
    assert [len(each.format("p3")) for each in MESSAGES.values()] == [2, 47, 108]


def test_the_bare_question_seldom_shows_the_last_passage() -> None:
    _, *rows = bare_question(50)
    assert [row[0] for row in rows] == ["2", "3", "4"]
    assert all(float(cell.split("%")[0]) <= 10 for row in rows for cell in row[1:])


@pytest.mark.parametrize("name", ["--episodes", "--trials"])
def test_a_number_of_episodes_out_of_range_is_an_error(name: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([name, "0"])
