"""Sokoban without the task: levels as text, dead positions, bounds, and optimal solutions."""

import csv
import itertools
import random
import time
from collections import deque
from pathlib import Path

import pytest

from data_files import SHIPPED, public
from pettingllms_envs.environments.sokoban.bound import DEAD, FAR, Position, lower_bound, matching, region, room_of
from pettingllms_envs.environments.sokoban.generator import Difficulty, draws
from pettingllms_envs.environments.sokoban.levels import load_levels, read_level, write_level
from pettingllms_envs.environments.sokoban.solver import SearchLimitError, Solution, solve


SMALL = "######\n#@$-.#\n######"


def levels_of(name: str) -> tuple[tuple[str, str], ...]:
    return load_levels(SHIPPED / name if (SHIPPED / name).exists() else public(name))


def min_pushes() -> dict[str, int]:
    """What an exhaustive search found of these files; levels where it stopped are left out."""
    with (SHIPPED / "sokoban_min_pushes.tsv").open() as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {row["level_id"]: int(row["min_pushes"]) for row in rows if row["min_pushes"]}


def played(position: Position, moves: str) -> int:
    """Play the moves on the board as text; all must be possible and the last must solve it. Returns the pushes."""
    board, width, pushes = list(write_level(position)), position.width + 1, 0
    steps = {"U": -width, "D": width, "L": -1, "R": 1}
    for letter in moves:
        here = next(i for i, symbol in enumerate(board) if symbol in "@+")
        there, behind = here + steps[letter], here + 2 * steps[letter]
        if board[there] in "$*":
            assert board[behind] in "-."
            board[behind] = "*" if board[behind] == "." else "$"
            board[there] = "." if board[there] == "*" else "-"
            pushes += 1
        assert board[there] in "-."
        board[there] = "+" if board[there] == "." else "@"
        board[here] = "." if board[here] == "+" else "-"
    assert "$" not in board
    return pushes


def naive_pushes(position: Position) -> int | None:
    """Fewest pushes: steps cost nothing, pushes one; a search over sets of cells that shares nothing with ours."""
    width, walls, goal_mask, box_mask, start = position
    cells = range(walls.bit_length())
    goals = frozenset(cell for cell in cells if goal_mask >> cell & 1)
    boxes = frozenset(cell for cell in cells if box_mask >> cell & 1)
    queue = deque([(0, start, boxes)])
    done = set()
    while queue:
        pushes, player, boxes = queue.popleft()
        if (player, boxes) in done:
            continue
        done.add((player, boxes))
        if boxes == goals:
            return pushes
        for step in (-width, width, -1, 1):
            there, behind = player + step, player + 2 * step
            if walls >> there & 1:
                continue
            if there not in boxes:
                queue.appendleft((pushes, there, boxes))
            elif not walls >> behind & 1 and behind not in boxes:
                queue.append((pushes + 1, there, boxes - {there} | {behind}))
    return None


def positions(number: int, *, shuffled: bool) -> list[Position]:
    """Starts of random instances; shuffled ones have their boxes and player anywhere, and mostly no solution."""
    rng, found = random.Random(8), []
    for boxes, size in itertools.cycle([(1, 6), (2, 6), (3, 6), (2, 7)]):
        start = next(filter(None, draws(size, Difficulty(boxes, 3), "train", rng)))
        position = start.position
        if shuffled:
            free = [cell for cell in range(size * size) if not position.walls >> cell & 1]
            player, *places = rng.sample(free, boxes + 1)
            position = position._replace(player=player, boxes=sum(1 << cell for cell in places))
        found.append(position)
        if len(found) == number:
            return found
    raise AssertionError


@pytest.mark.parametrize(
    ("by", "board", "expected"),
    [
        ("moves", SMALL, "RR"),
        ("moves", "######\n#.-$@#\n######", "LL"),
        ("pushes", "#####\n#@--#\n#-$-#\n#-.-#\n#####", "RD"),
        ("moves", "#####\n#---#\n#-$@#\n#-.-#\n#####", "ULD"),
        # The lower box first, or it is in the way of the upper one; then round that one on its left.
        ("moves", "######\n#--#-#\n#-$--#\n#@$.-#\n#-.--#\n######", "RLUURDD"),
        ("pushes", "######\n#--#-#\n#-$--#\n#@$.-#\n#-.--#\n######", "RLUURDD"),
    ],
)
def test_a_solution_is_the_one_worked_out_by_hand(by: str, board: str, expected: str) -> None:
    position = read_level(board)
    solution = solve(position, by)
    assert solution is not None
    assert solution.moves == expected


