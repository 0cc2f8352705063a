"""The harness of benchmarks/: what it counts, whom it believes, and that nothing fails silently. No peer is needed."""

import json
import random
import re
from itertools import count

import bench_envs
import pairs
import pytest
from bench_envs import Compared, Tail, compare, finish, how_to_install, main, percentile, table, tail
from contenders import Ours, Reference, Room, legal_walk
from pairs import Pair, Side, all_pairs, deep_copies, resets, steps, switches

import pettingllms_envs


def room(*rows: str) -> Room:
    """A board in Sokoban's usual symbols."""
    cells = {(r, c): symbol for r, row in enumerate(rows) for c, symbol in enumerate(row)}

    def those(symbols: str) -> frozenset[tuple[int, int]]:
        return frozenset(cell for cell, symbol in cells.items() if symbol in symbols)

    (player,) = those("@+")
    return Room(those("#"), those(".*+"), those("$*"), player)


CORRIDOR = room("######", "#@$.-#", "######")


class Corridor:
    """A game of one pushed box that counts its steps; `deaf` plays nothing."""

    replies = {letter: letter.lower() for letter in "UDLR"}

    def __init__(self, *, deaf: bool = False) -> None:
        self.deaf = deaf
        self.played = []
        self.seeds = []

    def start(self, seed: int) -> None:
        self.seeds.append(seed)
        self.now = CORRIDOR

    def room(self) -> Room:
        return self.now

    def play(self, replies: list[str]) -> None:
        self.played += replies
        if not self.deaf:
            self.now = room("######", "#-@*-#", "######")


def side(label: str, *seconds: float, calls: list[tuple[str, int]] | None = None, needs: str = "") -> Side:
    """A side whose slices take these times, one after another, and which writes down who is called with which seed."""
    times = iter(seconds)

    def slice_(first_seed: int) -> float:
        if calls is not None:
            calls.append((label, first_seed))
        return next(times)

    return Side(label, f"settings of {label}", lambda: slice_, needs)


def pair(peer: Side, ours: Side, ratio: float = 2, limit_us: float | None = None) -> Pair:
    return Pair("game step", peer, ours, ratio, limit_us)


def compared(peer_us: list[float], ours_us: list[float], **goals: float) -> Compared:
    return Compared(pair(side("peer"), side("ours"), **goals), tuple(peer_us), tuple(ours_us))


def unimportable() -> pairs.Slice:
    raise ModuleNotFoundError("No module named 'textarena'")


MISSING = Side("TextArena", "6x6", unimportable, "textarena")
HERE = {"load": (0.5, 0.5, 0.5)}


def test_a_walk_ends_when_the_last_box_is_on_its_goal():
    assert legal_walk(CORRIDOR, random.Random(0), 30) == ("R", room("######", "#-@*-#", "######"))


def test_a_walk_never_pushes_into_a_wall_or_another_box_and_stops_where_nothing_is_legal():
    stuck = room("#####", "#@$##", "#$--#", "#$..#", "#####")
    assert legal_walk(stuck, random.Random(0), 30) == ("", stuck)


def test_a_walk_without_boxes_ends_on_the_goal():
    assert legal_walk(room("####", "#@.#", "####"), random.Random(0), 30)[0] == "R"


def test_a_walk_is_no_longer_than_its_limit_and_the_same_for_the_same_random_numbers():
    hall = room("#######", "#@----#", "#-----#", "#--$--#", "#----.#", "#######")
    letters, _ = legal_walk(hall, random.Random(1), 12)
    assert len(letters) == 12
    assert legal_walk(hall, random.Random(1), 12)[0] == letters


def test_every_step_of_every_episode_is_counted_on_the_seeds_that_follow(monkeypatch):
    clock = count(0, 3)
    monkeypatch.setattr(pairs.time, "process_time", lambda: next(clock))
    game = Corridor()
    assert steps(game, episodes=5, turns=30)(100) == 3.0
    assert game.seeds == [100, 101, 102, 103, 104]
    assert game.played == ["r"] * 5


def test_a_game_that_does_not_play_what_is_legal_is_not_timed():
    with pytest.raises(RuntimeError, match="seed 7: R was not played"):
        steps(Corridor(deaf=True), episodes=1, turns=30)(7)


def test_each_reset_is_to_a_seed_of_its_own(monkeypatch):
    clock = count(0, 12)
    monkeypatch.setattr(pairs.time, "process_time", lambda: next(clock))
    game = Corridor()
    assert resets(game, 4)(50) == 3.0
    assert game.seeds == [50, 51, 52, 53]


