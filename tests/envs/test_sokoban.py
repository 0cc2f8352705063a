"""The task by itself: steps and pushes, distances, replies, instances, and what it says."""

import os
import pickle
import random
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator

import pytest

from data_files import public
from pettingllms_envs.core import SPLITS, Unreadable, team_return
from pettingllms_envs.environments.sokoban.generator import levels
from pettingllms_envs.environments.sokoban.levels import load_levels, write_level
from pettingllms_envs.environments.sokoban.rules import Sokoban, SokobanState
from pettingllms_envs.environments.sokoban.solver import solve


# Two pushes to the right. From the cell below the player it is 3 moves, and one more for each cell to the right.
ONE = """
######
#@$-.#
#----#
#----#
#----#
######
"""

# The lower box has to move first: R pushes it onto its goal, then U and L lead to the cell above the other, D pushes.
TWO = """
######
#----#
#-$--#
#@$.-#
#-.--#
######
"""


@pytest.fixture
def task() -> Sokoban:
    return Sokoban()


@pytest.fixture
def room(task: Sokoban) -> SokobanState:
    return task.generate(0, board=ONE)


Cell = tuple[int, int]


# Instances of version 0; a change of these needs a new version.
ONE_OF_SEED_0 = "######\n#@-#-#\n#-##-#\n#-.$-#\n#----#\n######"
TWO_OF_SEED_7 = "######\n#@---#\n#---##\n#-*$-#\n#.---#\n######"


def naive_optimum(board: str) -> int | None:
    """Fewest moves by breadth-first search over sets of cells, None if there is no solution; none of our code."""
    rows = board.split()
    where = {(r, c): symbol for r, row in enumerate(rows) for c, symbol in enumerate(row)}
    goals = frozenset(cell for cell, symbol in where.items() if symbol in ".*+")
    boxes = frozenset(cell for cell, symbol in where.items() if symbol in "$*")
    walls = {cell for cell, symbol in where.items() if symbol == "#"}
    player = next(cell for cell, symbol in where.items() if symbol in "@+")
    queue: deque[tuple[Cell, frozenset[Cell], int]] = deque([(player, boxes, 0)])
    seen = {(player, boxes)}
    while queue:
        (r, c), boxes, moves = queue.popleft()
        if boxes == goals:
            return moves
        for dr, dc in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            there, behind = (r + dr, c + dc), (r + 2 * dr, c + 2 * dc)
            after = boxes
            if there in walls:
                continue
            if there in boxes:
                if behind in walls or behind in boxes:
                    continue
                after = boxes - {there} | {behind}
            if (there, after) not in seen:
                seen.add((there, after))
                queue.append((there, after, moves + 1))
    return None


def turned(board: str) -> Iterator[str]:
    """All eight rotations and reflections of a board, by its text."""
    rows = board.split()
    for _ in range(4):
        rows = ["".join(column) for column in zip(*rows[::-1], strict=True)]
        yield "\n".join(rows)
        yield "\n".join(row[::-1] for row in rows)


def walk_about(task: Sokoban, state: SokobanState, rng: random.Random, length: int) -> SokobanState:
    for _ in range(length):
        state = task.apply(state, rng.choice("UDLR"))
    return state


@pytest.mark.parametrize(
    ("moves", "player", "boxes", "played", "pushes", "solved"),
    [
        ("R", (1, 2), [(1, 3)], 1, 1, False),
        ("RR", (1, 3), [(1, 4)], 2, 2, True),
        ("RRLLL", (1, 3), [(1, 4)], 2, 2, True),  # solved, and what follows is not played
        ("U", (1, 1), [(1, 2)], 0, 0, False),
        ("L", (1, 1), [(1, 2)], 0, 0, False),
        ("DRU", (2, 2), [(1, 2)], 2, 0, False),  # the box is against the wall
        ("DRUR", (2, 2), [(1, 2)], 2, 0, False),  # nor is what follows a blocked move
        ("DRRULL", (1, 2), [(1, 1)], 5, 1, False),  # and then against the corner
        ("RLRL", (1, 1), [(1, 3)], 4, 1, False),
        ("DDDD", (4, 1), [(1, 2)], 3, 0, False),
    ],
)
def test_moves_are_played_in_order_until_one_is_not_possible_or_all_boxes_are_on_goals(
    task: Sokoban,
    room: SokobanState,
    moves: str,
    player: Cell,
    boxes: list[Cell],
    played: int,
    pushes: int,
    solved: bool,
) -> None:
    after = task.apply(room, moves)
    expected = sum(1 << r * 6 + c for r, c in boxes)
    assert (divmod(after.player, 6), after.boxes) == (player, expected)
    assert (after.moves, after.pushes, task.solved(after)) == (played, pushes, solved)


