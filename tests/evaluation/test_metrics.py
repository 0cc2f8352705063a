"""From rows to numbers, each worked by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from made_rows import header, row, run_of
from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.figures import of_outcome
from pettingllms_envs.evaluation import metrics, tables
from pettingllms_envs.evaluation.statistics import shares_bootstrap, studentized_bootstrap, wilson


def test_an_error_is_in_no_rate_and_what_it_could_have_changed_is_said() -> None:
    run = run_of("a", "1100e")
    report = metrics.report(run.header, run.rows, num_planned=6)
    assert report["episodes"] == {"planned": 6, "ended": 4, "errors": {"unreachable": 1}, "missing": 1}
    assert report["success"]["mean"] == 0.5
    assert (report["success"]["low"], report["success"]["high"]) == wilson(2, 4)
    assert (report["success"]["least"], report["success"]["most"]) == (2 / 6, 4 / 6)


def test_an_episode_that_was_cut_before_its_outcome_is_one_without_a_result() -> None:
    rows = [row(0, True), *({**row(i, None), "end": end} for i, end in enumerate(("cut", "cut", "budget"), 1))]
    success = metrics.report(header(), rows)["success"]
    assert (success["mean"], success["episodes"]) == (1.0, 1)
    assert (success["least"], success["most"]) == (1 / 4, 4 / 4)
    assert tables.rate(success) == "25.0% to 100.0% (partial)"
    ungraded = metrics.report(header(), [row(0, True), row(1, None)])["success"]  # a row without an answer
    assert (ungraded["mean"], "least" in ungraded) == (1.0, False)


def test_samples_of_a_problem_count_once_and_are_counted_by_pass_at_k() -> None:
    run = run_of("a", "1100,0000,1111")
    report = metrics.report(run.header, run.rows)
    assert report["success"]["mean"] == pytest.approx(0.5)
    assert report["success"]["problems"] == 3
    assert report["success"]["method"] == "bootstrap"
    assert (report["success"]["low"], report["success"]["high"]) == shares_bootstrap([0.5, 0.0, 1.0])
    samples = report["samples"]
    assert samples["k"] == 4
    assert samples["avg"]["mean"] == pytest.approx(0.5)
    # pass@2 of 2 in 4: 1 - C(2, 2) / C(4, 2) = 5/6.
    assert {k: figure["mean"] for k, figure in samples["pass"].items()} == pytest.approx(
        {"1": 0.5, "2": (5 / 6 + 0 + 1) / 3, "4": 2 / 3}
    )
    assert "majority" not in samples


def test_two_seeds_of_one_problem_of_a_data_set_are_one_problem() -> None:
    rows = [row(0, True, problem="p"), row(1, False, problem="p"), row(2, True, problem="q")]
    report = metrics.report(header(), rows)
    assert report["success"]["problems"] == 2
    assert report["success"]["mean"] == pytest.approx(0.75)


def test_the_majority_is_taken_where_there_are_answers() -> None:
    rows = [row(0, answer == "7", sample=sample, answer=answer) for sample, answer in enumerate(("7", "7", "3"))] + [
        row(1, answer == "7", sample=sample, answer=answer) for sample, answer in enumerate(("7", "3", "3"))
    ]
    assert metrics.report(header(), rows)["samples"]["majority"]["mean"] == 0.5


def test_costs_are_of_all_rows_and_by_agent() -> None:
    rows = [
        row(0, True, tokens=100, reward=1.0),
        row(1, False, tokens=300, finish="length", tries=3),
        row(2, None, tokens=50, error="unreachable"),
    ]
    report = metrics.report(header(), rows)
    planner = report["agents"]["planner_0"]
    assert (planner["calls"], planner["cut_off"]) == (3, 1)
    assert metrics.retries(rows) == {"planner_0": 2}
    assert (planner["prompt_tokens"], planner["completion_tokens"]) == (450, 0)
    assert planner["return"]["mean"] == 0.5
    assert report["tokens"]["mean"] == 200  # of the episodes that ended
    assert report["parts"] == {"team": {"progress": {"mean": 0.5, "episodes": 2}}}
    assert report["outcome"]["regret"]["mean"] == 0.5


@pytest.mark.parametrize("as_read", [dict, files.light])
def test_empty_replies_and_calls_of_tools_are_counted_and_told(as_read: Callable[[Any], Any]) -> None:
    rows = [
        row(0, True),
        row(1, False, reply=" \n"),
        row(2, False, reply="", tool_calls=2),
        row(3, False, reply="Moves: U", tool_calls=1),
    ]
    agents = metrics.report(header(), list(map(as_read, rows)))["agents"]
    assert (agents["planner_0"]["empty"], agents["planner_0"]["tool_calls"]) == (2, 2)
    assert tables.empty_replies(agents)[0].startswith(
        "warning: 2 of 4 replies of planner_0 called tools, which are not run here; only their text is played, and 2"
    )
    agents = metrics.report(header(), [as_read(row(0, False, reply="", tokens=9))])["agents"]
    assert tables.empty_replies(agents)[0].startswith("warning: 1 of 1 replies of planner_0 were empty.")
    for silent in (row(0, True, tokens=9), row(0, False, reply="")):  # and an agent that has no model
        assert tables.empty_replies(metrics.report(header(), [as_read(silent)])["agents"]) == []


def test_readings_are_counted_by_agent_and_above_a_twentieth_unreadable_the_commonest_reason_is_told() -> None:
    forms = ["strictly"] * 17 + ["leniently", "unreadable: it is empty", "unreadable: it is empty"]

    def lines(readings: list[str]) -> list[str]:
        rows = [row(i, True, reply="Let me see") for i in range(len(readings))]
        for each, reading in zip(rows, readings, strict=True):
            each["steps"][0]["reading"] = reading
        return tables.readings(metrics.report(header(), rows)["agents"])

    assert lines(forms) == [
        "planner_0: 17 replies read strictly, 1 only leniently, 2 unreadable",
        "warning: 10% of the replies of planner_0 are unreadable, most often because it is empty. One of them ends "
        '"Let me see". Say in the prompt how a reply is to end, or raise --max-tokens where replies are cut off.',
    ]
    assert lines([*forms[:-1], "strictly"]) == [  # 5% of 20
        "planner_0: 18 replies read strictly, 1 only leniently, 1 unreadable"
    ]
    assert lines(["strictly"] * 3) == tables.readings(metrics.report(header(), [row(0, True)])["agents"]) == []


@pytest.mark.parametrize("as_read", [dict, files.light])
def test_words_of_servers_and_counts_in_doubt_are_counted_and_told(as_read: Callable[[Any], Any]) -> None:
    rows = [row(i, True) for i in range(4)]
    for each, finish in zip(rows, ("stop", "fin", "SAFETY", "length"), strict=True):
        each["steps"][0] |= {"finish": finish, "usage_note": "not given"}
    agents = metrics.report(header(), list(map(as_read, rows)))["agents"]
    assert agents["planner_0"]["finish_words"] == {"fin": 1, "SAFETY": 1}
    assert agents["planner_0"]["unknown_tokens"] == {"not given": 4}
    assert tables.server_words(agents) == [
        "warning: 1 of 4 replies of planner_0 ended with 'fin', which is read as finished.",
        "warning: 1 of 4 replies of planner_0 ended with 'SAFETY', a refusal; their text was played.",
        "warning: the numbers of tokens of 4 of 4 replies of planner_0 are in doubt (not given). Tokens, costs and "
        "limits of tokens leave out what is not known.",
    ]
    assert tables.server_words(metrics.report(header(), [row(0, True)])["agents"]) == []


@pytest.mark.parametrize(("lost", "is_told"), [(0.05, False), (0.06, True)])
def test_a_script_that_did_not_understand_a_twentieth_is_told(lost: float, is_told: bool) -> None:
    found = tables.script_words({"outcome": {"not_understood": {"mean": lost}}})
    assert [line.partition(" of the messages")[0] for line in found] == (
        ["warning: the scripted player did not understand 6.0%"] if is_told else []
    )


def test_an_outcome_may_be_of_numpy() -> None:
    given = {"success": np.bool_(True), "moves": np.int64(3), "far": np.float32(0.5), "zero": np.array(0), "name": "a"}
    assert of_outcome({**given, "board": np.zeros(2)}) == {"success": 1.0, "moves": 3.0, "far": 0.5, "zero": 0.0}


def test_an_outcome_of_yes_and_no_has_the_interval_of_a_share_and_a_count_has_not() -> None:
    rows = [row(i, True) for i in range(8)]
    for each in rows:
        each["outcome"] = {"success": True, "agreed": True, "moves": 1}
    outcome = metrics.report(header(), rows)["outcome"]
    assert (outcome["agreed"]["low"], outcome["agreed"]["high"]) == wilson(8, 8)
    assert (outcome["moves"]["low"], outcome["moves"]["high"]) == (1.0, 1.0)


def test_a_count_is_not_below_zero_and_few_have_no_interval() -> None:
    counts = [0, 0, 0, 0, 0, 0, 0, 0, 1, 60]  # by a studentized bootstrap its interval begins below 0
    rows = [row(i, True, tokens=count) for i, count in enumerate(counts)]
    report = metrics.report(header(), rows)
    assert report["tokens"]["mean"] == 6.1
    assert report["tokens"]["low"] == 0.0
    assert studentized_bootstrap(counts)[0] < 0
    shown = dict(tables.main_figures(report))
    assert shown["tokens of an episode"].startswith("6.1 [0, ")
    few = dict(tables.main_figures(metrics.report(header(), rows[1:])))
    assert (few["tokens of an episode"], few["turns"]) == ("6.78", "1")  # 61 / 9


def test_tokens_that_nobody_counted_are_not_zero() -> None:
    report = metrics.report(header(), [row(0, True)])
    assert report["tokens"] is None
    assert report["agents"]["planner_0"]["prompt_tokens"] is None


def test_success_is_broken_down_by_level() -> None:
    rows = [row(i, i % 2 == 0, level=1 + i // 2) for i in range(4)] + [row(4, True, level=1)]
    by = metrics.report(header(), rows)["by"]["level"]
    assert {level: figure["mean"] for level, figure in by.items()} == pytest.approx({"1": 2 / 3, "2": 1 / 2})


def test_a_run_of_errors_alone_has_no_success() -> None:
    run = run_of("a", "ee")
    assert metrics.report(run.header, run.rows)["success"] is None
