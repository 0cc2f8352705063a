"""M x N: M designs of a question, each executed N times; who is paid, compared and trained for what."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas
import pytest

from designed_runs import designed, roomy_model
from mortal import Mortal
from pettingllms_trl import Alternate, Policy
from short_runs import keep_all_rows


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return roomy_model(tmp_path_factory.mktemp("roomy"))


def trained(model: str, path: Path, **options: Any) -> Mortal:
    """Two rows of 3 designs, each executed twice, for one step."""
    trainer = designed(model, path, **{"steps": 1, "save_strategy": "no", "audit": "stop", **options})
    keep_all_rows(trainer)
    trainer.train()
    return trainer


def test_a_designer_is_paid_the_mean_of_its_executions_and_members_are_trained_in_these_alone(
    model: str, tmp_path: Path
) -> None:
    run = trained(model, tmp_path, log_completions=True, num_completions_to_print=0)
    (episodes,) = run.rollouts
    of_continuations = [d for e in episodes for d in e.continuations]
    expected: list[float] = []
    for episode in episodes:
        designer, *members = episode.decisions
        assert designer.agent == "designer_0"
        assert all(len(each.candidates) == 1 for each in members)  # the execution that goes on is sampled once
        returns = Counter[tuple[int, int]]()
        for each in episode.continuations:
            assert each.continuation is not None
            returns[each.continuation[1:]] += each.rewards["designer_0"]
        values = []
        for k, candidate in enumerate(designer.candidates):
            cost = 0.01 * candidate.completion.text.count('"job"')
            assert candidate.reward == pytest.approx(-cost)
            assert candidate.continuations == pytest.approx((returns[k, 0], returns[k, 1]))
            values.append((returns[k, 0] + returns[k, 1]) / 2 - cost)
        spread = stdev(values) + 1e-4
        expected += [(value - fmean(values)) / spread for value in values]
    # Of both rows 3 designs; and of each execution every member's reply, once.
    table = pandas.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    trained_on = Counter(table["agent"])
    assert trained_on["designer_0"] == 2 * 3
    assert len(set(expected)) > 2
    assert list(table[table["agent"] == "designer_0"]["advantage"]) == pytest.approx(expected, rel=1e-4)
    inside = Counter(d.agent for d in of_continuations)
    assert trained_on == inside + Counter({"designer_0": 6})
    assert inside["member_0"] == 2 * 3 * 2
    assert set(table[table["agent"] != "designer_0"]["continuation"].str.count(r"\.")) == {2}
    (log,) = [each for each in run.state.log_history if "loss" in each]
    assert log["agent/designer_0/frac_exact_groups"] == 1.0
    assert log["agent/member_0/continuations/frac_exact_groups"] == 1.0  # the first member's prompt is its design's
    assert log["agent/member_0/continuations/frac_without_peers"] == 0.0
    assert {name for name in log if name.endswith("/frac_reward_zero_std")} == {
        "agent/designer_0/frac_reward_zero_std"
    }


@pytest.mark.slow
def test_members_whose_turn_it_is_learn_from_as_many_designs_of_a_designer_that_does_not(
    model: str, tmp_path: Path
) -> None:
    run = trained(model, tmp_path, steps=2, schedule=Alternate(("member", "designer")))
    for rollout, learner in zip(run.rollouts, ("member", "designer"), strict=False):
        assert [len(d.candidates) for e in rollout for d in e.decisions if d.agent == "designer_0"] == [3, 3]
        assert all(len(d.candidates) == 1 for e in rollout for d in e.decisions if d.agent != "designer_0")
        log = run.state.log_history[0 if learner == "member" else 1]
        assert {name for name in ("member", "designer") if f"policy/{name}/grad_norm" in log} == {learner}


@pytest.mark.slow
def test_in_a_tree_all_members_candidates_answer_one_prompt(model: str, tmp_path: Path) -> None:
    run = trained(model, tmp_path, branch_at=None, continuation_group="decision", num_generations=2)
    (log,) = [each for each in run.state.log_history if "loss" in each]
    agents = {d.agent for e in run.rollouts[0] for d in e.decisions}
    assert {log[f"agent/{agent}/frac_exact_groups"] for agent in agents} == {1.0}
    assert all(len(d.candidates) == 2 for e in run.rollouts[0] for d in e.decisions)


def test_it_is_said_where_what_the_first_agent_replies_is_never_trained(model: str, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"branch_at is \['member'\], but designer_0 acts first, and what it replies"):
        designed(model, tmp_path, branch_at=["member"])
    frozen = {"designer": Policy(trainable=False), "member": "walker"}
    designed(model, tmp_path, branch_at=["member"], policies=frozen)  # a warning would be an error


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"branch_at": ["planner"]}, r"branch_at is \['planner'\], but the environment has the agents designer_0"),
        ({"branch_at": "designer"}, r"branch_at='designer' .*expected a list"),
        ({"train_continuations": False}, r"branch_at=\['designer'\] with train_continuations=False, expected a list"),
        (
            {"num_continuations": 1},
            r"continuation_group='candidate' .*num_continuations=1, expected True and at least 2",
        ),
        ({"continuation_group": "design"}, "continuation_group='design', expected 'decision' or 'candidate'"),
    ],
    ids=str,
)
def test_a_tree_that_cannot_branch_so_is_refused(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        designed("no model", tmp_path, **options)