@pytest.mark.parametrize("shuffled", [False, True])
def test_solutions_are_optimal_in_pushes_and_only_missing_where_there_is_none(shuffled: bool) -> None:
    solved = 0
    for position in positions(150, shuffled=shuffled):
        expected, solution = naive_pushes(position), solve(position, "pushes")
        if solution is None:
            assert expected is None
            continue
        assert played(position, solution.moves) == solution.pushes == expected
        other = solve(position, "moves")
        assert other is not None
        assert played(position, other.moves) == other.pushes >= solution.pushes
        assert len(other.moves) <= len(solution.moves)
        solved += 1
    assert solved == 150 if not shuffled else 20 < solved < 130


def test_fewest_moves_and_fewest_pushes_are_not_the_same() -> None:
    differ = 0
    for position in positions(400, shuffled=False):
        by_moves, by_pushes = solve(position, "moves"), solve(position, "pushes")
        assert by_moves is not None
        assert by_pushes is not None
        differ += by_moves.pushes > by_pushes.pushes and len(by_moves.moves) < len(by_pushes.moves)
    assert differ > 0


@pytest.mark.parametrize("shuffled", [False, True])
def test_the_bound_is_never_above_the_fewest_pushes(shuffled: bool) -> None:
    for position in positions(200, shuffled=shuffled):
        bound, pushes = lower_bound(position), naive_pushes(position)
        assert (bound == DEAD and pushes is None) or pushes is None or 0 <= bound <= pushes
        assert (bound == 0) == (position.boxes == position.goals)


@pytest.mark.parametrize(
    ("board", "expected"),
    [
        (SMALL, 2),
        ("#######\n#-----#\n#@$-$-#\n#--.--#\n#-.---#\n#######", 2 + 2),  # not 2 and 4, the other way
        ("#######\n#*@$-.#\n#######", 2),  # a box on its goal costs nothing
        ("#######\n#-----#\n#-----#\n#@-*$.#\n#-----#\n#-----#\n#######", 1),
    ],
)
def test_the_bound_is_the_cheapest_matching(board: str, expected: int) -> None:
    assert lower_bound(read_level(board)) == expected


DEAD_BOARDS = {
    "a box in a corner": "#####\n#$-.#\n#-@-#\n#####",
    "a box at a wall without a goal": "######\n#-$--#\n#@---#\n#--.-#\n######",
    "two boxes at a wall, one goal there": "#######\n#$-$-.#\n#--@--#\n#--.--#\n#######",
    "two boxes side by side at a wall": "#######\n#-$$..#\n#--@--#\n#-----#\n#######",
    "two boxes side by side between dead cells": "#######\n#-----#\n#@-*$.#\n#-----#\n#######",
    "a block of four boxes": "#######\n#.----#\n#-$$--#\n#-$$@-#\n#..--.#\n#-----#\n#######",
    "the player on the wrong side": "#######\n#.@$--#\n#######",
}


@pytest.mark.parametrize("board", DEAD_BOARDS.values(), ids=DEAD_BOARDS)
def test_a_dead_position_is_found_out_without_a_search(board: str) -> None:
    with pytest.raises(ValueError, match="it has no solution"):
        read_level(board)


def test_a_position_that_only_a_search_finds_out_has_no_solution() -> None:
    position = read_level("#########\n#@$-$-..#\n#########")
    assert lower_bound(position) == (6 + 7) - (2 + 4)
    assert solve(position, "moves") is None
    assert solve(position, "pushes") is None


def test_prices_depend_on_the_side_on_which_the_player_is() -> None:
    # A box in a corridor can be pushed away from the player only. It is in cell 10, and the goal in cell 12.
    room = room_of(*read_level("#######\n#@-$-.#\n#######")[:3])
    left, right = room.prices[10]
    assert (left, right) == ((0b11 << 8, (2,)), (0b11 << 11, (FAR,)))


def test_a_solved_position_needs_no_move() -> None:
    assert solve(read_level("#####\n#@*-#\n#####"), "pushes") == Solution("", 0, 0)


