"""Calls are answered anew to see which ones decide the outcome: the estimate by hand, its intervals, the command."""

from __future__ import annotations

import itertools
import json
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from chat_server import serving
from pettingllms_envs import cli
from pettingllms_envs.episodes.files import read
from pettingllms_envs.evaluation.statistics import wilson
from pettingllms_envs.research.blame import CallsAnew, squares


def of(*values: float) -> list[dict[str, float]]:
    return [{"a": value} for value in values]


@pytest.mark.parametrize(
    ("continuations", "returns", "expected"),
    [
        # V is 1/2 (0 and 1, whose mean has the variance 1/2 / 2) and then 1: (1/2)^2 - 1/4.
        ([of(0, 1), of(1, 1)], {"a": 1.0}, [0.0, 0.0]),
        # V is 0, then 1/2, then 1: (1/2)^2 - 1/4 twice.
        ([of(0, 0), of(1, 0)], {"a": 1.0}, [0.0, 0.0]),
        # Nothing is decided before the last call, which decides it all.
        ([of(0, 0, 0), of(0, 0, 0)], {"a": 1.0}, [0.0, 1.0]),
        # What one agent wins the other loses, so that no sum of returns says anything.
        ([[{"a": 1.0, "b": -1.0}] * 2], {"a": -1.0, "b": 1.0}, [4.0]),
        ([], {"a": 1.0}, []),
    ],
)
def test_the_squared_change_of_the_expected_return_by_hand(
    continuations: Any, returns: Any, expected: list[float]
) -> None:
    assert squares(continuations, returns) == pytest.approx(expected)


def test_the_mean_over_everything_that_may_be_sampled_is_the_variance_that_a_call_decides() -> None:
    # A fair coin at the second of two calls: it decides all of the variance, 1/4, and the first nothing.
    coins = list(itertools.product((0.0, 1.0), repeat=5))
    found = [squares([of(a, b), of(c, d)], {"a": e}) for a, b, c, d, e in coins]
    assert [sum(each) / len(coins) for each in zip(*found, strict=True)] == pytest.approx([0.0, 0.25])


def row(index: int, sample: int, value: float, **fields: Any) -> dict[str, Any]:
    """A row of an episode in which the writer asks, then the critic, then the writer."""
    instance = {"index": index, "env": "coin", "seed": index, "options": {}, "problem": None}
    steps = [{"agent": agent} for agent in ("writer", "critic", "writer")]
    return {"instance": instance, "sample": sample, "steps": steps, "returns": {"a": value}, "error": None, **fields}


def a_run(rng: random.Random, num: int, decides: int) -> dict[str, Any]:
    """What is found of episodes whose return is a coin that one of the three calls throws."""
    rows = [row(index, 0, float(rng.random() < 0.6)) for index in range(num)]
    anew = CallsAnew(rows, 1, 4)
    returns = [each["returns"]["a"] for each in rows]
    places = [(index, number) for index in range(num) for number in range(1, 13)]
    return anew.effects(
        [
            row(index, number, float(rng.random() < 0.6) if anew.call_of(number)[0] <= decides else returns[index])
            for index, number in places
        ]
    )


@pytest.mark.parametrize("decides", [1, 2])
def test_the_deciding_call_has_the_largest_effect_and_the_intervals_of_others_include_0(decides: int) -> None:
    rng = random.Random(decides)
    found = [a_run(rng, 30, decides)["calls"] for _ in range(20)]
    which = [("writer", 1), ("critic", 1), ("writer", 2)][decides]
    assert all((calls[0]["agent"], calls[0]["call"]) == which and calls[0]["low"] > 0 for calls in found)
    others = [call for calls in found for call in calls[1:]]
    assert len(others) == 40
    assert sum(call["low"] <= 0 <= call["high"] for call in others) >= 36
    assert sum(calls[0]["mean"] for calls in found) / 20 == pytest.approx(0.24, abs=0.03)
    assert any(call["mean"] < 0 for call in others)
    assert sum(call["share"] for call in found[0]) == pytest.approx(1.0)


