"""The Sudoku task by itself: replies, moves, rewards, what is shown, instances and splits."""

import json
import os
import pickle
import random
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice, permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms_envs.boards import Board
from pettingllms_envs.core import SPLITS, Unreadable
from pettingllms_envs.environments.sudoku.digging import form
from pettingllms_envs.environments.sudoku.rules import EMPTIES, LEVELS, Sudoku, SudokuState
from pettingllms_envs.environments.sudoku.solver import candidates, grade, shape_of, solutions
from pettingllms_envs.instances import split_of


SIZES = (4, 6, 9)
# Worked by hand: r1c1 is 1 (2, 3 in its box, 4 in its row), then r2c1 is 4; column 4 lacks 4; r4c1 is 2.
BOARD = """
. 2 | 3 4
. 3 | 1 2
----+----
3 4 | 2 1
. 1 | 4 3
"""
CLUES = "0234031234210143"
SOLUTION = "1234431234212143"
TASK = Sudoku()


@pytest.fixture
def state() -> SudokuState:
    return TASK.generate(0, board=BOARD)


def play(state: SudokuState, reply: str) -> SudokuState:
    move = TASK.parse(reply)
    assert not isinstance(move, Unreadable), move
    return TASK.apply(state, move)


def test_a_board_written_out_becomes_the_puzzle_with_its_solution(state: SudokuState) -> None:
    assert state == SudokuState(CLUES, CLUES, SOLUTION)
    assert TASK.generate(7, split="test", level=5, board=CLUES) == state
    assert TASK.generate(0, board=CLUES.replace("0", "_")) == state
    assert TASK.generate(0, board=TASK.show(state).rpartition("\n")[0]) == state
    assert pickle.loads(pickle.dumps(state)) == state
    assert hash(state) == hash(SudokuState(CLUES, CLUES, SOLUTION))


@pytest.mark.parametrize(
    ("reply", "grid", "value", "costs"),
    [
        ("Fill: r1c1=1", "1234031234210143", 1 / 3, {}),
        ("Fill: r1c1=1 r2c1=4 r4c1=2", SOLUTION, 1.0, {}),
        ("Fill: r1c1=2", "2234031234210143", -1 / 3, {}),
        ("Fill: r1c1=1 r2c1=2", "1234231234210143", 0.0, {}),
        ("Fill: r1c1=2 r2c1=1 r4c1=4", "2234131234214143", -1.0, {}),
        ("Fill: r1c2=2 r1c1=1", "1234031234210143", 1 / 3, {}),  # a clue's own digit does no harm
        ("Fill: r1c2=2", CLUES, 0.0, {}),
        ("Fill: r1c1=1 r1c2=4", CLUES, 0.0, {"clue": -0.1}),  # all or nothing
        ("Grid: 1234/4312/3421/2143", SOLUTION, 1.0, {}),
        ("Grid: 1234/.312/3421/.143", "1234031234210143", 1 / 3, {}),
        ("Grid: 1234/3412/2143/4321", CLUES, 0.0, {"clue": -0.1}),  # valid, but not of these clues
        ("Grid: 1111 1111 1111 1111", CLUES, 0.0, {"clue": -0.1}),
    ],
)
def test_a_move_fills_cells_unless_it_contradicts_a_clue(
    state: SudokuState, reply: str, grid: str, value: float, costs: dict[str, float]
) -> None:
    move = TASK.parse(reply)
    assert not isinstance(move, Unreadable)
    after = TASK.apply(state, move)
    assert after == SudokuState(CLUES, grid, SOLUTION)
    assert TASK.value(after) == pytest.approx(value)
    assert TASK.costs(state, move, after) == costs
    assert TASK.solved(after) is (grid == SOLUTION)
    assert state.grid == CLUES


def test_a_wrong_fill_can_be_overwritten_and_a_clue_cannot(state: SudokuState) -> None:
    wrong = play(state, "Fill: r1c1=4")
    assert TASK.value(wrong) == pytest.approx(-1 / 3)
    right = play(wrong, "Fill: r1c1=1")
    assert (right.grid, TASK.value(right)) == ("1234031234210143", pytest.approx(1 / 3))
    assert play(right, "Fill: r1c2=1") == right