def test_a_search_gives_up_at_its_limit_and_says_so() -> None:
    position = read_level("########\n#------#\n#-$--$-#\n#--@---#\n#-.--.-#\n#--$-.-#\n#------#\n########")
    with pytest.raises(SearchLimitError, match="no solution within 5 nodes"):
        solve(position, "moves", max_nodes=5)
    with pytest.raises(ValueError, match="by is 'steps'; expected one of 'moves', 'pushes'"):
        solve(position, "steps")


def test_the_cheapest_matching_is_that_of_all_permutations() -> None:
    rng = random.Random(0)
    for _ in range(500):
        size = rng.randint(1, 5)
        prices = [[rng.choice([FAR, *range(12)]) for _ in range(size)] for _ in range(size)]
        best = min(
            sum(prices[row][column] for row, column in enumerate(order))
            for order in itertools.permutations(range(size))
        )
        assert min(matching(prices), FAR) == min(best, FAR)


def test_a_region_is_what_a_walk_reaches() -> None:
    rng = random.Random(2)
    for _ in range(200):
        width, height = rng.randint(3, 9), rng.randint(3, 9)
        inner = [row * width + column for row in range(1, height - 1) for column in range(1, width - 1)]
        free = set(rng.sample(inner, rng.randint(1, len(inner))))
        start = rng.choice(sorted(free))
        reached, queue = {start}, [start]
        for cell in queue:
            for other in (cell - 1, cell + 1, cell - width, cell + width):
                if other in free and other not in reached:
                    reached.add(other)
                    queue.append(other)
        expected = sum(1 << cell for cell in reached)
        assert region(sum(1 << cell for cell in free), 1 << start, width) == expected


@pytest.mark.parametrize(
    "text",
    [
        SMALL,
        "\n\n######\r\n#@$ .#\r\n######\r\n\r\n",
        "######\n#@$_.#\n######\n",
        "; a comment\n######\n#@$-.#\n######\n; the end",
        "6#|#@$-.#|6#",
        "6#\n#@$1-.#\n6#",
    ],
)
def test_all_ways_of_writing_a_level_mean_the_same(text: str) -> None:
    assert write_level(read_level(text)) == SMALL


def test_cells_out_of_reach_become_walls_and_boxes_on_goals_among_them_go_with_them() -> None:
    position = read_level("  ####\n  #@-###\n###$-#*#\n#--.####\n#####")
    assert write_level(position) == "########\n###@-###\n###$-###\n#--.####\n########"
    assert read_level(write_level(position)) == position


def test_levels_of_random_instances_survive_writing_and_reading() -> None:
    for position in positions(100, shuffled=False):
        assert read_level(write_level(position)) == position


