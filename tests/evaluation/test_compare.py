"""Verdicts over runs whose differences are known."""

import io
import re

import pytest
from rich.console import Console

from made_rows import header, row, run_of
from pettingllms_envs.commands import compare as commands
from pettingllms_envs.evaluation.compare import RunRows, compare
from pettingllms_envs.evaluation.scores import is_pooled, pool_seeds
from pettingllms_envs.evaluation.statistics import paired_interval, sign_flips


def test_two_runs_on_the_same_problems_are_paired() -> None:
    # Both solve 4, the second alone 9, the first alone 1, neither 6.
    first, second = run_of("a", "1111" + "0" * 9 + "1" + "0" * 6), run_of("b", "1111" + "1" * 9 + "0" + "0" * 6)
    comparison = compare([first, second])
    (pair,) = comparison.pairs
    assert pair.difference == pytest.approx(8 / 20)
    assert (pair.only_first, pair.only_second, pair.test) == (1, 9, "McNemar")
    assert pair.p == pytest.approx(2 * 11 / 1024)
    assert (pair.low, pair.high) == paired_interval(4, 9, 1, 6)
    assert pair.verdict == "b is better"
    assert compare([second, first]).pairs[0].verdict == "b is better"


def test_equal_runs_cannot_be_told_apart() -> None:
    comparison = compare([run_of("a", "1010"), run_of("b", "1010")])
    (pair,) = comparison.pairs
    assert (pair.difference, pair.p, pair.verdict) == (0.0, 1.0, "cannot tell")
    assert pair.low < 0 < pair.high


def test_what_two_runs_could_tell_three_may_not() -> None:
    # 0:6 gives 2 / 64 = 0.031 by itself, and three times that for three pairs.
    first, second = run_of("a", "0" * 6 + "1" * 14), run_of("b", "1" * 20)
    assert compare([first, second]).pairs[0].verdict == "b is better"
    pairs = compare([first, second, run_of("c", "0" * 6 + "1" * 14)]).pairs
    assert [pair.adjusted for pair in pairs] == pytest.approx([3 * 2 / 64, 1.0, 3 * 2 / 64])
    assert {pair.verdict for pair in pairs} == {"cannot tell"}
    assert (pairs[0].low, pairs[0].high) == paired_interval(14, 6, 0, 0, 1 - 0.05 / 3)


@pytest.mark.parametrize(("differing", "of", "needed"), [(5, 5, 6), (5, 6, 8)])  # 2 / 2^5 > 0.05 > 2 / 2^6
def test_no_fewer_problems_are_needed_than_the_exact_test_can_tell(differing: int, of: int, needed: int) -> None:
    (pair,) = compare([run_of("a", "0" * of), run_of("b", "1" * differing + "0" * (of - differing))]).pairs
    assert (pair.verdict, pair.needed) == ("cannot tell", needed)


def test_comparing_with_the_first_alone_asks_fewer_questions() -> None:
    runs = [run_of("a", "0" * 6), run_of("b", "1" * 6), run_of("c", "1" * 6)]
    assert [(pair.first, pair.second) for pair in compare(runs, against_first=True).pairs] == [("a", "b"), ("a", "c")]


def test_problems_that_a_run_has_no_result_for_are_left_out_of_all() -> None:
    comparison = compare([run_of("a", "11e0"), run_of("b", "0110")])
    assert comparison.num_problems == 3
    assert comparison.left_out == {"a": 0, "b": 1}
    assert comparison.success["b"][0] == pytest.approx(1 / 3)


def test_a_run_that_leaves_the_others_few_problems_is_named() -> None:
    runs = [run_of("weak", "0" * 12), run_of("strong", "1" * 11 + "e"), run_of("broken", "11" + "e" * 10)]
    comparison = compare(runs)
    # With broken two problems are left; without it the eleven that strong has; without another one still two.
    assert (comparison.num_problems, dict(comparison.without)) == (2, {"broken": 11})
    assert compare(runs[:2]).without == {}
    console = Console(file=io.StringIO(), width=120)
    commands.show(console, comparison)
    said = "Without broken the others have results for 11 in common: play it to its end, or leave it out."
    assert said in console.file.getvalue()


def test_samples_are_compared_problem_by_problem() -> None:
    first, second = run_of("a", "00,10,00,01"), run_of("b", "11,11,10,11")
    (pair,) = compare([first, second]).pairs
    # The differences are 2, 1, 1, 1 halves, all of one sign: 2 of 2^4 patterns.
    assert (pair.test, pair.p) == ("sign flips", pytest.approx(2 / 16))
    assert pair.difference == pytest.approx(5 / 8)


def test_problems_with_more_samples_in_one_run_are_counted_for_there_the_test_is_not_exact() -> None:
    assert compare([run_of("a", "00,10"), run_of("b", "11,01")]).num_uneven == 0
    assert compare([run_of("a", "00,10,1e"), run_of("b", "11,0e,1e")]).num_uneven == 1