def test_no_loop_of_moves_gains_anything(state: SudokuState) -> None:
    now, total = state, 0.0
    for reply in ("Fill: r1c1=1", "Fill: r1c1=2", "Fill: r1c1=1 r2c1=4", "Fill: r2c1=1 r1c1=3") * 3:
        after = play(now, reply)
        total += TASK.value(after) - TASK.value(now)
        now = after
    assert total == pytest.approx(TASK.value(now)) == pytest.approx(-2 / 3)


def test_a_guess_gains_nothing_on_average() -> None:
    rng = random.Random(0)
    gained = []
    for seed in range(400):
        state = TASK.generate(seed)
        fills = tuple((cell, rng.choice("1234")) for cell, clue in enumerate(state.clues) if clue == "0")
        gained.append(TASK.value(TASK.apply(state, fills)))
    assert sum(gained) / len(gained) == pytest.approx(-0.5, abs=0.05)  # right once in four: 1/4 - 3/4


@pytest.mark.parametrize(
    ("reply", "fills"),
    [
        ("Fill: r1c2=3 r2c4=1", "r1c2=3 r2c4=1"),
        ("I think so.\nFill: r2c4=1, r1c2=3\n", "r1c2=3 r2c4=1"),
        ("fill: R1C2=3,R2C4=1", "r1c2=3 r2c4=1"),
        ("FILL:r4c4 = 4", "r4c4=4"),
        ("Fill: r1c2=3 r1c2=3", "r1c2=3"),
        ("Fill: r1c1=1 \r\n  Fill: r1c2=3  \r\n\r\n", "r1c2=3"),
        ("Grid: 1... .... .... ...2", "r1c1=1 r4c4=2"),
        ("Grid:\n1 . | . .\n. . | . .\n----+----\n. . | . .\n. . | . 2", "r1c1=1 r4c4=2"),
        ("Grid:\r\n1 0 0 0\r\n0 0 0 0\r\n0 0 0 0\r\n0 0 0 2\r\n", "r1c1=1 r4c4=2"),
        ("So.\n grid: 1,_,_,_ / _,_,_,_ / ____ / ___2", "r1c1=1 r4c4=2"),
        ("Grid: 2222\nor rather\nGrid: 1...\n....\n....\n...2", "r1c1=1 r4c4=2"),
        ("Grid: 1...\n....\n....\n...2\nFill: r1c1=2", "r1c1=2"),
        ("Grid: 1..............2", "r1c1=1 r4c4=2"),
    ],
)
def test_the_end_of_a_reply_is_read(reply: str, fills: str) -> None:
    move = TASK.parse(reply)
    assert not isinstance(move, Unreadable), move
    assert TASK.write(move) == f"Fill: {fills}"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "it is empty"),
        (" \n\t\r\n", "it is empty"),
        ("r1c2=3", "it ends neither with a line 'Fill:' nor with 'Grid:' and a whole grid"),
        ("Fill: r1c2=3\nDone.", "it ends neither with a line 'Fill:' nor with 'Grid:' and a whole grid"),
        ("The Grid: 1234/3412/2143/4321", "it ends neither with a line 'Fill:' nor with 'Grid:' and a whole grid"),
        ("Moves: U R", "it ends neither with a line 'Fill:' nor with 'Grid:' and a whole grid"),
        ("Fill:", "its list of fills is empty"),
        ("Fill: , ,", "its list of fills is empty"),
        *(
            (f"Fill: {text}", "its list has something other than fills such as r1c2=3, all numbers from 1 to 4")
            for text in (
                "r1c2=5",
                "r0c1=1",
                "r1c5=1",
                "r1c1=0",
                "r1c1=12",
                "r1c1=1.",
                "r1c1=1;r1c2=2",
                "r1c1=1r1c2=2",
                "r1c1",
                "r1c1=\N{ARABIC-INDIC DIGIT ONE}",
                "r1c1=1 and r1c2=2",
                "(1, 1) = 1",
                "Fill: r1c1=1",
            )
        ),
        ("Fill: r1c1=1 r1c1=2", "it fills a cell with two different digits"),
        ("Fill:" + " r1c1=1" * 17, "it has 17 fills, and at most 16 are allowed"),
        ("Fill:" + " r1c1=1" * 100, "its list of fills is too long"),
        ("Grid:", "its grid is not 4 rows of 4 cells"),
        ("Grid: 1234/3412/2143", "its grid is not 4 rows of 4 cells"),
        ("Grid: 12343/412/2143/4321", "its grid is not 4 rows of 4 cells"),
        ("Grid: 1234/3412/2143/4321/1234", "its grid is not 4 rows of 4 cells"),
        ("Grid:\n12\n34\n34\n12\n21\n43\n43\n21", "its grid is not 4 rows of 4 cells"),
        ("Grid: " + "." * 16, "its grid is empty"),
        *(
            (f"Grid: {text}", "its grid has something other than the digits 1 to 4, and . for an empty cell")
            for text in (
                "1235/3412/2143/4321",
                "1234/3412/2143/4321\nDone.",
                "1234/3412/2143/4321 Grid: 1234/3412/2143/4321",
                "[1234]/[3412]/[2143]/[4321]",
            )
        ),
    ],
)
def test_anything_else_is_unreadable_for_a_fixed_reason(reply: str, reason: str) -> None:
    assert TASK.parse(reply) == Unreadable(reason)