def test_two_boxes_cannot_be_pushed_at_once(task: Sokoban) -> None:
    state = task.generate(0, board="######\n#----#\n#@$$-#\n#-..-#\n#----#\n######")
    assert task.apply(state, "R") == state
    assert "stopped by a box that cannot be pushed, at (2, 1)" in task.describe(state, "R", state)


@pytest.mark.parametrize(
    ("moves", "value", "costs"),
    [
        ("R", 0.5, {"steps": -0.01}),
        ("RR", 1.0, {"steps": -0.02}),
        ("RRR", 1.0, {"steps": -0.02}),  # solved before the third: not cut short
        ("U", 0.0, {"bump": -0.1}),
        ("D", -0.5, {"steps": -0.01}),
        ("DR", -1.0, {"steps": -0.02}),  # distance 4 of 2
        ("DRR", -1.0, {"steps": -0.03}),  # distance 5: no less than -1
        ("DRU", -1.0, {"steps": -0.02, "bump": -0.1}),
        ("DRRUL", -1.0, {"steps": -0.05}),  # the box is in a corner: no solution
    ],
)
def test_the_potential_and_the_costs_are_those_worked_out_by_hand(
    task: Sokoban, room: SokobanState, moves: str, value: float, costs: dict[str, float]
) -> None:
    after = task.apply(room, moves)
    assert task.value(after) == pytest.approx(value)
    assert task.costs(room, moves, after) == pytest.approx(costs)


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ("", {"success": False, "regret": 1.0, "moves": 0, "pushes": 0, "distance": 2, "deadlock": False}),
        ("R", {"success": False, "regret": 1.0, "moves": 1, "pushes": 1, "distance": 1, "deadlock": False}),
        ("RR", {"success": True, "regret": 0.0, "moves": 2, "pushes": 2, "distance": 0, "deadlock": False}),
        ("DURR", {"success": True, "regret": 0.5, "moves": 4, "pushes": 2, "distance": 0, "deadlock": False}),
        ("DRRUL", {"success": False, "regret": 1.0, "moves": 5, "pushes": 1, "distance": -1, "deadlock": True}),
    ],
)
def test_the_outcome_is_the_one_worked_out_by_hand(
    task: Sokoban, room: SokobanState, moves: str, expected: dict[str, float]
) -> None:
    outcome = task.outcome(task.apply(room, moves))
    rest = {"optimal": 2, "exact": True, "boxes_on_goals": int(expected["success"])}
    assert outcome == {**expected, **rest}


def test_a_state_is_immutable_hashable_and_survives_pickling(task: Sokoban, room: SokobanState) -> None:
    copy = pickle.loads(pickle.dumps(room))
    assert task.apply(room, "RR") == task.apply(copy, "RR") != room
    assert room == copy
    assert hash(room) == hash(copy)
    assert repr(room) == repr(copy)
    with pytest.raises(AttributeError):
        room.player = 8  # type: ignore[misc]


def test_a_state_is_shown_with_places_steps_and_pushes(task: Sokoban) -> None:
    state = task.apply(task.generate(0, board=TWO), "R")
    assert task.show(state) == (
        "# # # # # #\n"
        "# - - - - #\n"
        "# - $ - - #\n"
        "# - @ * - #\n"
        "# - . - - #\n"
        "# # # # # #\n"
        "You are at (3, 2). Boxes: (2, 2), (3, 3). Goals: (3, 3), (4, 2).\n"
        "Free steps here: D L. Pushes here: U R."
    )
    assert task.show(task.apply(state, "D"))[48:59] == "# - + - - #"


