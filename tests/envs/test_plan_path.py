"""The task by itself: walks, replies, distances, instances."""

import pickle
import random
import re
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms_envs.core import SPLITS, Unreadable
from pettingllms_envs.environments.plan_path.generator import _mask, _stem
from pettingllms_envs.environments.plan_path.grid import PlanPathState, distance, form, within
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.instances import split_of


@pytest.mark.parametrize(
    ("letters", "row", "column", "walked", "solved"),
    [
        ("R", 0, 1, 1, False),
        ("RRRDDD", 3, 3, 6, True),
        ("DDRDRR", 3, 3, 6, True),
        ("RRRDDDU", 2, 3, 7, False),  # across the goal and on
        ("RRRDDDUD", 3, 3, 8, True),  # and back
        ("RRRDDDDDD", 3, 3, 6, True),  # stopped by the edge, on the goal
        ("U", 0, 0, 0, False),
        ("L", 0, 0, 0, False),
        ("RDRR", 0, 1, 1, False),  # what follows a blocked move is not played
        ("RLRL", 0, 0, 4, False),
        ("DDD", 2, 0, 2, False),
        ("RRRR", 0, 3, 3, False),  # no wrapping round the edge
        ("RRRDLLL", 1, 3, 4, False),
    ],
)
def test_a_walk_is_played_in_order_and_ends_before_a_blocked_move(
    task: PlanPath, grid: PlanPathState, letters: str, row: int, column: int, walked: int, solved: bool
) -> None:
    after = task.apply(grid, letters)
    assert (divmod(after.position, 4), after.walked, task.solved(after)) == ((row, column), walked, solved)