@pytest.mark.parametrize(
    "unit", ["r1c1=1 ", "Grid:\n", "Fill: ", "\n", "1", " ", "Grid: 1/", "\r", "İ", "Fill: r1c1=1\n", "=", ","]
)
@pytest.mark.parametrize("opening", ["", "Fill: ", "Grid: ", "Grid:\n"])
def test_a_megabyte_of_anything_is_read_in_milliseconds(opening: str, unit: str) -> None:
    reply = opening + unit * (1_000_000 // len(unit))
    start = time.process_time()
    for size in SIZES:
        Sudoku(size=size).parse(reply)
    assert time.process_time() - start < 5  # 0.002 s where measured; quadratic takes minutes


@settings(max_examples=300, deadline=None)
@given(
    st.text()
    | st.text("Filrdc=1234.:/ \nGr|-+,", max_size=80).map(lambda text: f"Grid:{text}")
    | st.binary().map(repr)
)
def test_no_text_raises(reply: str) -> None:
    for size in SIZES:
        task = Sudoku(size=size)
        move = task.parse(reply)
        if not isinstance(move, Unreadable):
            assert task.parse(task.write(move)) == move


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_what_is_written_is_read_as_the_same_move(data: st.DataObject) -> None:
    task = Sudoku(size=data.draw(st.sampled_from(SIZES)))
    cells = st.integers(0, task.size**2 - 1)
    digits = st.sampled_from("123456789"[: task.size])
    move = tuple(sorted(data.draw(st.dictionaries(cells, digits, min_size=1)).items()))
    assert task.parse(task.write(move)) == move
    whole = tuple((cell, data.draw(digits)) for cell in range(task.size**2))
    assert task.write(whole).startswith("Grid: ")
    assert task.parse(task.write(whole)) == whole


def test_the_board_is_shown_with_what_was_filled_and_what_is_against_the_rules(state: SudokuState) -> None:
    assert TASK.show(state) == ". 2 | 3 4\n. 3 | 1 2\n----+----\n3 4 | 2 1\n. 1 | 4 3\nEmpty cells: 3."
    after = play(state, "Fill: r1c1=4 r4c1=2")
    assert TASK.show(after) == (
        "4 2 | 3 4\n. 3 | 1 2\n----+----\n3 4 | 2 1\n2 1 | 4 3\nEmpty cells: 1. Filled since the start: r1c1=4 r4c1=2."
        "\nAgainst the rules, twice: 4 in row 1."
    )
    assert TASK.show(play(after, "Fill: r1c1=2")).endswith(
        "\nAgainst the rules, twice: 2 in row 1, 2 in column 1, 2 in box r1c1-r2c2."
    )


@pytest.mark.parametrize(
    ("reply", "played", "proposed"),
    [
        ("Fill: r1c1=1", "r1c1=1.", "r1c1=1."),
        (
            "Fill: r1c1=2 r1c2=2",
            "r1c1=2. Now twice, against the rules: 2 in row 1, 2 in box r1c1-r2c2.",
            "r1c1=2. Then twice, against the rules: 2 in row 1, 2 in box r1c1-r2c2.",
        ),
        (
            "Fill: r1c2=2 r4c4=3",
            "Nothing was changed: these digits are there already.",
            "Nothing would be changed: these digits are there already.",
        ),
        (
            "Fill: r1c1=1 r1c2=1 r4c4=4",
            "Nothing was filled, because clues are contradicted: r1c2 is the clue 2, r4c4 is the clue 3.",
            "Nothing would be filled, because clues are contradicted: r1c2 is the clue 2, r4c4 is the clue 3.",
        ),
        (
            "Grid: 4444/4444/4444/4444",
            "Nothing was filled, because clues are contradicted: r1c2 is the clue 2, r1c3 is the clue 3, r2c2 is the"
            " clue 3, r2c3 is the clue 1, r2c4 is the clue 2, and 5 more.",
            "Nothing would be filled, because clues are contradicted: r1c2 is the clue 2, r1c3 is the clue 3, r2c2 is"
            " the clue 3, r2c3 is the clue 1, r2c4 is the clue 2, and 5 more.",
        ),
    ],
)
def test_a_move_is_described_with_what_comes_of_it(state: SudokuState, reply: str, played: str, proposed: str) -> None:
    move = TASK.parse(reply)
    assert not isinstance(move, Unreadable)
    after = TASK.apply(state, move)
    assert TASK.describe(state, move, after) == played
    assert TASK.describe(state, move, after, proposed=True) == proposed


def test_only_conflicts_that_a_move_brings_are_in_its_description(state: SudokuState) -> None:
    before = play(state, "Fill: r1c1=4")  # twice in row 1
    move = ((4, "4"),)
    assert TASK.describe(before, move, TASK.apply(before, move)) == (
        "r2c1=4. Now twice, against the rules: 4 in column 1, 4 in box r1c1-r2c2."
    )


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Fill: r1c2=2", {"success": False, "empty": 3, "wrong": 0, "conflicts": 0, "clues": 13}),
        ("Fill: r1c1=1 r2c1=2", {"success": False, "empty": 1, "wrong": 1, "conflicts": 2, "clues": 13}),
        ("Fill: r1c1=2 r2c1=2 r4c1=2", {"success": False, "empty": 0, "wrong": 2, "conflicts": 4, "clues": 13}),
        ("Grid: 1234/4312/3421/2143", {"success": True, "empty": 0, "wrong": 0, "conflicts": 0, "clues": 13}),
    ],
)
def test_the_outcome_counts_cells_and_conflicts(state: SudokuState, reply: str, expected: dict[str, object]) -> None:
    assert TASK.outcome(play(state, reply)) == expected