@pytest.mark.parametrize(
    ("moves", "proposed", "words"),
    [
        ("RU", False, "R U. They ended at (2, 2), after 2 pushes, with 1 of 2 boxes on goals."),
        ("RD", True, "R D. They would end at (4, 2), after 1 push, with 1 of 2 boxes on goals."),
        ("LL", False, "L L. Move 1 was stopped by a wall, at (3, 1), after 0 pushes, with 0 of 2 boxes on goals."),
        (
            "RDD",
            True,
            "R D D. Move 3 would be stopped by a wall, at (4, 2), after 1 push, with 1 of 2 boxes on goals.",
        ),
    ],
)
def test_a_move_is_described_by_what_came_of_it(task: Sokoban, moves: str, proposed: bool, words: str) -> None:
    before = task.generate(0, board=TWO)
    assert task.describe(before, moves, task.apply(before, moves), proposed=proposed) == words


def test_tiles_are_the_board(task: Sokoban) -> None:
    rows = task.tiles(task.apply(task.generate(0, board=TWO), "R"))
    assert [len(row) for row in rows] == [6] * 6
    assert rows[3][2].shape == "disc"
    assert (rows[2][2].shape, rows[3][3].shape, rows[4][2].shape) == ("square", "square", "ring")
    assert rows[2][2].fill != rows[3][3].fill == rows[4][2].fill


def test_a_reply_has_at_most_four_times_the_size_of_moves(task: Sokoban) -> None:
    assert task.parse("Moves: " + "U " * 24) == "U" * 24
    assert task.parse("Moves: " + "U " * 25) == Unreadable("it has 25 moves, and at most 24 are allowed")
    assert isinstance(task.parse("Moves: " + "U " * 100_000), Unreadable)
    assert task.parse(task.write("RRD")) == "RRD"


@pytest.mark.parametrize(("size", "boxes"), [(5, 1), (5, 2), (6, 1), (6, 2), (6, 3), (6, 4), (7, 2), (8, 1)])
def test_the_oracle_solves_every_instance_in_the_optimum_that_an_independent_search_finds(
    size: int, boxes: int
) -> None:
    task = Sokoban(size, boxes)
    for seed in range(40):
        state = start = task.generate(seed)
        assert naive_optimum(write_level(start.position)) == start.optimal >= 3
        assert (task.value(start), start.moves, start.pushes) == (0.0, 0, 0)
        while not task.solved(state):
            state = task.apply(state, task.oracle(state))
        assert state.moves == start.optimal
        assert team_return(task, state) == 2.0
        assert task.oracle(state) == ""


def test_the_table_the_search_and_an_independent_search_agree_wherever_play_leads() -> None:
    rng = random.Random(5)
    dead = 0
    for boxes in (1, 2, 3):
        task = Sokoban(boxes=boxes)
        for seed in range(70):
            state = walk_about(task, task.generate(seed), rng, rng.randint(1, 30))
            solution, expected = solve(state.position), naive_optimum(write_level(state.position))
            assert (None if solution is None else len(solution.moves)) == expected
            assert state.left == (-1 if expected is None else expected)
            assert task.outcome(state)["deadlock"] == (expected is None)
            dead += expected is None
    assert 10 < dead < 200  # so both kinds were among them


def test_a_position_without_a_solution_has_a_move_for_an_oracle(task: Sokoban, room: SokobanState) -> None:
    dead = task.apply(room, "DRRUL")
    assert task.oracle(dead) == "D"
    assert task.apply(dead, "D").moves == dead.moves + 1


def test_the_potential_depends_on_the_position_alone_so_no_loop_earns_anything(task: Sokoban) -> None:
    rng = random.Random(1)
    seen: dict[object, float] = {}
    state = task.generate(0, board=TWO)
    for _ in range(2000):
        state = task.apply(state, rng.choice("UDLR"))
        assert seen.setdefault(state.position, task.value(state)) == task.value(state)
    assert len(seen) > 20