def test_applying_a_move_leaves_the_state_before_it_alone(task: PlanPath, grid: PlanPathState) -> None:
    copy = pickle.loads(pickle.dumps(grid))
    task.apply(grid, "RRR")
    assert grid == copy
    assert hash(grid) == hash(copy)
    with pytest.raises(AttributeError):
        grid.position = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("letters", "value", "costs"),
    [
        ("R", 1 / 6, {"steps": -0.01}),
        ("RRRDDD", 1.0, {"steps": -0.06}),
        ("U", 0.0, {"bump": -0.1}),
        ("RD", 1 / 6, {"steps": -0.01, "bump": -0.1}),
        ("RL", 0.0, {"steps": -0.02}),
    ],
)
def test_the_potential_and_the_costs_are_those_worked_out_by_hand(
    task: PlanPath, grid: PlanPathState, letters: str, value: float, costs: dict[str, float]
) -> None:
    after = task.apply(grid, letters)
    assert task.value(after) == pytest.approx(value)
    assert task.costs(grid, letters, after) == pytest.approx(costs)


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("", {"success": False, "regret": 1.0, "moves": 0, "optimal": 6, "distance": 6}),
        ("RR", {"success": False, "regret": 1.0, "moves": 2, "optimal": 6, "distance": 4}),
        ("RRRDDD", {"success": True, "regret": 0.0, "moves": 6, "optimal": 6, "distance": 0}),
        ("RLRRRDDD", {"success": True, "regret": 0.25, "moves": 8, "optimal": 6, "distance": 0}),  # SPL 6/8
    ],
)
def test_the_outcome_reports_success_and_one_minus_spl(
    task: PlanPath, grid: PlanPathState, letters: str, expected: dict[str, float]
) -> None:
    assert task.outcome(task.apply(grid, letters)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("reply", "letters"),
    [
        ("Moves: R R D", "RRD"),
        ("Moves: r r d", "RRD"),
        ("MOVES: U", "U"),
        ("moves:U", "U"),
        ("Moves: RRD", "RRD"),
        ("Moves: R, R, D", "RRD"),
        ("Moves: R,R ,D L", "RRDL"),
        ("Moves: [R, R, D]", "RRD"),
        ("Moves: ( L )", "L"),
        ("Moves:\tU\tD", "UD"),
        ("I go right.\n\n  Moves: R  \n \r\n", "R"),
        ("Moves: U\nNo, rather:\nMoves: D", "D"),
        ("Right.\rMoves: L", "L"),
        ("Moves: " + "U " * 16, "U" * 16),
    ],
)
def test_a_list_of_moves_on_the_last_line_is_read(task: PlanPath, reply: str, letters: str) -> None:
    assert task.parse(reply) == letters


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "it is empty"),
        (" \n\t\u2003\n", "it is empty"),
        ("R R D", "does not begin with 'Moves:'"),
        ("Move: R", "does not begin with 'Moves:'"),
        ("So: Moves: R", "does not begin with 'Moves:'"),
        ("**Moves: R**", "does not begin with 'Moves:'"),
        ("Moves: R\nDone.", "does not begin with 'Moves:'"),
        ("Move\N{LATIN SMALL LETTER LONG S}: R", "does not begin with 'Moves:'"),
        ("Moves:", "list of moves is empty"),
        ("Moves: []", "list of moves is empty"),
        ("Moves: , ,", "list of moves is empty"),
        ("Moves: R Moves: D", "more than one list"),
        ("Moves: R or D", "something other than U, D, L and R"),
        ("Moves: R.", "something other"),
        ("Moves: R,", "something other"),
        ("Moves: R,,D", "something other"),
        ("Moves: [R, D", "something other"),
        ("Moves: R] D", "something other"),
        ("Moves: [R] [D]", "something other"),
        ("Moves: R; D", "something other"),
        ("Moves: 3", "something other"),
        ("Moves: \N{FULLWIDTH LATIN CAPITAL LETTER R}", "something other"),
        ("Moves: R\N{COMBINING ACUTE ACCENT}", "something other"),
        ("Moves: R\u2028D", "something other"),
        ("Moves: R\x00", "something other"),
        ("Moves: \ud800", "something other"),
        ("Moves: " + "U " * 17, "it has 17 moves, and at most 16 are allowed"),
    ],
)
def test_any_other_reply_is_unreadable_for_a_stated_reason(task: PlanPath, reply: str, reason: str) -> None:
    found = task.parse(reply)
    assert isinstance(found, Unreadable)
    assert reason in found.reason
    assert "\n" not in found.reason


@pytest.mark.parametrize(
    "megabyte",
    [
        "Moves: " + "U " * 500_000,
        "Moves: U" + " " * 1_000_000 + "x",
        "Moves: U" + " ," * 500_000,
        "Moves: " * 150_000,
        "Moves: [" * 150_000,
        "\n" * 1_000_000,
        "Moves: U\n" * 110_000 + "x",
        "\N{GRINNING FACE}" * 1_000_000,
    ],
    ids=lambda reply: repr(reply[:10]),
)
def test_a_megabyte_is_read_in_linear_time(task: PlanPath, megabyte: str) -> None:
    start = time.process_time()
    assert isinstance(task.parse(megabyte), Unreadable)
    # Seconds of this process alone. Linear takes hundredths; quadratic, 10**12 comparisons, takes many minutes.
    assert time.process_time() - start < 20


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(st.one_of(st.text(), st.text("UDLR ,[]():\n\tmovesMOVES"), st.from_regex(r"\AMoves: [UDLR ,\[\]]*\Z")))
def test_parsing_is_total_and_what_is_read_can_be_written_and_read_again(reply: str) -> None:
    task = PlanPath(size=4)
    move = task.parse(reply)
    if isinstance(move, Unreadable):
        assert move.reason
    else:
        assert 1 <= len(move) <= 16
        assert set(move) <= set("UDLR")
        assert task.parse(task.write(move)) == move


def test_writing_a_move_gives_the_canonical_reply(task: PlanPath) -> None:
    assert task.write("RRD") == "Moves: R R D"