@pytest.mark.parametrize(
    ("text", "where", "given", "expected"),
    [
        ("#####\n#-$.#\n#####", "line 1", "0 players", "expected one"),
        ("######\n#@$.@#\n######", "line 2", "2 players", "expected one"),
        ("######\n#@$$.#\n######", "line 1", "2 boxes and 1 goals", "as many goals as boxes"),
        ("######\n#@$..#\n######", "line 1", "1 boxes and 2 goals", "as many goals as boxes"),
        ("######\n#@---#\n######", "line 1", "no box", "expected at least one"),
        ("\n######\n#@$x.#\n######", "line 3", "the symbol 'x'", "expected only"),
        (
            "; 0\n#####\n#@$.#\n#####\n\n; 1\n#####\n#.$@#\n#####",
            "line 5",
            "as in a file of several levels",
            "load_levels",
        ),
        ("#####\n#@$.#\n#####\n; 1\n#####\n#.$@#\n#####", "line 4", "as in a file of several levels", "load_levels"),
        ("######\n#@$-.\n######", "line 2", "can leave the board", "walls all round"),
        ("######\n#@$-.#\n#-####", "line 3", "can leave the board", "walls all round"),
        ("#-####\n#@$-.#\n######", "line 1", "can leave the board", "walls all round"),
        ("@#####\n#-$-.#\n######", "line 1", "can leave the board", "walls all round"),
        ("########\n#@$-.#$#\n########", "line 1", "2 boxes and 1 goals", "as many goals as boxes"),
        ("#########\n#@$-.#$.#\n#########", "line 1", "can never reach", "Open a wall"),
        ("####\n#@.#", "line 1", "2 rows", "expected 3 to 100"),
        ("#" * 101 + "\n#@$.#\n#####", "line 1", "at most 101 cells", "expected 3 to 100"),
        ("", "line 1", "0 rows", "expected 3 to 100"),
        ("#####\n#$@.#\n#####", "line 1", "has no solution", "expected a level that can be solved"),
    ],
)
def test_what_is_no_level_is_refused_with_the_line_what_was_given_and_what_was_expected(
    text: str, where: str, given: str, expected: str
) -> None:
    with pytest.raises(ValueError, match=where) as error:
        read_level(text, "level x")
    message = str(error.value)
    assert message.startswith(f"level x, {where}: ")
    assert given in message
    assert expected in message
    assert message.endswith(".")


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("; 0\n{0}\n\n; 1\n{0}\n", ("0", "1")),  # Boxoban
        ("; a\n\n{0}\n\n; b\n\n{0}\n", ("a", "b")),
        ("{0}\n; a\n\n{0}\n; b\n", ("a", "b")),
        ("Levels of mine\n\n{0}\nTitle: a\nAuthor: me\n\n{0}\nTitle: b\nAuthor: me", ("Title: a", "Title: b")),
        ("; by me\n; a\n{0}\n; b\n{0}", ("a", "b")),
        ("{0}\n\n{0}\n", ("1", "2")),
        ("\ufeff{0}\n", ("1",)),  # of an editor on Windows
        ("; a\r\n######\r\n#@$ .#\r\n######\r\n", ("a",)),
    ],
)
def test_a_file_of_levels_may_have_its_ids_before_or_after_them(
    tmp_path: Path, text: str, ids: tuple[str, ...]
) -> None:
    path = tmp_path / "levels.txt"
    path.write_bytes(text.format(SMALL).encode())
    levels = load_levels(path)
    assert tuple(name for name, _ in levels) == ids
    assert {write_level(read_level(board)) for _, board in levels} == {SMALL}


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ("; a\n{0}\n\n; b\n#####\n#-$.#\n#####\n", "level b, line 7", "0 players"),
        ("; a\n{0}\n\n; b\n#####\n#@$?#\n#####\n", "level b, line 8", "the symbol '?'"),
        ("{0}\n\n#####\n#$@.#\n#####", "level 2, line 5", "no solution"),
        ("nothing\n", "levels.txt has no level in it", "expected rows"),
    ],
)
def test_an_error_in_a_file_names_file_level_and_line(tmp_path: Path, text: str, where: str, problem: str) -> None:
    path = tmp_path / "levels.txt"
    path.write_text(text.format(SMALL))
    with pytest.raises(ValueError, match=problem.replace("?", r"\?")) as error:
        load_levels(path)
    assert str(error.value).startswith(str(path))
    assert where in str(error.value)


@pytest.mark.parametrize(
    ("name", "number"),
    [("microban.txt", 155), ("boxoban_unfiltered_sample.txt", 500), ("sokoban6x6_sample.txt", 300)],
)
def test_real_level_files_are_read_whole_and_survive_writing(name: str, number: int) -> None:
    levels = levels_of(name)
    assert len({level for level, _ in levels}) == len(levels) == number
    for _, board in levels:
        position = read_level(board)
        assert read_level(write_level(position)) == position


@pytest.mark.parametrize("name", ["sokoban6x6_sample.txt", "boxoban_unfiltered_sample.txt"])
def test_fewest_pushes_are_those_of_the_exhaustive_search(name: str) -> None:
    expected = min_pushes()
    for level, board in levels_of(name)[::3]:
        position = read_level(board)
        solution = solve(position, "pushes")
        assert solution is not None
        assert played(position, solution.moves) == solution.pushes == expected[level]


@pytest.mark.slow
def test_all_levels_of_the_boxoban_sample_are_solved_in_ten_seconds_each_with_the_fewest_pushes() -> None:
    expected = min_pushes()
    for level, board in levels_of("boxoban_unfiltered_sample.txt"):
        began = time.monotonic()
        solution = solve(read_level(board), "pushes")
        assert solution is not None
        assert time.monotonic() - began < 10
        assert solution.pushes == expected[level]


@pytest.mark.slow
def test_most_levels_of_microban_are_solved_with_the_fewest_pushes() -> None:
    expected, solved = min_pushes(), 0
    for level, board in levels_of("microban.txt"):
        try:
            solution = solve(read_level(board), "pushes", max_nodes=50_000)
        except SearchLimitError:
            continue
        assert solution is not None
        assert expected.get(level, solution.pushes) == solution.pushes
        solved += 1
    assert solved >= 140