@pytest.mark.parametrize("size", SIZES)
def test_the_oracle_solves_in_one_reply_even_after_wrong_fills(size: int) -> None:
    task = Sudoku(size=size)
    for seed in range(20):
        state = task.generate(seed)
        cell = state.clues.index("0")
        wrong = task.apply(state, ((cell, "2" if state.solution[cell] == "1" else "1"),))
        for now in (state, wrong):
            move = task.parse(task.write(task.oracle(now)))
            assert not isinstance(move, Unreadable)
            solved = task.apply(now, move)
            assert task.solved(solved)
            assert task.value(solved) == 1
            assert task.oracle(solved) == tuple(enumerate(state.solution))


@pytest.mark.parametrize("size", SIZES)
def test_the_solution_is_in_no_text_that_a_player_reads(size: int) -> None:
    task = Sudoku(size=size)
    for seed in range(20):
        state = task.generate(seed)
        text = task.rules() + task.reply_format() + task.show(state)
        shown = "".join(sign for sign in text if sign.isdigit())
        assert state.solution not in shown
        assert task.write(task.oracle(state)) not in text


@pytest.mark.parametrize("size", SIZES)
def test_blind_replies_are_readable_and_gain_next_to_nothing(size: int) -> None:
    task = Sudoku(size=size)
    moves = [task.parse(reply) for reply in task.blind_replies]
    assert len(set(moves)) == len(moves) > 10
    totals = [0.0] * len(moves)
    for seed in range(100):
        state = task.generate(seed)
        for number, move in enumerate(moves):
            assert not isinstance(move, Unreadable)
            after = task.apply(state, move)
            totals[number] += task.value(after) + task.solved(after) + sum(task.costs(state, move, after).values())
    assert max(totals) / 100 < 0.03