def brute_force(rows: list[str], goal: tuple[int, int]) -> dict[tuple[int, int], int]:
    """Distances by relaxing all cells until nothing changes."""
    free = {(r, c) for r, row in enumerate(rows) for c, cell in enumerate(row.split()) if cell != "#"}
    found = {goal: 0}
    while True:
        nearer = {
            (r + y, c + x): distance + 1
            for (r, c), distance in found.items()
            for y, x in ((0, 1), (1, 0), (0, -1), (-1, 0))
            if (r + y, c + x) in free and (r + y, c + x) not in found
        }
        if not nearer:
            return found
        found |= nearer


def test_the_distances_of_the_grid_by_hand(grid: PlanPathState) -> None:
    field = [distance(4, grid.blocked, grid.goal, cell) for cell in range(16)]
    assert field == [6, 5, 4, 3, 5, -1, -1, 2, 4, 3, -1, 1, -1, 2, 1, 0]
    assert within(4, grid.blocked, grid.goal)[:2] == (1 << 15, 1 << 15 | 1 << 11 | 1 << 14)


@pytest.mark.parametrize(
    ("start", "masks"),
    [
        (15, (1 << 15,)),  # the goal itself
        (14, (1 << 15, 1 << 15 | 1 << 11 | 1 << 14)),
        (7, (1 << 15, 1 << 15 | 1 << 11 | 1 << 14, 1 << 15 | 1 << 11 | 1 << 14 | 1 << 7 | 1 << 13)),
    ],
)
def test_the_search_for_a_start_ends_with_the_mask_that_has_it_in(
    grid: PlanPathState, start: int, masks: tuple[int, ...]
) -> None:
    assert within(4, grid.blocked, grid.goal, start) == masks


def test_a_walk_may_lead_farther_from_the_goal_than_the_start_is() -> None:
    task = PlanPath(size=4)
    near = task.generate(0, board="...@\n.##G\n..#.\n#...")  # the goal is one step below
    assert [task.apply(near, "L" * n).left for n in range(4)] == [1, 2, 3, 4]
    far = task.apply(task.apply(near, "LLL"), "DD")
    assert (far.left, far.position) == (6, 8)
    assert task.apply(far, "UURRRD") == far._replace(position=near.goal, left=0, walked=11)


@pytest.mark.parametrize(("size", "blocked"), [(3, 0.22), (5, 0.4), (10, 0.22), (10, 0.45)])
def test_the_distances_are_those_of_brute_force_on_what_is_shown(size: int, blocked: float) -> None:
    task = PlanPath(size, blocked)
    for seed in range(30):
        state = task.generate(seed)
        expected = brute_force(task.show(state).splitlines()[:size], divmod(state.goal, size))
        field = [distance(size, state.blocked, state.goal, cell) for cell in range(size * size)]
        assert {divmod(i, size): d for i, d in enumerate(field) if d >= 0} == expected
        assert (state.optimal, state.left) == (field[state.start], field[state.start])


def test_the_distance_left_is_kept_right_over_random_walks() -> None:
    rng, task = random.Random(0), PlanPath(size=8, blocked=0.3)
    for seed in range(100):
        state = task.generate(seed)
        for _ in range(10):
            state = task.apply(state, "".join(rng.choices("UDLR", k=5)))
            assert state.left == distance(8, state.blocked, state.goal, state.position)


def test_what_is_shown_is_the_grid_the_position_and_the_free_moves(task: PlanPath, grid: PlanPathState) -> None:
    assert task.show(task.apply(grid, "RR")).splitlines() == [
        ". . @ .",
        ". # # .",
        ". . # .",
        "# . . G",
        "You are at row 0, column 2. The goal is at row 3, column 3: 3 down, 1 right.",
        "Free moves here: L R",
    ]