def test_rounds_alternate_the_order_share_their_seeds_and_leave_the_first_out():
    calls = []
    row = compare(
        pair(side("peer", 9, 8, 6, calls=calls), side("ours", 1, 2, 3, calls=calls)), rounds=2, first_seed=500
    )
    assert [label for label, _ in calls] == ["ours", "peer", "peer", "ours", "ours", "peer"]
    assert [seed for _, seed in calls] == [500, 500, 10_500, 10_500, 20_500, 20_500]
    assert (row.peer_us, row.ours_us) == ((8e6, 6e6), (2e6, 3e6))


@pytest.mark.parametrize(
    ("peer_us", "ours_us", "goals", "met"),
    [
        ([10, 30, 20], [10, 10, 10], {"ratio": 2}, True),  # ratios 1, 3, 2: the median decides
        ([10, 30, 19.9], [10, 10, 10], {"ratio": 2}, False),
        ([40, 40, 10], [10, 20, 1], {"ratio": 4}, True),  # ratios 4, 2, 10; of the medians it would be 40 / 10
        ([10, 10, 90], [1, 10, 30], {"ratio": 4}, False),  # ratios 10, 1, 3; of the medians 10 / 10
        ([99, 99, 99], [15, 14, 16], {"ratio": 2, "limit_us": 15}, True),
        ([99, 99, 99], [15, 16, 16], {"ratio": 2, "limit_us": 15}, False),
    ],
)
def test_the_median_of_the_ratios_and_the_median_of_ours_decide(peer_us, ours_us, goals, met):
    assert compared(peer_us, ours_us, **goals).met is met


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [(range(1, 101), 99, 99), (range(1, 201), 99, 198), (range(2000, 0, -1), 50, 1000), ([7.0], 99, 7.0)],
)
def test_a_percentile_is_the_nearest_rank(values, percent, expected):
    assert percentile(values, percent) == expected


def test_the_99th_percentile_may_be_at_the_limit_and_the_greatest_beyond():
    assert Tail("reset", 2000, 1.0, 5.0, 80.0).met
    assert not Tail("reset", 2000, 1.0, 5.01, 5.01).met


def test_a_peer_that_is_not_installed_is_a_row_that_says_how_to_install_it(capsys):
    row = compare(pair(MISSING, side("ours")), rounds=9, first_seed=0)
    assert not row.met
    finish([row], HERE, None, strict=False)
    printed = capsys.readouterr().out
    assert "not installed (No module named 'textarena'): pip install textarena==0.7.4" in printed
    assert "NOT MEASURED" in printed
    assert "0 of 1 goals met" in printed


def test_that_ours_cannot_be_imported_is_an_error_and_no_row():
    with pytest.raises(ModuleNotFoundError):
        compare(pair(side("peer", 1), Side("ours", "", unimportable)), rounds=1, first_seed=0)


def test_an_environment_whose_extra_is_missing_is_a_row_that_says_how_to_install_it(monkeypatch):
    def make(name: str) -> None:
        raise ImportError("pyosys is not installed. Run pip install -e '.[verilog]'.")

    monkeypatch.setattr(pettingllms_envs, "make", make)
    found = [each for each in pairs.snapshots() if each.what.startswith("verilog ")]
    rows = [compare(found[0], rounds=1, first_seed=0), tail("verilog", "test", range(3))]
    assert [(row.met, row.cells()[-1]) for row in rows] == [(False, "NOT MEASURED")] * 2
    assert [row.figure().absent.partition(". ")[2] for row in rows] == ["Run pip install -e '.[verilog]'."] * 2


def test_without_a_checkout_the_reference_is_not_installed():
    with pytest.raises(ImportError, match="no checkout"):
        Reference(None, "sokoban", 6)


@pytest.mark.parametrize(
    ("row", "status"),
    [
        (compared([10], [1]), 0),
        (compared([10], [9]), 1),
        (Compared(pair(MISSING, side("ours")), absent="not installed"), 1),
        (Tail("reset", 2000, 1.0, 6.0, 6.0), 1),
        (Tail("reset", 2000, 1.0, 4.0, 6.0), 0),
    ],
)
def test_strict_ends_with_status_1_unless_every_goal_was_measured_and_met(row, status, capsys):
    good = compared([10], [1])
    assert finish([good, row], HERE, None, strict=True) == status
    assert finish([good, row], HERE, None, strict=False) == 0
    assert ("MISSED" in capsys.readouterr().out) == (status == 1 and not getattr(row, "absent", ""))


def test_the_file_has_every_round_and_the_goals(tmp_path, capsys):
    file = tmp_path / "bench.json"
    finish([compared([30, 20], [10, 10], ratio=2), Tail("reset", 9, 1.0, 2.0, 3.0)], HERE, file, strict=False)
    saved = json.loads(file.read_text())
    assert saved["figures"][0] == {
        "name": "game step, ours / peer",
        "unit": "us",
        "ours": [10, 10],
        "peer_name": "peer",
        "peer": [30, 20],
        "goal": ">= 2x",
        "met": True,
        "ratios": [3.0, 2.0],
    }
    assert saved["figures"][1] == {"name": "reset, p99", "unit": "ms", "ours": [2.0], "goal": "<= 5 ms", "met": True}
    assert "settings of peer" in capsys.readouterr().out