def test_every_call_of_every_sample_has_numbers_of_its_own_which_are_none_of_the_run() -> None:
    rows = [row(index, sample, 0.0) for index in (0, 1) for sample in (0, 1)]
    anew = CallsAnew(rows, samples=2, num=3)
    places = [(instance.index, number) for instance, number in anew.places]
    assert len(set(places)) == len(places) == 2 * 2 * 3 * 3
    assert min(number for _, number in places) == 2
    calls = sorted(anew.call_of(number) for index, number in places if index == 0)
    assert calls == sorted([(call, sample) for call in range(3) for sample in range(2)] * 3)


def test_an_episode_counts_once_each_of_its_calls_was_answered_twice() -> None:
    rows = [row(index, 0, 1.0) for index in range(3)]
    failed = {"kind": "environment", "message": ""}
    played = [row(index, number, 1.0) for index in range(3) for number in range(1, 7)]
    played[0]["error"] = failed
    found = CallsAnew(rows, 1, 2).effects(played)
    assert (found["episodes"], found["varied"]) == (2, False)
    assert [(call["mean"], call["low"], call["high"], call["share"]) for call in found["calls"]] == [
        (0.0, 0.0, 0.0, None)
    ] * 3
    played[7]["error"] = failed
    assert CallsAnew(rows, 1, 2).effects(played) == {"episodes": 1, "varied": False, "calls": []}


def test_a_call_that_never_changed_the_outcome_may_matter_as_often_as_wilsons_interval_says() -> None:
    # Returns of 0 and 2 over 30 problems, decided before the first call, as far as was seen.
    rows = [row(index, 0, 2.0 * (index % 2)) for index in range(30)]
    anew = CallsAnew(rows, 1, 2)
    played = [row(index, number, rows[index]["returns"]["a"]) for index in range(30) for number in range(1, 7)]
    found = anew.effects(played)
    assert found["varied"]
    most = 4 * wilson(0, 60)[1]
    assert [(call["mean"], call["low"], call["high"]) for call in found["calls"]] == [(0.0, 0.0, most)] * 3


ARCHIVES = ["archives", "--set", "wording=symbols", "--set", "size=8", "--set", "results=2", "--limit", "4"]


def test_a_constant_fault_is_found_by_a_substitute_and_by_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    agents = ["--agents", "librarian_0=oracle", "librarian_1=oracle", "answerer=null"]
    line = ["blame", *ARCHIVES, *agents, "--replies", "2", "--output", "out"]
    assert cli.main([*line, "--substitute", "answerer=oracle"]) == 0
    found = json.loads(next(Path("out").glob("substitute-answerer_0-*-2/report.json")).read_text())["substitute"]
    (call,) = found["calls"]
    assert (call["call"], call["episodes"]) == (1, 4)
    # In 4 of 4 problems from 0 to 1: what is missed is Wilson's upper end of 0 of 4.
    assert call["gains"]["success"] == {"mean": 1.0, "low": pytest.approx(1 - wilson(0, 4)[1]), "high": 1.0}
    assert re.search(r"1 +4 +1 \[0\.51, 1\] +2\.2 *\n", capsys.readouterr().out)  # of ten problems on with an interval

    assert cli.main([*line, "--substitute", "librarian_0=oracle"]) == 0
    found = json.loads(next(Path("out").glob("substitute-librarian_0-*-2/report.json")).read_text())["substitute"]
    assert [each["gains"]["success"]["mean"] for each in found["calls"]] == [0.0] * len(found["calls"])

    assert cli.main(line) == 0
    assert "The outcome never varied: a constant fault cannot be found so." in capsys.readouterr().out


@pytest.mark.parametrize("given", ["nobody=oracle", "librarian=oracle", "answerer", "answerer="])
def test_a_substitute_of_nobody_or_by_nothing_is_refused_before_anything_is_played(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["blame", *ARCHIVES, "--agents", "oracle", "--replies", "2", "--output", "out"]
    assert cli.main([*line, "--substitute", given]) == 2
    assert f"--substitute is {given!r}; expected AGENT=SPEC, of one of the agents" in " ".join(
        capsys.readouterr().err.split()
    )
    assert cli.main([*line, "--substitute", "answerer=scripted:nowhere"]) == 2
    assert "error: nowhere: No such file or directory; expected a path that can be used" in capsys.readouterr().err
    assert not Path("out").exists()


PROGRAM = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[1] / "programs")!r})
from calls import ask
from pettingllms_envs.programs import program