@pytest.mark.parametrize(
    ("position", "goal", "words"),
    [
        ((0, 0), (3, 3), "3 down, 3 right"),
        ((3, 2), (0, 3), "3 up, 1 right"),
        ((1, 3), (2, 1), "1 down, 2 left"),
        ((3, 3), (2, 0), "1 up, 3 left"),
        ((0, 1), (2, 1), "2 down"),
        ((3, 1), (0, 1), "3 up"),
        ((2, 0), (2, 1), "1 right"),
        ((2, 3), (2, 0), "3 left"),
        ((2, 1), (2, 1), "here"),
    ],
)
def test_the_goal_is_shown_with_its_offset_as_the_crow_flies(
    task: PlanPath, position: tuple[int, int], goal: tuple[int, int], words: str
) -> None:
    here, there = (row * 4 + column for row, column in (position, goal))
    shown = task.show(PlanPathState(4, 0, 0, there, here, 1, 1)).splitlines()[4]
    assert shown == (
        f"You are at row {position[0]}, column {position[1]}. The goal is at row {goal[0]}, column {goal[1]}: {words}."
    )


@pytest.mark.parametrize(
    ("letters", "proposed", "expected"),
    [
        ("RR", False, "R R. It ended at row 0, column 2."),
        ("RR", True, "R R. It would end at row 0, column 2."),
        ("RD", False, "R D. It was blocked after 1 move, at row 0, column 1."),
        ("U", True, "U. It would be blocked after 0 moves, at row 0, column 0."),
        ("RRRDDD", True, "R R R D D D. It would end on the goal, at row 3, column 3."),
    ],
)
def test_a_move_is_described_with_what_came_or_would_come_of_it(
    task: PlanPath, grid: PlanPathState, letters: str, proposed: bool, expected: str
) -> None:
    assert task.describe(grid, letters, task.apply(grid, letters), proposed=proposed) == expected


def test_the_rules_are_short_and_name_the_limit() -> None:
    rules = PlanPath(size=10).rules()
    assert len(rules.split()) < 70
    assert "At most 40 moves." in rules


def test_the_oracle_walks_a_shortest_path_the_same_way_each_time(task: PlanPath, grid: PlanPathState) -> None:
    assert task.oracle(grid) == "DDRDRR"  # of D and R, the first in the order U D L R
    assert {task.oracle(grid, random.Random(i)) for i in range(20)} == {"DDRDRR", "RRRDDD"}
    assert task.oracle(task.apply(grid, "RRRDDD")) == ""


def test_the_oracle_solves_300_instances_in_the_fewest_moves() -> None:
    task = PlanPath()
    for seed in range(300):
        state = task.generate(seed)
        for move in (task.oracle(state), task.oracle(state, random.Random(seed))):
            after = task.apply(state, move)
            assert task.solved(after)
            assert len(move) == task.outcome(after)["optimal"]


def symmetric(state: PlanPathState) -> Iterator[tuple[tuple[tuple[int, int], ...], tuple[int, int], tuple[int, int]]]:
    """The instance turned and mirrored in all eight ways, by coordinates."""
    n = state.size
    cells = [divmod(i, n) for i in range(n * n) if state.blocked >> i & 1]
    cells += [divmod(state.start, n), divmod(state.goal, n)]
    for _ in range(4):
        cells = [(c, n - 1 - r) for r, c in cells]
        for image in (cells, [(r, n - 1 - c) for r, c in cells]):
            yield tuple(sorted(image[:-2])), image[-2], image[-1]


def test_2000_instances_of_each_split_share_none_up_to_symmetry() -> None:
    # 4 x 4 has about 30,000 classes: without the rule some 130 would be in any two splits.
    task = PlanPath(size=4)
    classes = {split: {min(symmetric(task.generate(i, split))) for i in range(2000)} for split in SPLITS}
    assert not classes["train"] & classes["test"]
    assert not classes["train"] & classes["validation"]
    assert not classes["validation"] & classes["test"]
    assert len(classes["train"]) > 1500  # and seeds seldom repeat an instance