def test_the_table_has_medians_spread_goal_and_verdict():
    lines = table([compared([30, 4000, 20], [10, 10, 10], ratio=2, limit_us=15).cells()]).splitlines()
    assert re.split(" {2,}", lines[1]) == [
        "game step, ours / peer",
        "30.0 us",
        "10.0 us",
        "3.0x (2.0-400.0)",
        ">= 2x, <= 15 us (15.0 us)",  # 30 / 2: what ours may take for the ratio
        "met",
    ]


@pytest.mark.parametrize(
    ("what", "ours", "peer", "ratio"),
    [
        ("Sokoban step", "raw_env", "TextArena Sokoban-v0-train", 20),
        ("Sokoban step", "raw_env", "TextArena Sokoban-v0", 20),
        ("Sokoban step", "raw_env", "GEM", 10),
        ("Sokoban step", "OrderEnforcingWrapper(raw_env)", "TextArena Sokoban-v0-train", 6),
        ("Sokoban step", "OrderEnforcingWrapper(raw_env)", "TextArena Sokoban-v0", 6),
        ("Sokoban step", "OrderEnforcingWrapper(raw_env)", "GEM", 3.5),
        ("Sokoban step", "env", "TextArena Sokoban-v0-train", 10),
        ("Sokoban step", "env", "TextArena Sokoban-v0", 10),
        ("Sokoban reset, 1 box", "env", "TextArena Sokoban-v0-train", 15),
        ("Sokoban reset, 1 box", "env", "GEM", 15),
        ("Sokoban reset, 1 box", "env", "reference", 15),
        ("Sokoban reset, 2 boxes", "env", "TextArena Sokoban-v0-train", 40),
        ("Sokoban reset, 2 boxes", "env", "GEM", 40),
        ("Sudoku 4x4 reset", "env", "GEM", 20),
        ("Sudoku 4x4 reset", "env", "reasoning-gym", 15),
        ("Plan-Path reset", "env", "reference", 5),
        ("Plan-Path step", "env", "reference", 1.5),
        ("plan_path snapshot + restore", "env", "deepcopy", 20),
    ],
)
def test_every_pair_has_its_goal(what, ours, peer, ratio):
    found = [each for each in all_pairs(None) if (each.what, each.ours.label, each.peer.label) == (what, ours, peer)]
    assert [each.ratio for each in found] == [ratio]


def test_every_peer_is_pinned_and_says_how_it_is_installed():
    needed = {each.peer.needs for each in all_pairs(None)} - {""}
    assert needed == {"textarena", "gem-llm", "reasoning_gym", "reference"}
    for name in needed - {"reference"}:
        assert re.fullmatch(rf"pip install {name}==[\d.]+", how_to_install(name))
    assert "--reference" in how_to_install("reference")


@pytest.mark.parametrize("name", pettingllms_envs.list_environments())
def test_switching_and_copying_and_resetting_are_timed_in_every_environment(name):
    env = pettingllms_envs.make(name)
    assert switches(env, 3)(0) > 0
    assert switches(env, 4)(0) > 0
    assert deep_copies(env, 1)(0) > 0
    assert tail(name, "test", range(3)).resets == 3


@pytest.mark.parametrize(
    ("name", "settings", "boxes"), [("plan_path", {}, 0), ("sokoban", {"boxes": 1}, 1), ("sokoban", {"boxes": 2}, 2)]
)
def test_our_board_is_read_from_the_prompt_and_our_steps_are_those_of_the_walk(name, settings, boxes):
    game = Ours(pettingllms_envs.make(name, **settings, workflow="single", num_turns=200))
    game.start(3)
    now = game.room()
    assert (len(now.boxes), len(now.goals)) == (boxes, boxes or 1)
    assert steps(game, episodes=20, turns=30)(0) > 0


def test_a_text_that_is_in_no_rows_name_and_a_number_out_of_range_are_errors(capsys):
    for wrong in (["--only", "chess"], ["--rounds", "0"], ["--resets", "0"]):
        with pytest.raises(SystemExit) as ended:
            main(wrong)
        assert ended.value.code == 2
    assert "'chess' is in no row's name" in capsys.readouterr().err


def test_garbage_collection_is_back_on_after_a_slice_that_failed():
    def fails(first_seed: int) -> float:
        raise RuntimeError(str(bench_envs.gc.isenabled()))

    with pytest.raises(RuntimeError, match="False"):
        bench_envs._undisturbed(fails, 0)
    assert bench_envs.gc.isenabled()