def play(base_url, row):
    ask(base_url, "writer", f"Write {{row['seed']}}.")
    said = ask(base_url, "critic", "Good?")
    return float(ask(base_url, "writer", f"Write {{said}}.") == "Moves: U R")

team = program(play, agents=("writer", "critic"))
"""


def test_bench_says_which_call_of_a_program_decides_and_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "team.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "120")
    with serving() as server:
        line = ["blame", f"program:{tmp_path / 'team.py'}:team", "--model", "tiny", "--base-url", server.url]
        line += ["--limit", "12", "--samples", "2", "--output", "out", "--replies", "3"]
        assert cli.main(line) == 0
        shown = capsys.readouterr().out
        assert "72 calls of 24 episodes answered anew 3 times each: 216 episodes to play on, about 432 calls." in shown
        assert re.search(r"agent +call +episodes +effect \[95% interval\] +share\nwriter +2 +24 +0\.\d+ \[0\.", shown)
        assert len(server.bodies) == 24 * 3 + 432
        file = Path("out/blame-3/episodes.jsonl")
        whole, report = file.read_bytes(), json.loads(Path("out/blame-3/report.json").read_text())
        lines = whole.splitlines(keepends=True)
        file.write_bytes(b"".join(lines[:100]) + lines[100][:50])  # as a kill leaves it
        assert cli.main(line) == 0
        untimed = re.compile(rb'"timing": \{[^}]*\}')
        assert untimed.sub(b"", file.read_bytes()) == untimed.sub(b"", whole)
        assert json.loads(Path("out/blame-3/report.json").read_text())["blame"] == report["blame"]
    assert report["blame"]["episodes"] == 24
    first = report["blame"]["calls"][0]
    assert (first["agent"], first["call"]) == ("writer", 2)
    assert first["low"] > 0
    recorded = {(row["instance"]["index"], row["sample"]): row["steps"] for row in read(Path("out"))}
    anew = CallsAnew(read(Path("out")), 2, 3)
    for each in read(Path("out/blame-3")):
        call, sample = anew.call_of(each["sample"])
        steps = recorded[each["instance"]["index"], sample]
        assert [step["reply"] for step in each["steps"][:call]] == [step["reply"] for step in steps[:call]]
        seeds = {step["seed"] for own in recorded.values() for step in own}
        assert not seeds & {step["seed"] for step in each["steps"][call:]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["plan_path", "--replies", "1"], "--replies is 1; expected at least 2."),
        (["plan_path", "--model", "a", "--model", "b", "--replies", "2"], "--model was given 2 times; expected one"),
        (["plan_path", "sudoku", "--replies", "2"], "unrecognized arguments: sudoku"),
    ],
)
def test_what_cannot_be_answered_anew_is_refused_before_anything_is_played(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["blame", *arguments, "--agents", "null"]) == 2
    assert expected in capsys.readouterr().err


def test_an_environment_that_cannot_be_played_again_is_refused_before_anything_is_played(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(name: str, **settings: Any) -> Any:
        env = made(name, **settings)
        env.unwrapped.metadata["branching"] = "none"
        return env

    made = pettingllms_envs.make
    monkeypatch.setattr(pettingllms_envs, "make", make)
    line = ["blame", "plan_path", "--agents", "null", "--replies", "2", "--output", str(tmp_path / "out")]
    assert cli.main(line) == 2
    assert "the same replies need not lead to the same episode" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


ROOT = Path(__file__).parents[2]


def tables_of(page: str, heading: str) -> list[list[list[str]]]:
    """The rows of the tables below a heading, and their heads."""
    section = (ROOT / page).read_text("utf-8").split(f"# {heading}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"(?:^\|.*\n)+", section, re.M)
    return [[line[2:-2].split(" | ") for line in block.splitlines() if "---" not in line] for block in blocks]


def share_shown(scored: list[Any], method: str, column: str, problems: str) -> str:
    """How often a method names the member, in all runs or those of an environment or fault."""
    own = [each for each in scored if column in ("all", each["env"], each["fault"])]
    guesses = [(each["methods"][problems][method]["named"], each["member"]) for each in own]
    right, num = (sum(map(f, guesses)) for f in (lambda each: each[0].count(each[1]), lambda each: len(each[0])))
    low, high = wilson(right, num)
    return f"{100 * right / num:.0f} [{100 * low:.0f}, {100 * high:.0f}]"


def check_shares(table: list[list[str]], scored: list[Any], left_out: Sequence[str] = ()) -> None:
    """Check a table of how often each method names the member, with its calls."""
    (_, _, *columns), *rows = table
    named = {row[0]: row for row in rows}
    assert set(named) == {*scored[0]["methods"]["20"], "most often at fault"} - {*left_out}
    for method in {*scored[0]["methods"]["20"]} - {*left_out}:
        row = named[method]
        assert row[2:-2] == [share_shown(scored, method, column, "20") for column in columns[:-2]]
        assert row[-1] == share_shown(scored, method, "all", "5")
        for calls, problems in ((row[1], "20"), (row[-2], "5")):
            asked = [num for each in scored for num in each["methods"][problems][method]["calls"]]
            assert calls == f"{sum(asked) / len(asked):,.0f}"


def check_costs(table: list[list[str]], planted: list[Any]) -> None:
    """Check a table of what each fault costs."""
    said = {(env, fault): cell for env, fault, cell in table[1:]}
    for each in planted:
        cell = f"{each['member']} {100 * each['cost']:.1f}"
        assert (cell if each["methods"] else f"({cell})") in said[each["env"], each["fault"]].split(", ")


def saved_faults(name: str) -> tuple[dict[str, Any], list[Any]]:
    """What a run saved, and the faults of it that were sought."""
    saved = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text("ascii"))
    scored = [each for each in saved["planted"] if each["methods"]]
    assert {each["cost"] >= 0.1 for each in scored} == {True} != {each["cost"] >= 0.1 for each in saved["planted"]}
    return saved, scored


def test_the_pages_have_what_the_saved_benchmark_of_planted_faults_says() -> None:
    saved, scored = saved_faults("planted_faults")
    planted = saved["planted"]
    pages = ("docs/benchmarking.md", "benchmarks/results/benchmarking.md")
    (by_env,), (by_fault, costs) = (tables_of(each, "Planted faults") for each in pages)
    check_shares(by_env, scored, left_out=("blame, added up", "most often at fault"))
    check_shares(by_fault, scored)
    check_costs(costs, planted)
    page = (ROOT / pages[0]).read_text("utf-8")
    runs = len(scored[0]["methods"]["20"]["blame"]["named"])
    assert f"{len(scored)} faults, sought in {runs} runs each" in " ".join(page.split())
    assert f"{len(planted) - len(scored)} more cost" in " ".join(page.split())
    assert saved["machine"]["date"][:10] in page
    teams = {each["env"]: {own["member"] for own in planted if own["env"] == each["env"]} for each in planted}
    guess = sum(1 / len(teams[each["env"]]) for each in scored) / len(scored)
    assert f"no more than a guess does ({100 * guess:.0f}%)" in page
    constant = [each for each in scored if each["fault"] != "wrong in half"]
    named = [each["methods"]["20"]["blame"]["named"].count(each["member"]) for each in constant]
    low, high = wilson(sum(named), runs * len(constant))
    assert low <= guess <= high
    assert f"wrong in half ({share_shown(scored, 'blame', 'wrong in half', '20')})" in page
    assert share_shown(scored, "most unreadable", "mute", "20").startswith("100 ")


def test_the_results_have_what_the_saved_benchmark_of_trained_teams_says() -> None:
    saved, scored = saved_faults("planted_faults_trained")
    by_env, by_fault, costs = tables_of("benchmarks/results/benchmarking.md", "Faults planted in trained teams")
    check_shares(by_env, scored)
    check_shares(by_fault, scored)
    check_costs(costs, saved["planted"])
    page = " ".join((ROOT / "docs/benchmarking.md").read_text("utf-8").split())
    assert f"({len(scored)} faults, one run each)" in page
    assert f"blame {share_shown(scored, 'blame', 'all', '20')}" in page
    assert f"the lowest return {share_shown(scored, 'lowest return', 'all', '20')}" in page
    assert {share_shown(scored, method, "all", "20")[:4] for method in ("substitutes", "cross-play")} == {"100 "}