def test_the_split_is_the_same_for_all_eight_symmetries() -> None:
    state = PlanPath(size=5).generate(3, "test")
    for cells, start, goal in symmetric(state):
        blocked = sum(1 << r * 5 + c for r, c in cells)
        assert split_of(form(5, blocked, start[0] * 5 + start[1], goal[0] * 5 + goal[1])) == "test"


def test_eight_of_ten_classes_are_for_training() -> None:
    rng = random.Random(0)
    draws = [rng.sample(range(100), 24) for _ in range(2000)]
    splits = [split_of(form(10, sum(1 << c for c in cells), start, goal)) for *cells, start, goal in draws]
    share = {split: splits.count(split) / 2000 for split in SPLITS}
    assert share == pytest.approx(
        {"train": 0.8, "validation": 0.1, "test": 0.1}, abs=0.03
    )  # 3 standard errors or more


@pytest.mark.parametrize("split", SPLITS)
def test_an_instance_is_in_the_range_asked_for_and_decided_by_its_seed(split: str) -> None:
    task = PlanPath(size=8, blocked=0.3, min_distance=4, max_distance=9)
    for seed in range(50):
        state = task.generate(seed, split)
        assert state == PlanPath(size=8, blocked=0.3, min_distance=4, max_distance=9).generate(seed, split)
        assert 4 <= task.outcome(state)["optimal"] <= 9
        assert state.blocked.bit_count() == 19  # 30% of 64
        assert (state.position, state.walked) == (state.start, 0)
    assert len({task.generate(seed, split) for seed in range(50)}) == 50


def test_the_first_instance_is_the_recorded_one() -> None:
    # Changed numbers need a new version of the task.
    assert PlanPath(size=5).generate(0, "test") == PlanPathState(5, 1071, 19, 15, 19, 4, 4)


def test_equal_settings_of_another_type_do_not_meet_in_a_cache() -> None:
    """True == 1, but they are written differently into what seeds the random numbers."""
    one, true = PlanPath(min_distance=1), PlanPath(min_distance=True)
    here = [[task.generate(seed) for seed in range(5)] for task in (one, true)]
    _stem.cache_clear()
    there = [[task.generate(seed) for seed in range(5)] for task in (true, one)]
    assert there == here[::-1]


@pytest.mark.parametrize(
    ("level", "distances", "detours", "num_blocked"),
    [
        (1, (1, 5), (0, 0), 22),
        (2, (5, 10), (0, 0), 22),
        (3, (5, 100), (2, 100), 22),
        (4, (10, 100), (4, 100), 35),
        (5, (15, 100), (6, 100), 35),
    ],
)
def test_a_level_decides_distance_and_detour_whatever_the_settings(
    level: int, distances: tuple[int, int], detours: tuple[int, int], num_blocked: int
) -> None:
    task = PlanPath(min_distance=3, max_distance=4)
    for seed in range(30):
        state = task.generate(seed, level=level)
        (row, column), (goal_row, goal_column) = divmod(state.start, 10), divmod(state.goal, 10)
        detour = state.optimal - abs(row - goal_row) - abs(column - goal_column)
        assert distances[0] <= state.optimal <= distances[1]
        assert detours[0] <= detour <= detours[1]
        assert state.blocked.bit_count() == num_blocked


def test_every_choice_of_blocked_cells_is_as_likely() -> None:
    rng = random.Random(0)
    masks = [_mask(rng, 6, 2) for _ in range(15_000)]
    assert {mask.bit_count() for mask in masks} == {2}
    counts = Counter(masks)
    assert len(counts) == 15  # 6 over 2
    assert all(abs(count - 1000) < 5 * 31 for count in counts.values())  # 31 is a standard error