@pytest.mark.parametrize("boxes", [1, 2])
def test_blind_replies_earn_next_to_nothing(boxes: int) -> None:
    task = Sokoban(boxes=boxes)
    states = [task.generate(seed, split="test") for seed in range(100)]
    solved = 0
    for reply in task.blind_replies:
        move = task.parse(reply)
        assert isinstance(move, str)
        for state in states:
            for _ in range(4):
                state = task.apply(state, move)
            solved += task.solved(state)
    assert solved <= 0.01 * len(states) * len(task.blind_replies)


def test_rewards_stay_in_their_declared_ranges() -> None:
    task, rng = Sokoban(boxes=2), random.Random(3)
    ranges = task.ranges()
    for seed in range(60):
        state = task.generate(seed, level=seed % 5 + 1)
        for _ in range(5):
            move = "".join(rng.choices("UDLR", k=rng.randint(1, task.max_moves)))
            after = task.apply(state, move)
            parts = {"value": task.value(after), **task.costs(state, move, after)}
            assert all(ranges[name][0] - 1e-12 <= value <= ranges[name][1] for name, value in parts.items())
            state = after


@pytest.mark.parametrize("size", [5, 6, 7, 8])
@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_a_level_has_the_boxes_and_the_optimum_it_says(size: int, level: int) -> None:
    task, wanted = Sokoban(size), levels(size)[level - 1]
    for split in SPLITS:
        for seed in range(4):
            state = task.generate(seed, split=split, level=level)
            assert state.boxes.bit_count() == state.goals.bit_count() == wanted.boxes
            assert wanted.min_distance <= state.optimal <= (wanted.max_distance or 999)


def test_long_instances_are_not_rare() -> None:
    counts = Counter(Sokoban(min_distance=4, max_distance=9).generate(seed).optimal for seed in range(600))
    assert set(counts) == {4, 5, 6, 7, 8, 9}
    assert min(counts.values()) > 30  # of 100 if all rooms had all lengths


def test_settings_of_the_task_hold_for_its_instances() -> None:
    task = Sokoban(7, 2, 10, 12)
    states = [task.generate(seed) for seed in range(40)]
    assert {state.width for state in states} == {7}
    assert {state.optimal for state in states} == {10, 11, 12}
    assert len({state.position for state in states}) == 40


def test_no_room_is_in_two_splits_even_turned_or_mirrored() -> None:
    rooms: dict[str, set[str]] = {}
    for boxes in (1, 2):
        task = Sokoban(boxes=boxes)
        for split in SPLITS:
            for seed in range(700):
                board = write_level(task.generate(seed, split=split).position)
                bare = board.translate(str.maketrans("@$*+", "--.."))
                rooms.setdefault(split, set()).add(min(turned(bare)))
    train, validation, test = (rooms[split] for split in SPLITS)
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert min(len(train), len(validation), len(test)) > 100


def test_instances_are_the_same_in_another_process_with_another_hash_seed() -> None:
    program = (
        "from pettingllms_envs.environments.sokoban.rules import Sokoban\n"
        "for task in (Sokoban(), Sokoban(boxes=2), Sokoban(10, 4)):\n"
        "    for seed in range(1):\n"
        "        state = task.generate(seed, split='test', level=None)\n"
        "        print(state, task.oracle(state), task.generate(seed, level=3))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "77")
    }
    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == 3


def test_version_0_has_these_instances() -> None:
    assert write_level(Sokoban().generate(0).position) == ONE_OF_SEED_0
    assert write_level(Sokoban(boxes=2).generate(7, split="test").position) == TWO_OF_SEED_7


def test_none_for_a_field_means_that_it_is_not_given(task: Sokoban) -> None:
    assert task.generate(4, split=None, level=None, board=None) == task.generate(4) == task.generate(4, split="train")