def test_within_a_budget_an_episode_that_took_more_has_failed() -> None:
    cheap = RunRows("cheap", header(), [row(i, i < 2, tokens=100) for i in range(4)])
    dear = RunRows("dear", header(), [row(i, True, tokens=400) for i in range(4)])
    assert compare([cheap, dear]).budgets == {100: {"cheap": 0.5, "dear": 0.0}, 400: {"cheap": 0.5, "dear": 1.0}}
    assert compare([run_of("a", "10"), run_of("b", "11")]).budgets == {}
    in_part = row(0, True, tokens=100)
    other = {**in_part["steps"][0], "tokens": {"prompt": None, "completion": None}, "usage_note": "not given"}
    in_part["steps"].append(other)  # whose tokens may be any number
    assert compare([RunRows("in part", header(), [in_part, *cheap.rows[1:]]), dear]).budgets == {}


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            RunRows("b", header(settings={"size": 5}), [row(0, True)]),
            r"played with .*; expected the same, for their seeds",
        ),
        (RunRows("b", header(), [row(0, True, state="other")]), r"begin game_v0 0 \{\} in different states"),
        (RunRows("b", header(), [row(7, True)]), r"a and b have no problem in common"),
        (RunRows("a", header(), [row(0, True)]), r"the runs are a, a; expected two or more, of different names"),
    ],
)
def test_runs_that_are_not_of_the_same_problems_are_refused(second: RunRows, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare([run_of("a", "1"), second])


def test_a_team_and_a_lone_agent_are_on_the_same_problems_though_their_workflows_differ() -> None:
    team = RunRows("team", header(env_config="draft_plan"), [row(0, True)])
    solo = RunRows(
        "solo", header(env_config="single", settings={"workflow": "single"}), [row(0, False, state="other")]
    )
    assert compare([team, solo]).num_problems == 1


def test_the_tables_say_which_p_it_is_who_won_and_how_many_problems_would_tell() -> None:
    """Two runs: 1 and 9 wins of 12, a mean of 8/12, p = 2 * (1 + 10) / 2^10. Three: the same times Holm's three."""
    console = Console(file=io.StringIO(), width=120, markup=False)
    first, second = run_of("a", "1" + "0" * 9 + "11"), run_of("b", "0" + "1" * 9 + "11")
    commands.show(console, compare([first, second]))
    text = console.file.getvalue()
    assert re.search(r"left - right +points \[interval\] +won left:right +p \(exact\) +needed", text)
    # The differences are -1, nine of 1 and two of 0: variance (10 - 64 / 12) / 11 = 0.4242, so that
    # 2.801585^2 * 0.4242 / (8 / 12)^2 + 1.9207 = 9.413.
    assert re.search(r"b - a +\+66\.7 \[.*\] +9:1 +0\.021 +10 ", text)
    console = Console(file=io.StringIO(), width=120, markup=False)
    commands.show(console, compare([first, second, run_of("c", "0" * 12)]))
    assert "p (Holm)" in console.file.getvalue()
    assert "Adjusted by Holm, so that all 3 verdicts hold together" in console.file.getvalue()
    assert "four times in five, among as many comparisons." in console.file.getvalue()


def team_of(name: str, returns: list[tuple[float, ...]], env: str = "conversation_v0") -> RunRows:
    """A run without success: of each problem the return of each sample."""
    rows = [
        row(i, None, sample=k, reward=value) for i, samples in enumerate(returns) for k, value in enumerate(samples)
    ]
    return RunRows(name, header(env=env), rows)


def test_a_team_without_success_is_compared_by_its_mean_return() -> None:
    # Per problem a earns 0, 1, 2, 3, 4, 5 (the mean of its samples), and b one more.
    first = team_of("a", [(i - 1.0, i + 1.0) for i in range(6)])
    second = team_of("b", [(i + 1.0, i + 1.0) for i in range(6)])
    found = compare([first, second])
    (pair,) = found.pairs
    assert (found.success, found.budgets, found.returns["a"][0], found.returns["b"][0]) == ({}, {}, 2.5, 3.5)
    assert (pair.difference, pair.low, pair.high) == (1.0, 1.0, 1.0)
    assert (pair.test, pair.p, pair.verdict) == ("sign flips", pytest.approx(2 / 2**6), "b is better")
    console = Console(file=io.StringIO(), width=120, markup=False)
    commands.show(console, found)
    said = " ".join(console.file.getvalue().split())
    assert "run mean return of an agent [95% interval] a 2.5 [" in said
    assert "left - right return [interval] won" in said
    assert "b - a +1 [+1, +1] 6:0" in said


def test_agents_that_compete_are_not_compared_by_returns() -> None:
    runs = [team_of(name, [(1.0,)], "kuhn_poker_v0") for name in "ab"]
    with pytest.raises(ValueError, match=r"of kuhn_poker_v0 compete.*: pettingllms crossplay a b$"):
        compare(runs)


def seeded(name: str, successes: str, seed: int, model: str = "m") -> RunRows:
    agents = {"planner_0": {"kind": "api", "target": model}}
    return RunRows(name, header(seed=seed, samples=1, agents=agents), run_of(name, successes).rows)


def test_seeds_of_one_model_are_samples_of_one_run() -> None:
    runs = [seeded("a", "1010", 0), seeded("b", "1110", 1), seeded("c", "0010", 0, "n"), seeded("d", "0000", 1, "n")]
    one, other = pool_seeds(runs)
    assert (is_pooled(one), one.header["config"]["samples"], one.header["config"]["seed"]) == (True, 2, [0, 1])
    assert [(each["instance"]["index"], each["sample"]) for each in one.rows[3:6]] == [(3, 0), (0, 1), (1, 1)]
    (pair,) = compare([one, other]).pairs
    # By problem m has 1, 1/2, 1, 0 and n has 0, 0, 1/2, 0: differences of 2, 1, 1 and 0 halves, all of one sign.
    assert (pair.difference, pair.only_first, pair.only_second) == (-0.5, 3, 0)
    assert (pair.test, pair.p) == ("sign flips", pytest.approx(2 / 2**3))


def test_runs_that_differ_in_more_than_the_seed_are_not_pooled() -> None:
    runs = [seeded("a", "10", 0), seeded("b", "10", 1, "other")]
    assert pool_seeds(runs) == runs


def test_large_whole_returns_are_tested_without_a_table_of_their_sums() -> None:
    assert sign_flips([1_000_000_000, 2_000_000_000, 3_000_000_000]) == 0.25
