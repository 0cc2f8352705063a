"""The leaderboard over runs whose results are known, and the index of runs."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from made_rows import header, row
from pettingllms_envs import cli
from pettingllms_envs.commands.leaderboard import text_of
from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.players import labels, player_of
from pettingllms_envs.evaluation import metrics
from pettingllms_envs.evaluation.compare import RunRows, compare, compare_each
from pettingllms_envs.evaluation.leaderboard import Leaderboard, leaderboard
from pettingllms_envs.evaluation.scores import pool_seeds
from pettingllms_envs.evaluation.statistics import paired_interval, wilson


Command = Callable[..., tuple[int, str, str]]


def agent(target: str | None, kind: str = "api", **options: Any) -> dict[str, Any]:
    return {"planner_0": {"kind": kind, "target": target, **options}}


def played(name: str, successes: str, env: str = "game_v0", model: str | None = None, **config: Any) -> RunRows:
    """A run of problems 0, 1, ...: `"1"` solved, `"0"` not, `"e"` an error, `"-"` missing."""
    rows = [
        {
            **row(i, letter == "1", error="unreachable" if letter == "e" else None),
            "timing": {"began": 100.0 + i, "seconds": 0.5},
        }
        for i, letter in enumerate(successes)
        if letter != "-"
    ]
    instances = {"source": "seeds", "num": len(successes), "digest": f"{len(successes)}"}
    whole = {"env": env, "instances": instances, "samples": 1, "seed": 0, "agents": agent(model or name), **config}
    return RunRows(name, header(**whole), rows)


def wordless(run: RunRows, index: int) -> RunRows:
    """The run, with an episode that does not say whether it was a success."""
    run.rows[index]["success"] = None
    return run


def table(board: Leaderboard) -> dict[str, dict[str, float]]:
    return {
        player: {
            column: board.cells[player, column].figure[0]
            for column in board.columns
            if (player, column) in board.cells
        }
        for player in board.players
    }


def test_players_are_ranked_by_the_mean_of_the_columns_and_it_has_the_interval_of_independent_ones() -> None:
    board = leaderboard(
        [
            played("x/b", "1100", model="b"),
            played("x/a", "1110", model="a"),
            played("y/a", "11110000", env="other_v0", model="a"),
            played("y/b", "11111110", env="other_v0", model="b"),
            played("y/c", "11111111", env="other_v0", model="c"),
        ]
    )
    assert table(board) == {
        "b": {"game_v0": 0.5, "other_v0": 0.875},
        "a": {"game_v0": 0.75, "other_v0": 0.5},
        "c": {"other_v0": 1.0},  # the best of its column, but without the other one it is not ranked
    }
    (low_1, high_1), (low_2, high_2) = wilson(2, 4), wilson(7, 8)
    below = math.hypot(0.5 - low_1, 0.875 - low_2) / 2
    above = math.hypot(high_1 - 0.5, high_2 - 0.875) / 2
    assert board.means["b"] == pytest.approx((0.6875, 0.6875 - below, 0.6875 + above))
    assert set(board.means) == {"a", "b"}
    assert board.left_out == []


def test_pairs_are_corrected_for_those_of_all_columns() -> None:
    # 0:8 gives 2 / 2^8 by itself; there are four pairs, one here and three in the other environment.
    runs = [played("x/a", "0" * 8 + "1" * 8, model="a"), played("x/b", "1" * 16, model="b")]
    others = [played(f"y/{name}", "10" * 8, env="other_v0", model=name) for name in "abc"]
    board = leaderboard([*runs, *others])
    (pair,) = board.comparisons["game_v0"].pairs
    assert pair.p == pytest.approx(2 / 256)
    assert pair.adjusted == pytest.approx(4 * 2 / 256)
    assert (pair.low, pair.high) == paired_interval(8, 8, 0, 0, 1 - 0.05 / 4)
    assert pair.verdict == "b is better"
    assert [cell.is_best for cell in board.cells.values()] == [False, True, True, True, True]
    alone = compare([RunRows("a", runs[0].header, runs[0].rows), RunRows("b", runs[1].header, runs[1].rows)])
    assert alone.pairs[0].adjusted == pytest.approx(2 / 256)


def test_what_five_pairs_cannot_tell_the_first_of_them_alone_could() -> None:
    # 0:7 gives 0.0156; times 4 pairs that is 0.06.
    one, other = played("a", "0" * 7), played("b", "1" * 7)
    three = [played(name, "1", env="other_v0") for name in "abc"]
    assert compare_each({"game": [one, other]})["game"].pairs[0].verdict == "b is better"
    assert compare_each({"game": [one, other], "other": three})["game"].pairs[0].verdict == "cannot tell"


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (played("odd", "111"), "no other plays game_v0 so: problems seeds 0-2 (in the table seeds 0-3)"),
        (played("odd", "1111", settings={"size": 5}), "no other plays game_v0 so: size 5 (in the table default)"),
        (played("odd", "1111", max_steps=9), "no other plays game_v0 so: max_steps 9 (in the table null)"),
        (played("odd", "11e1"), "of 4 episodes 1 are errors; the same command plays them"),
        (wordless(played("odd", "1111"), 3), "1 of 4 episodes do not say whether they were a success"),
        (played("odd", "11-e"), "of 4 episodes 1 are errors and 1 are missing; the same command plays them"),
        (played("odd", "1111", instances=None), "it does not say how many episodes it has"),
        (played("odd", "1010", model="a"), "z is the same run, and counts"),
    ],
)
def test_a_run_that_cannot_be_compared_stands_below_with_the_reason(run: RunRows, reason: str) -> None:
    board = leaderboard([played("z", "1010", model="a"), played("b", "1010"), run])
    assert table(board) == {"a": {"game_v0": 0.5}, "b": {"game_v0": 0.5}}
    assert board.left_out == [("odd", reason)]


def test_another_number_of_samples_is_another_run() -> None:
    twice = played("twice", "1111", samples=2, instances={"num": 2, "digest": "4"})
    board = leaderboard([played("a", "1010"), played("b", "1010"), twice])
    assert board.left_out == [
        ("twice", "no other plays game_v0 so: problems 2 (in the table seeds 0-3), samples 2 (in the table 1)")
    ]


def test_runs_that_begin_in_different_states_are_not_ranked() -> None:
    moved = played("b", "1010")
    moved = RunRows("b", moved.header, [row(i, True, state="elsewhere") for i in range(4)])
    board = leaderboard([played("a", "1010"), moved])
    assert (list(board.players), list(board.columns)) == ([], [])
    assert [name for name, _ in board.left_out] == ["a", "b"]
    assert "in different states; expected the same problem" in board.left_out[0][1]


def test_the_minority_whose_problems_begin_otherwise_is_left_out() -> None:
    runs = [played(name, "1010") for name in "abc"]
    moved = RunRows("a", runs[0].header, [row(i, True, state="elsewhere") for i in range(4)])
    torn = [*runs[2].rows[:3], row(3, False, state="here"), row(3, False, sample=1, state="there")]
    for odd in (moved, RunRows("a", runs[0].header, torn)):
        board = leaderboard([odd, *runs[1:]])
        assert table(board) == {"b": {"game_v0": 0.5}, "c": {"game_v0": 0.5}}
        ((name, reason),) = board.left_out
        assert name == "a"
        assert "in different states; expected the same problem" in reason


def test_runs_on_rows_of_other_content_share_no_column_and_those_that_do_not_say_are_compared() -> None:
    chosen = {"source": "data set", "num": 2, "digest": "d"}
    contents = {"a": "new", "b": "new", "c": "old", "d": None}
    runs = [
        played(name, "10", instances=chosen | ({} if content is None else {"content": content}))
        for name, content in contents.items()
    ]
    board = leaderboard(runs)
    assert list(board.players) == ["a", "b", "d"]
    assert [name for name, reason in board.left_out if "rows of different content" in reason] == ["c"]


def test_runs_of_another_version_of_the_package_are_left_out() -> None:
    runs = [played(name, "10") for name in "abc"]
    versions = {"a": "1.0", "b": "2.0", "c": "2.0"}
    for run in runs:
        run.header["versions"]["pettingllms"] = versions[run.name]
    board = leaderboard(runs)
    assert list(board.players) == ["b", "c"]
    said = "it was played by pettingllms 1.0, those in the table by 2.0; expected one version. Play it again."
    assert board.left_out == [("a", said)]
    later = [
        RunRows("c", runs[2].header, [{**each, "timing": {"began": 999.0, "seconds": 1.0}} for each in runs[2].rows])
    ]
    assert list(leaderboard([runs[0], *later]).players) == ["c"]


def test_runs_of_several_states_of_the_code_are_said_to_be_so() -> None:
    runs = [played(name, "10") for name in "abc"]
    said = "game_v0: its runs are of 2 states of the code under one version number (versions.source)."
    assert "versions.source" not in text_of(leaderboard(runs), "md")
    runs[0].header["versions"]["source"] = "another"
    assert said in text_of(leaderboard(runs), "md")


def test_one_name_for_different_agents_is_a_row_for_each() -> None:
    def board(one: Any, other: Any, names: Any) -> Leaderboard:
        return leaderboard([played("x/1", "11", agents=one), played("y/1", "10", env="other_v0", agents=other)], names)

    best = {"x/1": "best", "y/1": "best"}
    found = board(agent(None, "oracle"), agent(None, "null"), best)
    assert (list(found.players), found.means) == (["best (kind=null)", "best (kind=oracle)"], {})
    found = board(agent("m", temperature=0.0), agent("m", temperature=1.0), {})
    assert (list(found.players), found.means) == (["m (temperature=0.0)", "m (temperature=1.0)"], {})
    assert list(board(agent("m"), agent("m"), {}).means) == ["m"]
    assert list(board(agent("m", team="t", adapter="t/a"), agent("m", team="t", adapter="t/b"), best).players) == [
        "best (adapter=t/a)",
        "best (adapter=t/b)",
    ]
    other_role = {"solver_0": {"kind": "api", "target": "m", "team": "t", "adapter": "t/b"}}
    assert list(board(agent("m", team="t", adapter="t/a"), other_role, best).means) == ["best"]


def test_a_suite_may_give_its_player_other_options_in_an_environment() -> None:
    runs = [played("s/1", "11", agents=agent("m", max_tokens=9))]
    runs += [played(f"s/{i}", "10", env="other_v0", agents=agent("m", max_tokens=i)) for i in (7, 8)]
    board = leaderboard(runs, {"s/1": "m", "s/7": "m", "s/8": "m8"})
    assert {player: set(own) for player, own in table(board).items()} == {
        "m": {"game_v0", "other_v0"},
        "m8": {"other_v0"},
    }


def test_an_environment_with_two_columns_weighs_no_more_than_one_with_one() -> None:
    runs = [
        *(played(f"{size}/{name}", "11", model=name, settings={"size": size}) for size in (5, 6) for name in "ab"),
        *(played(f"o/{name}", "00", env="other_v0", model=name) for name in "ab"),
    ]
    board = leaderboard(runs)
    assert board.means["a"][0] == 0.5  # of 1 and 0; by columns it would be 2/3
    # Half the widths of the two environments, (1 - 0.342) each: the two columns have the same problems.
    low, _ = wilson(2, 2)
    assert board.means["a"][1] == pytest.approx(0.5 - (1 - low) / 2)


def test_two_settings_of_an_environment_are_two_columns_if_all_play_both() -> None:
    runs = [played(f"{size}/{name}", "10", model=name, settings={"size": size}) for size in (5, 6) for name in "ab"]
    assert list(leaderboard(runs).columns) == ["game_v0 size=5", "game_v0 size=6"]


def test_a_model_that_plays_twice_is_told_apart_by_its_options_and_keeps_that_name_elsewhere() -> None:
    near, far = agent("m", base_url="http://near/v1"), agent("m", base_url="http://far/v1")
    runs = [
        played("1", "10", agents=near),
        played("2", "11", agents=far),
        played("3", "11", env="other_v0", agents=far),
        played("4", "11", env="other_v0", agents=agent("n", base_url="http://far/v1")),
    ]
    assert list(leaderboard(runs).players) == ["m (base_url=http://far/v1)", "m (base_url=http://near/v1)", "n"]
    (seeds,) = labels([[played("1", "1", model="m", seed=seed).header["config"] for seed in (0, 1)]])
    assert seeds == ["m (seed=0)", "m (seed=1)"]


@pytest.mark.parametrize(
    ("agents", "name", "brief"),
    [
        ({"a_0": {"kind": "api", "target": "org/m"}, "b_0": {"kind": "api", "target": "org/m"}}, "org/m", "m"),
        (
            {"a_0": {"kind": "oracle", "target": None}, "b_0": {"kind": "api", "target": "org/m"}},
            "a=oracle b=org/m",
            "oracle+m",
        ),
        ({"a_0": {"kind": "transformers", "target": "x/y/m", "adapter": "t/a", "team": "runs/t"}}, "t", "t"),
        ({"a_0": {"kind": "transformers", "target": "org/m", "adapter": "t/a"}}, "org/m+a", "m+a"),
        ({"a_0": {"kind": "bot", "target": "piers"}}, "bot:piers", "bot"),
        ("always the same", "-", "-"),
    ],
)
def test_a_run_is_called_after_its_model_its_team_or_its_agents(agents: Any, name: str, brief: str) -> None:
    config = {"agents": agents, "roles": {"a_0": "a", "b_0": "b"}}
    assert (player_of(config), player_of(config, brief=True)) == (name, brief)


def test_wall_time_counts_what_is_played_at_once_once_and_no_pause() -> None:
    spans = [(10.0, 5.0), (12.0, 1.0), (14.0, 3.0), (100.0, 2.0)]  # 10 to 17, and 100 to 102
    rows = [{**row(i, True), "timing": {"began": began, "seconds": s}} for i, (began, s) in enumerate(spans)]
    assert metrics.timing(rows) == {"began": 10.0, "seconds": 9.0}
    assert metrics.timing([row(0, True)]) is None


def test_problems_of_this_package_are_shown_and_are_not_in_the_mean() -> None:
    runs = [played(f"{env}/{name}", "10", env=env, model=name) for env in ("x_v0", "y_v0") for name in "ab"]
    own = [played(f"own/{name}", "1111", env="aime_v0", model=name) for name in "ab"]
    own = [
        RunRows(run.name, {**run.header, "data": {"name": "own:aime", "note": "4 problems"}}, run.rows) for run in own
    ]
    board = leaderboard([*runs, *own])
    assert " No mean counts aime_v0, whose problems are not the benchmark's." in text_of(board, "md")
    assert board.cells["a", "aime_v0"].figure[0] == 1.0
    assert board.means["a"][0] == 0.5  # of x and y; with aime it would be 2/3
    assert board.not_in_mean == ["aime_v0"]
    assert leaderboard(own).not_in_mean == []


# ---- Commands -------------------------------------------------------------------------------------------------------


def test_a_leaderboard_is_a_table_markdown_csv_and_a_page(run: Command) -> None:
    for env in ("plan_path", "sudoku"):
        for name in ("oracle", "null"):
            run(f"bench {env} --agents {name} --limit 8 --output r/{env}-{name}")
    run("bench sudoku --agents random --limit 3 --output r/other")
    (Path("r/broken")).mkdir()
    Path("r/broken/run.json").write_text("{")
    status, out, _ = run("leaderboard r")
    assert status == 0
    assert "oracle 100.0% [67.6, 100.0] * 100.0% [67.6, 100.0] * 100.0% [77.1, 100.0]" in out
    assert "plan_path_v0 oracle - null +100.0 [+" in out
    assert "* r/other: no other plays sudoku_v0 so: problems 3 of the published test set (in the table 8 of the" in out
    assert "* r/broken: r/broken/run.json is not JSON" in out
    for suffix in ("md", "csv", "html"):
        assert run(f"leaderboard r --output l.{suffix}")[:2] == (0, f"l.{suffix}")
    assert "| oracle | **100.0% [67.6, 100.0]** |" in Path("l.md").read_text()
    assert "plan_path_v0,oracle,1.0,0.67" in Path("l.csv").read_text()
    page = Path("l.html").read_text()
    assert page.startswith("<!doctype html>")
    assert not re.search(r"(src|href)=", page)
    assert run("leaderboard r --output l.txt")[2].startswith("error: --output is l.txt; expected a name with one of")
    assert (
        run("leaderboard none")[2]
        == "error: none: No such file or directory; expected a path that can be used. Name another.\n"
    )


def test_a_setting_that_is_given_as_it_is_by_default_is_no_other_benchmark(run: Command) -> None:
    defaults = "--set size=4 --set num_turns=4 --set alpha=1.0 --workflow draft_plan"
    assert run("bench sudoku --agents oracle --limit 4 --output r/short")[0] == 0
    assert "seeds" not in run(f"bench sudoku --agents null --limit 4 {defaults} --output r/long")[1]
    short, long = (files.read_header(Path("r", name))["config"] for name in ("short", "long"))
    assert short["instances"]["source"] == "published"
    assert {**short, "agents": None} == {**long, "agents": None}
    out = run("bench sudoku --agents null --set size=9 --limit 4 --output r/nine")[1]
    assert "sudoku_v0: seeds 0-3, not the published test set, which is of the default settings and no options." in out
    assert "sudoku_v0 null 4 of the published test set 1 - - " in run("leaderboard r")[1]


def test_a_run_that_says_nothing_of_how_replies_are_read_is_a_strict_one(run: Command) -> None:
    run("bench sudoku --agents oracle --limit 2 --output old")
    head = files.read_header(Path("old"))
    del head["config"]["settings"]["strict_format"]
    files.write_json(Path("old/run.json"), head)
    run("bench sudoku --agents null --limit 2 --output strict --set strict_format=true")
    run("bench sudoku --agents null --limit 2 --output lenient")
    assert run("compare old strict")[0] == 0
    assert "old read replies strictly, and lenient did not" in run("compare old lenient")[2]
    assert "no other plays sudoku_v0 so: strict_format false (in the table true)" in run("leaderboard .")[1]
    assert run("bench sudoku --agents oracle --limit 2 --output old")[0] == 0  # goes on, strictly
    assert run("replay old")[0] == 0


def test_two_sets_of_problems_of_one_game_have_none_in_common_and_that_is_said(run: Command) -> None:
    run("bench sudoku --agents oracle --limit 4 --output a")
    run("bench sudoku --agents oracle --limit 4 --split train --output b")
    head = files.read_header(Path("b"))
    head["config"]["settings"] = {"size": 4, "strict_format": False}  # as an earlier version wrote the size
    files.write_json(Path("b/run.json"), head)
    said = "a (4 of the published test set) and b (seeds 0-3) have no problem in common"
    assert said in run("compare a b")[2]


def test_compare_names_models_and_compares_each_environment_by_itself(run: Command) -> None:
    for env in ("plan_path", "sudoku"):
        for name in ("oracle", "null"):
            run(f"bench {env} --agents {name} --limit 8")
    run("bench archives --agents null --limit 8 --output alone")
    folders = " ".join(map(str, sorted(Path("outputs/bench").iterdir(), reverse=True)))
    status, out, _ = run(f"compare {folders} alone")
    assert status == 0
    assert "2 environments, each by itself; all 2 verdicts hold together." in out
    assert "alone is the only run of archives_v0, and compared with none." in out
    assert out.count("null - oracle -100.0 [-100.0, -") == 2
    assert "0:8 0.016 7 oracle is better" in out  # 2 * 2 / 2^8
    assert run(f"compare {folders} --format md --output c.md")[:2] == (0, "c.md")
    assert "| null - oracle | -100.0 [-100.0, -" in Path("c.md").read_text()
    run(f"compare {folders} --json c.json")
    assert list(json.loads(Path("c.json").read_text())["environments"]) == ["sudoku_v0", "plan_path_v0"]
    assert "expected two or more of an environment" in run(f"compare {folders.split()[0]} alone")[2]


def test_the_index_has_every_run_and_filters_them(run: Command) -> None:
    for agents in ("oracle", "null"):
        run(f"bench plan_path --agents {agents} --limit 2 --output r/deep/{agents}")
    run("bench aime --agents null --set workflow=single --limit 2 --output r/aime")
    Path("r/deep/oracle/report.json").unlink()
    (Path("r/bad")).mkdir()
    Path("r/bad/run.json").write_text('{"format": 1}')
    status, out, _ = run("runs r")
    assert status == 0
    assert re.search(
        r"^plan_path_v0 null \d{4}-\d\d-\d\d 0.0% \[0.0, 65.8\] 2 - [\d.]+ s 2 of the published test set r/deep/null$",
        out,
        re.M,
    )
    assert re.search(
        r"^plan_path_v0 oracle \d{4}-\d\d-\d\d - unfinished - - 2 of the published test set r/deep/oracle$", out, re.M
    )
    assert "aime_v0 (2 problems written for this package, not AIME) null" in out
    assert "broken: r/bad/run.json is no run.json of a run" in out
    assert out.endswith("3 runs, 1 unfinished, 1 more that cannot be read")
    assert run("runs r --env plan_path --model NUL")[1].count("plan_path_v0") == 1
    assert "0 runs" in run("runs r --since 2999-01-01")[1]
    assert "3 runs" in run("runs r --since 2020-01-01 --until 2999-01-01")[1]
    assert run("runs r --since monday")[2].startswith(
        "error: argument --since: 'monday' is no date; expected YEAR-MONTH-DAY"
    )
    for suffix in ("md", "csv", "html"):
        assert run(f"runs r --output i.{suffix}")[0] == 0
        assert "r/deep/null" in Path(f"i.{suffix}").read_text()


def test_tables_that_go_into_a_file_are_not_wrapped(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for agents in ("drafter=oracle planner=null", "drafter=null planner=oracle"):
        run(f"bench plan_path --agents {agents} --limit 2 --output r/{agents[-4:]}")
    pair = "drafter=oracle planner=null - drafter=null planner=oracle"
    monkeypatch.setenv("COLUMNS", "80")
    assert pair not in run("leaderboard r")[1]
    monkeypatch.delenv("COLUMNS")
    assert pair in run("leaderboard r")[1]


def test_the_page_of_the_index_links_to_the_pages_of_its_runs(run: Command) -> None:
    for name in ("a b", "c"):
        assert cli.main(["bench", "plan_path", "--agents", "oracle", "--limit", "1", "--output", f"r/{name}"]) == 0
    assert cli.main(["view", "r/a b"]) == 0
    Path("made").mkdir()
    assert run("runs r --output made/runs.html")[0] == 0
    text = Path("made/runs.html").read_text()
    assert '<td><a href="../r/a%20b/page.html">r/a b</a></td></tr>' in text
    assert "<td>r/c</td></tr>" in text


def test_the_page_of_the_index_holds_no_markup_of_a_name(run: Command) -> None:
    run("bench plan_path --agents null --limit 1 --output r/a")
    head = files.read_header(Path("r/a"))
    head["config"]["agents"] = agent("<script>alert(1)</script>|**b**")
    files.write_json(Path("r/a/run.json"), head)
    for command in ("runs", "leaderboard"):
        run(f"{command} r --output p.html")
        assert "alert(1)</script>" not in Path("p.html").read_text()
        Path("p.html").unlink()


def test_a_name_is_no_formula_no_markup_and_no_line_of_its_own() -> None:
    names = ["=1+1", "@SUM(A1)", "+1", "-2+3", "a\n| b <i>*c*", "**best**", "[x](u)", "\\*d*"]
    board = leaderboard([played(f"r/{i}", "10", model=name) for i, name in enumerate(names)])
    shown = {line[1]: line[2] for line in csv.reader(io.StringIO(text_of(board, "csv")))}
    assert set(shown) == {"player", "'=1+1", "'@SUM(A1)", "+1", "'-2+3", "a | b <i>*c*", *names[5:]}
    assert shown["+1"] == "0.5"
    lines = text_of(board, "md").splitlines()
    for name in ("a \\| b \\<i>\\*c\\*", "\\*\\*best\\*\\*", "[x]\\(u)", "\\\\\\*d\\*"):
        assert any(line.startswith(f"| {name} | **50.0%") for line in lines)
    page = text_of(board, "html")
    assert "<td>**best**</td><td><strong>50.0%" in page
    assert "<i>" not in page


def test_no_name_has_an_escape_or_a_line_break_of_a_terminal(run: Command) -> None:
    run("bench plan_path --agents null --limit 2 --output r")
    path = Path("r/run.json")
    record = json.loads(path.read_text("utf-8"))
    for own in record["config"]["agents"].values():
        own.update(kind="api", target="a\x1b[31mRED\n\u202eabc")
    path.write_text(json.dumps(record))
    for command in ("leaderboard r", "runs r"):
        for form in ("table", "md", "csv"):
            status, out, err = run(f"{command} --format {form}")
            assert (status, err) == (0, "")
            assert "a\ufffd[31mRED \ufffdabc" in out


def test_a_shells_glob_over_a_suites_folder_names_its_record_too(run: Command) -> None:
    run("bench plan_path --agents null --limit 2 --output suite/r")
    Path("suite/suite.json").write_text("{}")
    assert run("leaderboard suite/r suite/suite.json") == run("leaderboard suite/r")
    assert run("leaderboard suite/suite.json")[0] == 2


def test_an_index_of_two_thousand_runs_takes_two_seconds_more_than_the_version(run: Command, tmp_path: Path) -> None:
    run("bench plan_path --agents null --limit 2 --output one")
    small = {name: Path("one", name).read_bytes() for name in ("run.json", "report.json", "episodes.jsonl")}
    for i in range(2000):
        folder = tmp_path / "many" / f"{i}"
        folder.mkdir(parents=True)
        for name, content in small.items():
            if (i % 50, name) != (1, "report.json"):
                (folder / name).write_bytes(b"{" if (i % 50, name) == (2, "run.json") else content)
        with open(folder / "episodes.jsonl", "ab") as stream:
            stream.truncate(2_000 + 998_000 * i // 2000)  # holes: they take no room

    def seconds(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "pettingllms_envs.cli", *arguments], check=True, stdout=subprocess.DEVNULL
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    version = seconds("--version")
    assert seconds("runs", "many") < version + 2
    assert run("runs many")[1].endswith("1960 runs, 40 unfinished, 40 more that cannot be read")


@pytest.mark.parametrize(
    "damage",
    [
        {"timing": {"began": 1e20, "seconds": 1.0}},
        {"timing": {"began": -1e20, "seconds": 1.0}},
        {"timing": {"began": "soon"}},
        {"timing": {"began": 1.0, "seconds": math.inf}},
        {"timing": []},
        {"success": {"mean": 1}},
        {"success": {"mean": math.nan, "low": 0.0, "high": 1.0}},
        {"success": {"mean": 0.5, "low": 0.0, "high": 1.0, "least": 0.1}},
        {"success": {"mean": 10**400, "low": 0, "high": 1}},
        {"success": 1},
        {"agents": None},
        {"agents": {"planner_0": {"prompt_tokens": "9", "completion_tokens": 1}}},
        {"agents": {"planner_0": None}},
        {"episodes": {"ended": 2, "planned": "2"}},
        {"episodes": {"ended": 2, "planned": None}},
    ],
)
def test_a_damaged_report_is_broken_and_leaves_the_others(run: Command, damage: dict[str, Any]) -> None:
    for name in ("good", "bad"):
        run(f"bench plan_path --agents null --limit 2 --output r/{name}")
    report = json.loads(Path("r/bad/report.json").read_text())
    Path("r/bad/report.json").write_text(json.dumps({**report, **damage}))
    for form in ("table", "md", "csv", "html"):
        status, out, _ = run(f"runs r --format {form}")
        assert status == 0
        assert "r/good" in out
        assert "r/bad" in out
    assert run("runs r")[1].endswith("1 run, 1 more that cannot be read")


def test_an_unfinished_run_has_bounds_and_no_rate(run: Command) -> None:
    run("bench plan_path --agents oracle --limit 4 --output r/a")
    rows = files.read(Path("r/a"))[:1]
    files.write_json(Path("r/a/report.json"), metrics.report(files.read_header(Path("r/a")), rows, num_planned=4))
    assert "25.0% to 100.0% (partial) 1 of 4 - " in run("runs r")[1]  # one solved, three missing
    (head, line) = run("runs r --format csv")[1].splitlines()
    found = dict(zip(head.split(","), line.split(","), strict=True))
    assert [found[name] for name in ("success", "low", "high", "least", "most")] == ["", "", "", "0.25", "1.0"]
    assert [found[name] for name in ("finished", "episodes", "planned")] == ["False", "1", "4"]


def test_runs_that_differ_in_settings_problems_or_sampling_are_told_apart_in_a_data_frame(run: Command) -> None:
    pytest.importorskip("pandas")
    from pettingllms_envs.evaluation import frame

    for name, more in {"a": "", "b": "--set size=9", "c": "--seed 1 --samples 2"}.items():
        run(f"bench sudoku --agents null --limit 2 {more} --output {name}/run")
    runs = frame(["a", "b", "c"], per="run").set_index("run")
    told = runs[["settings", "problem_set", "samples", "player.seed", "finished"]].to_dict("index")
    assert [list(told[f"{name}/run"].values()) for name in "abc"] == [
        ["", "2 of the published test set", 1, "0", True],
        ["size=9", "seeds 0-1", 1, "0", True],
        ["", "2 of the published test set", 2, "1", True],
    ]
    assert frame(["a", "c", "a"]).groupby("run")["success"].count().to_dict() == {"a/run": 2, "c/run": 4}


def test_all_runs_are_a_data_frame(run: Command) -> None:
    pytest.importorskip("pandas")
    from pettingllms_envs.evaluation import frame

    for agents in ("oracle", "null"):
        run(f"bench plan_path --agents {agents} --limit 4 --output r/{agents}")
    (Path("r/bad")).mkdir()
    Path("r/bad/run.json").write_text("{")
    episodes = frame("r")
    assert episodes.groupby("player")["success"].mean().to_dict() == {"null": 0.0, "oracle": 1.0}
    assert episodes["problem"].nunique() == 4
    runs = frame("r", per="run").set_index("run")
    assert runs["success"].dropna().to_dict() == {"r/null": 0.0, "r/oracle": 1.0}
    assert runs.loc["r/bad", "state"] == "broken"
    with pytest.raises(ValueError, match="per is 'step'; expected 'episode' or 'run'"):
        frame("r", per="step")


def test_a_column_of_a_team_without_success_has_returns_and_is_in_no_mean() -> None:
    runs = [played(f"x/{name}", "10", env="x_v0", model=name) for name in "ab"]
    earned = [played(f"talk/{name}", "0" * 9, env="conversation_v0", model=name) for name in "ab"]
    for run, gain in zip(earned, (0.0, 0.5), strict=True):
        for i, each in enumerate(run.rows):
            each.update(success=None, returns={"planner_0": i / 4 + gain})
    board = leaderboard([*runs, *earned])
    assert board.cells["b", "conversation_v0"].figure[0] == 1.0 + 0.5
    assert [board.cells[name, "conversation_v0"].is_best for name in "ab"] == [False, True]
    assert (board.not_in_mean, dict(board.means)) == (["conversation_v0"], {})
    text = text_of(board, "md")
    assert "Success, of conversation_v0 the mean return of an agent, with 95% intervals." in text
    assert "No mean counts conversation_v0, which has returns." in text
    assert "| conversation_v0 | b - a | +0.5 [+0.5, +0.5] |" in text


def test_pooled_seeds_of_a_player_are_one_row_of_the_leaderboard() -> None:
    runs = [played(f"{name}{seed}", "10", model=name, seed=seed) for name in "ab" for seed in (0, 1)]
    assert len(leaderboard(runs).players) == 4
    board = leaderboard(pool_seeds(runs))
    assert list(board.players) == ["a", "b"]
    assert board.cells["a", "game_v0"].report["success"]["episodes"] == 4