def test_the_example_of_the_reply_format_solves_no_generated_puzzle() -> None:
    for size in SIZES:
        task = Sudoku(size=size)
        example = task.reply_format().split("such as ")[1].split(" (")[0]
        move = task.parse(example)
        assert not isinstance(move, Unreadable)
        assert len(move) < EMPTIES[size][0]


def test_tiles_show_boxes_clues_fills_and_conflicts(state: SudokuState) -> None:
    assert isinstance(TASK, Board)
    rows = TASK.tiles(play(state, "Fill: r1c1=4 r4c1=2"))
    assert [[tile.text for tile in row] for row in rows] == [
        ["4", "2", "3", "4"],
        ["", "3", "1", "2"],
        ["3", "4", "2", "1"],
        ["2", "1", "4", "3"],
    ]
    assert [rows[0][0].ink, rows[0][3].ink, rows[3][0].ink] == ["#c62828", "#1c1c1c", "#2f6fde"]
    papers = [[tile.paper for tile in row] for row in rows]
    assert papers[0][0] == papers[1][1] == papers[2][2] != papers[0][2] == papers[2][0]


@pytest.mark.parametrize("size", SIZES)
def test_rules_name_the_size_and_the_boxes(size: int) -> None:
    high, wide = {4: (2, 2), 6: (2, 3), 9: (3, 3)}[size]
    rules = Sudoku(size=size).rules()
    assert f"the {size} x {size} grid" in rules
    assert f"{high} rows high and {wide} columns wide" in rules


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("level", [None, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("size", SIZES)
def test_an_instance_has_one_solution_and_is_what_its_level_says(size: int, level: int | None, split: str) -> None:
    task = Sudoku(size=size)
    low, high = EMPTIES[size][2:] if level is None else LEVELS[size][level - 1][:2]
    for seed in range(5):
        state = task.generate(seed, split, level)
        assert state == task.generate(seed, split=split, level=level)
        assert state.grid == state.clues
        assert low <= state.clues.count("0") <= high
        assert task.value(state) == 0
        assert [*islice(solutions(size, candidates(size, state.clues)), 2)] == [state.solution]
        if level is not None and LEVELS[size][level - 1].grades:
            assert grade(size, state.clues) in LEVELS[size][level - 1].grades


@pytest.mark.parametrize("size", SIZES)
def test_seeds_splits_and_levels_give_different_instances(size: int) -> None:
    task = Sudoku(size=size)
    drawn = [task.generate(seed, split, level) for seed in range(10) for split in SPLITS for level in (None, 1, 2)]
    assert len(set(drawn)) == len(drawn)


def test_a_level_is_the_same_whatever_the_settings() -> None:
    assert Sudoku(min_empty=3, max_empty=4).generate(1, level=5) == TASK.generate(1, level=5)


@pytest.mark.parametrize(
    ("settings", "low", "high"),
    [
        ({}, 6, 10),
        ({"min_empty": 11}, 11, 11),
        ({"max_empty": 4}, 4, 4),
        ({"min_empty": 3, "max_empty": 3}, 3, 3),
        ({"size": 6}, 14, 20),
        ({"size": 9}, 41, 45),
        ({"size": 9, "max_empty": 42}, 41, 42),
    ],
)
def test_the_settings_decide_the_number_of_empty_cells(settings: dict[str, int], low: int, high: int) -> None:
    task = Sudoku(**settings)
    assert (task.min_empty, task.max_empty) == (low, high)
    num = {task.generate(seed).clues.count("0") for seed in range(60)}
    assert num == set(range(low, high + 1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 5}, "size is 5; expected one of 4, 6, 9. Choose one."),
        ({"size": 4.0}, "size is 4.0; expected one of 4, 6, 9. Choose one."),
        ({"size": "9"}, "size is '9'; expected one of 4, 6, 9. Choose one."),
        (
            {"min_empty": 2},
            "min_empty of a grid of size 4 is 2; expected a whole number from 3 to 11. Choose another.",
        ),
        (
            {"max_empty": 12},
            "max_empty of a grid of size 4 is 12; expected a whole number from 3 to 11. Choose another.",
        ),
        (
            {"size": 9, "max_empty": 64},
            "max_empty of a grid of size 9 is 64; expected a whole number from 10 to 54. Choose another.",
        ),
        (
            {"size": 6, "min_empty": 7.5},
            "min_empty of a grid of size 6 is 7.5; expected a whole number from 6 to 24. Choose another.",
        ),
        (
            {"min_empty": 9, "max_empty": 8},
            "max_empty is 8; expected at least min_empty, 9. Raise it.",
        ),
    ],
)
def test_impossible_settings_are_errors_that_say_what_to_do(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole text is compared
        Sudoku(**settings)  # type: ignore[arg-type]
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"split": "dev"}, "split is 'dev'; expected one of 'train', 'validation', 'test'."),
        ({"level": 6}, "level is 6; expected one of 1, 2, 3, 4, 5."),
        ({"level": 0}, "level is 0; expected one of 1, 2, 3, 4, 5."),
        (
            {"board": "12"},
            "board is '12'; expected 16 cells, each a digit from 1 to 4, or 0, . or _ for an empty one. Write it out"
            " row by row, or choose another size.",
        ),
        (
            {"board": "0234 0312 3421 014x"},
            "board is '0234 0312 3421 014x'; expected 16 cells, each a digit from 1 to 4, or 0, . or _ for an empty"
            " one. Write it out row by row, or choose another size.",
        ),
        (
            {"board": 5},
            "board is 5; expected 16 cells, each a digit from 1 to 4, or 0, . or _ for an empty one. Write it out row"
            " by row, or choose another size.",
        ),
        (
            {"board": SOLUTION},
            f"board {SOLUTION} has no empty cell; expected a puzzle with exactly one solution. Correct the board.",
        ),
        (
            {"board": "1100 0000 0000 0000"},
            "board 1100000000000000 has a digit twice: 1 in row 1, 1 in box r1c1-r2c2; expected a puzzle with exactly"
            " one solution. Correct the board.",
        ),
        (
            {"board": "1230000400000000"},
            "board 1230000400000000 has no solution; expected a puzzle with exactly one solution. Correct the board.",
        ),
        (
            {"board": "0" * 16},
            f"board {'0' * 16} has more than one solution; expected a puzzle with exactly one solution. Correct the"
            " board.",
        ),
    ],
)
def test_wrong_fields_are_errors_that_say_what_to_do(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole text is compared
        TASK.generate(0, **fields)  # type: ignore[arg-type]
    assert str(error.value) == message


def test_instances_are_equal_in_another_process_with_another_hash_seed() -> None:
    program = (
        "import json; from pettingllms_envs.environments.sudoku.rules import Sudoku\n"
        "print(json.dumps([Sudoku(size=size).generate(seed, split, level) for size in (4, 6, 9) for seed in "
        "(0, 1, -5, 10**20) for split in ('train', 'test') for level in (None, 3)]))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    ]
    assert outputs[0] == outputs[1]
    here = [
        list(Sudoku(size=size).generate(seed, split, level))
        for size in (4, 6, 9)
        for seed in (0, 1, -5, 10**20)
        for split in ("train", "test")
        for level in (None, 3)
    ]
    assert json.loads(outputs[0]) == here


def test_generating_touches_no_global_random_numbers() -> None:
    random.seed(3)
    before = random.getstate()
    for size in SIZES:
        Sudoku(size=size).generate(0)
    assert random.getstate() == before


def lines(thick: int, size: int) -> list[tuple[int, ...]]:
    """All orders of the rows that keep bands together."""
    bands = [range(start, start + thick) for start in range(0, size, thick)]
    return [
        sum(rows, ()) for order in permutations(bands) for rows in product(*(permutations(band) for band in order))
    ]


def canonical(size: int, thick: int, wide: int) -> Callable[[str], str]:
    """The least of all symmetric copies of a puzzle, digits renamed in the order in which they appear."""
    orders = [
        tuple(r * size + c for r in rows for c in columns)
        for rows in lines(thick, size)
        for columns in lines(wide, size)
    ]
    if thick == wide:
        orders += [tuple(cell % size * size + cell // size for cell in order) for order in orders]

    def least(puzzle: str) -> str:
        def copy(order: tuple[int, ...]) -> str:
            names = {"0": "0"}
            return "".join([names.setdefault(puzzle[cell], str(len(names))) for cell in order])

        return min(map(copy, orders))

    return least


def test_splits_of_4_by_4_are_disjoint_up_to_every_symmetry_on_thousands() -> None:
    least = canonical(4, 2, 2)
    found = {
        split: {least(puzzle) for puzzle in {TASK.generate(seed, split).clues for seed in range(1200)}}
        for split in SPLITS
    }
    assert all(len(forms) > 200 for forms in found.values())
    assert not found["train"] & found["validation"]
    assert not found["train"] & found["test"]
    assert not found["validation"] & found["test"]


@pytest.mark.parametrize(("size", "number"), [(6, 400), (9, 100), pytest.param(9, 400, marks=pytest.mark.slow)])
def test_splits_of_larger_sizes_are_disjoint_by_a_form_that_copies_share(size: int, number: int) -> None:
    # That copies share it is shown in test_sudoku_solver.py.
    task = Sudoku(size=size)
    for split in SPLITS:
        for seed in range(number):
            assert split_of(form(size, task.generate(seed, split).clues)) == split


@pytest.mark.slow
def test_splits_of_6_by_6_are_disjoint_up_to_every_symmetry() -> None:
    least = canonical(6, 2, 3)
    found = [{least(Sudoku(size=6).generate(seed, split).clues) for seed in range(1000)} for split in SPLITS]
    assert sum(map(len, found)) == len(set().union(*found)) > 2900


@pytest.mark.parametrize(
    ("settings", "num"),
    [
        ({}, 4000),
        pytest.param({"size": 6, "min_empty": 20, "max_empty": 24}, 300, marks=pytest.mark.slow),
        ({"size": 9, "min_empty": 48, "max_empty": 52}, 200),
    ],
)
def test_the_splits_are_equally_hard(settings: dict[str, int], num: int) -> None:
    task = Sudoku(**settings)
    empties, grades = {}, {}
    for split in SPLITS:
        puzzles = [task.generate(seed, split).clues for seed in range(num)]
        empties[split] = [puzzle.count("0") for puzzle in puzzles]
        grades[split] = [1] * num if task.size == 4 else [grade(task.size, puzzle) for puzzle in puzzles]
    for measure in (empties, grades):
        means = {split: sum(values) / num for split, values in measure.items()}
        everything = [value for values in measure.values() for value in values]
        mean = sum(everything) / len(everything)
        spread = (sum((value - mean) ** 2 for value in everything) / len(everything)) ** 0.5
        for split in SPLITS[1:]:
            assert abs(means[split] - means["train"]) <= 4 * spread * (2 / num) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("level", [None, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("size", SIZES)
def test_or_tools_finds_exactly_one_solution_of_10000_instances_or_2000_large_ones(
    size: int, level: int | None
) -> None:
    cp_model = pytest.importorskip("ortools.sat.python.cp_model")
    task, units = Sudoku(size=size), shape_of(size).units
    shares = dict.fromkeys(("train", "validation", "test"), 3334 if size < 9 else 667)
    least = canonical(4, 2, 2) if size == 4 else lambda clues: form(size, clues)
    forms: dict[str, set[object]] = {}
    for split, num in shares.items():
        puzzles = {state.clues: state.solution for state in (task.generate(seed, split, level) for seed in range(num))}
        forms[split] = set(map(least, puzzles))
        for clues, solution in puzzles.items():
            assert all({solution[cell] for cell in unit} == set("123456789"[:size]) for unit in units)
            assert all(clue in ("0", digit) for clue, digit in zip(clues, solution, strict=True))
            model = cp_model.CpModel()
            cells = [model.new_int_var(*((1, size) if clue == "0" else (int(clue),) * 2), "") for clue in clues]
            for unit in units:
                model.add_all_different([cells[cell] for cell in unit])
            model.add_forbidden_assignments(cells, [list(map(int, solution))])
            solver = cp_model.CpSolver()
            solver.parameters.num_workers = 1
            assert solver.solve(model) == cp_model.INFEASIBLE, clues
    assert not forms["train"] & forms["validation"]
    assert not forms["train"] & forms["test"]
    assert not forms["validation"] & forms["test"]