@pytest.mark.slow
@pytest.mark.parametrize("level", [None, 1, 2, 3, 4, 5])
def test_10000_instances_of_a_level_have_their_proof_and_no_copy_in_another_split(level: int | None) -> None:
    task = PlanPath()
    seen: dict[object, str] = {}
    for split, number in (("train", 8000), ("validation", 1000), ("test", 1000)):
        for seed in range(number):
            state = task.generate(seed, split, level)
            field = brute_force(task.show(state).splitlines()[:10], divmod(state.goal, 10))
            assert field[divmod(state.start, 10)] == state.optimal
            assert seen.setdefault(min(symmetric(state)), split) == split


def test_a_board_written_out_is_played_whatever_the_seed(task: PlanPath, grid: PlanPathState) -> None:
    assert task.generate(7, "test", 5, "@...\n.##.\n..#.\n#..G") == grid
    shown = "\n".join(task.show(grid).splitlines()[:4])
    assert task.generate(0, board=shown) == grid


@pytest.mark.parametrize(
    ("board", "message"),
    [
        ("", r"the board has rows of \[\] cells; expected 4 rows of 4 of '@' \(start\)"),
        ("@..\n..G", r"rows of \[3, 3\] cells"),
        ("@...\n....\n....\n...X", "expected 4 rows of 4 of '@'"),
        ("@...\n....\n....\n....", "the board has 1 '@' and 0 'G'; expected one start and one goal"),
        ("@..@\n....\n....\n...G", "the board has 2 '@' and 1 'G'"),
        ("@#..\n#...\n....\n...G", "no walk leads from '@' to 'G' on the board; expected one"),
    ],
)
def test_a_board_that_is_none_is_refused(task: PlanPath, board: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        task.generate(0, board=board)


def test_a_level_that_the_size_cannot_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"found no train instance in 20000 draws with size 3 and .*min_detour=4"):
        PlanPath(size=3).generate(0, level=4)
    with pytest.raises(ValueError, match="level is 0; expected one of 1, 2, 3, 4, 5"):
        PlanPath().generate(0, level=0)


def test_the_smallest_and_the_largest_grid_can_be_played() -> None:
    for task in (PlanPath(size=3), PlanPath(size=100)):
        state = task.generate(0)
        assert task.value(task.apply(state, task.oracle(state))) == 1
        assert repr(state)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 2}, "size is 2; expected a whole number from 3 to 100"),
        ({"size": 101}, "size is 101"),
        ({"size": 5.0}, "size is 5.0"),
        ({"blocked": 1.0}, r"blocked is 1.0; expected a share of the cells in \[0, 1\)"),
        ({"blocked": -0.1}, "blocked is -0.1"),
        ({"blocked": "many"}, "blocked is 'many'"),
        ({"blocked": float("nan")}, "blocked is nan"),
        ({"min_distance": 0}, "min_distance is 0; expected 1 to 77"),
        ({"min_distance": 78}, "min_distance is 78"),
        ({"blocked": 0.995}, "blocked is 0.995, which leaves 0 of 100 cells free; expected 2"),
        ({"min_distance": 6, "max_distance": 5}, "max_distance is 5; expected None or at least min_distance, 6"),
        ({"min_distance": 60}, "found no train instance in 20000 draws with size 10"),
        ({"size": 3, "blocked": 0.0, "min_distance": 4}, "found no [a-z]+ instance in 20000 draws with size 3"),
        ({"min_detour": -1}, "min_detour is -1; expected a whole number of at least 0"),
        ({"min_detour": 4, "max_detour": 2}, "max_detour is 2; expected None or at least min_detour, 4"),
    ],
)
def test_settings_that_no_instance_can_meet_are_refused_at_once(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PlanPath(**settings)  # type: ignore[arg-type]


def test_an_unknown_split_is_refused(task: PlanPath) -> None:
    with pytest.raises(ValueError, match=re.escape("split is 'dev'; expected one of 'train', 'validation', 'test'")):
        task.generate(0, "dev")