@pytest.mark.parametrize(
    ("settings", "given", "expected"),
    [
        ({"size": 4}, "size is 4", "from 5 to 20"),
        ({"size": 21}, "size is 21", "from 5 to 20"),
        ({"size": 6.0}, "size is 6.0", "whole number"),
        ({"boxes": 0}, "boxes is 0", "from 1 to 4"),
        ({"boxes": 5}, "boxes is 5", "from 1 to 4"),
        ({"min_distance": 0}, "min_distance is 0", "at least 1"),
        ({"min_distance": 5, "max_distance": 4}, "max_distance is 4", "at least min_distance, 5"),
        ({"min_distance": 60}, "no train instance", "expected one"),
        ({"size": 5, "boxes": 4, "min_distance": 20}, "no train instance", "Widen the distances"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, int], given: str, expected: str) -> None:
    with pytest.raises(ValueError, match=given) as error:
        Sokoban(**settings)
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("fields", "given", "expected"),
    [
        ({"split": "tests"}, "split is 'tests'", "Did you mean 'test'?"),
        ({"level": 6}, "level is 6", "expected one of 1, 2, 3, 4, 5"),
        ({"level": 0}, "level is 0", "expected one of 1, 2, 3, 4, 5"),
        ({"board": "#####\n#@*-#\n#####"}, "the board is solved already", "Move a box"),
        # Each box alone could be pushed to the right, but the one behind cannot push the other.
        ({"board": "#########\n#@$-$-..#\n#########"}, "the board has no solution", "pushed onto goals"),
        ({"board": ""}, "the board, line 1: 0 rows", "expected 3 to 100"),
        ({"board": 5}, "the board, line 1: 1 rows", "expected 3 to 100"),
    ],
)
def test_fields_that_mean_no_instance_are_refused(
    task: Sokoban, fields: dict[str, object], given: str, expected: str
) -> None:
    with pytest.raises(ValueError, match=given) as error:
        task.generate(0, **fields)  # type: ignore[arg-type]
    assert expected in str(error.value)


# Too large for a table. The cheapest matching by hand: 2 and 2 pushes down, 3 to the lowest goal, and 1 to the left.
LARGE = """
##########
#--------#
#-$--$---#
#--------#
#-.@-.---#
#--------#
#--$-----#
#-.$-----#
#---.----#
##########
"""


def test_a_room_too_large_for_a_table_is_scored_by_the_lower_bound_and_solved_by_search(task: Sokoban) -> None:
    state = start = task.generate(0, board=LARGE)
    outcome = task.outcome(start)
    assert (outcome["exact"], outcome["optimal"], outcome["distance"], outcome["deadlock"]) == (False, -1, -1, False)
    assert (start.most, task.value(start)) == (2 + 2 + 3 + 1, 0.0)
    values = []
    while not task.solved(state):
        after = task.apply(state, task.oracle(state)[:3])
        values.append(task.value(after))
        state = after
    assert values == sorted(values)
    assert values[-1] == 1.0
    assert state.moves == len(solve(start.position).moves)  # type: ignore[union-attr]
    assert task.outcome(state)["regret"] == pytest.approx(1 - 8 / state.moves)
    assert task.outcome(state)["distance"] == 0


def test_in_a_room_too_large_for_a_table_a_dead_position_that_is_found_out_is_worth_minus_one(task: Sokoban) -> None:
    start = task.generate(0, board=LARGE)
    dead = task.apply(start, "ULU")  # a box at the upper wall, where there is no goal
    assert (dead.pushes, task.value(dead), task.outcome(dead)["deadlock"]) == (1, -1.0, True)
    assert task.oracle(dead) == "D"


def test_a_level_of_boxoban_is_an_instance(task: Sokoban) -> None:
    for _, board in load_levels(public("boxoban_unfiltered_sample.txt"))[:5]:
        state = start = task.generate(0, board=board)
        for _ in range(20):
            if not task.solved(state):
                state = task.apply(state, task.oracle(state))
        assert task.solved(state)
        assert write_level(start.position) != write_level(state.position)


@pytest.mark.slow
@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_ten_thousand_instances_of_a_level_have_the_optimum_they_say_and_no_two_splits_share_one(level: int) -> None:
    task = Sokoban()
    forms: dict[str, set[str]] = {}
    for split, number in zip(SPLITS, (8000, 1000, 1000), strict=True):
        forms[split] = set()
        for seed in range(number):
            state = task.generate(seed, split=split, level=level)
            board = write_level(state.position)
            assert naive_optimum(board) == state.optimal
            forms[split].add(min(turned(board)))
    train, validation, test = (forms[split] for split in SPLITS)
    assert not train & validation
    assert not train & test
    assert not validation & test
