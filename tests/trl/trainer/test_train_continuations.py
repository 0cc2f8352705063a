"""Training on the decisions of continuations, and choosing by value: from the rollout to the loss, logs and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas
import pytest
from datasets import Dataset

from mortal import LIVE, equal, mortal
from moved_weights import weights
from pettingllms_envs.audit import audit
from pettingllms_envs.audit.tables import episodes_of_table, read_table, run_of_tables
from pettingllms_envs.page import page
from pettingllms_trl import Decision, MultiAgentGRPOTrainer, Policy
from pettingllms_trl.cli.trees import trees
from pettingllms_trl.credit import continuation_advantages, counterfactual
from pettingllms_trl.credit.selection import num_tokens
from short_runs import KeepsBatches, KeepsRollouts, keep_all_rows, settings
from third_party import Relay


class Watched(KeepsRollouts, KeepsBatches, MultiAgentGRPOTrainer):
    @property
    def decisions(self) -> list[Decision]:
        """Of the latest rollout's episodes."""
        return [decision for episode in self.rollouts[-1] for decision in episode.decisions]

    @property
    def inside(self) -> list[Decision]:
        """Of its continuations."""
        return [decision for episode in self.rollouts[-1] for decision in episode.continuations]


def trained(model: str, path: Path, *, env: Any = Relay, **options: Any) -> Watched:
    """A step on 2 rows of 4 candidates, each of which is continued once."""
    own = {name: options.pop(name) for name in ("credit", "filters", "policies") if name in options}
    options = {"num_continuations": 1, "train_continuations": True, "log_completions": True, **options}
    args = settings(path, num_completions_to_print=0, **options)
    trainer = Watched(model, env, args, Dataset.from_dict({"seed": range(16)}), **{"credit": "counterfactual", **own})
    keep_all_rows(trainer)
    trainer.train()
    return trainer


@pytest.fixture(scope="module")
def run(model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return trained(model_path, tmp_path_factory.mktemp("run"), log_rollouts=True)


def test_a_scheme_without_a_baseline_does_not_go_with_decisions_that_have_one(model_path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"credit='best', which has no baseline; .* Set train_continuations=False"):
        trained(model_path, tmp_path, credit="best")


def table(path: str | Path) -> pandas.DataFrame:
    return pandas.read_parquet(Path(path) / "completions" / "completions_00001.parquet")


def logged(trainer: Watched) -> dict[str, float]:
    return trainer.state.log_history[0]


def test_every_decision_of_a_continuation_is_a_sequence_with_the_advantage_of_its_group(run: Watched) -> None:
    # An episode of Relay has 4 decisions of 4 candidates; 3, 2, 1 and 0 decisions follow each of them.
    assert [len(run.decisions), len(run.inside)] == [2 * 4, 2 * 4 * (3 + 2 + 1)]
    found = table(run.args.output_dir)
    rows = found[found["continuation"].notna()]
    assert len(found) == 4 * 8 + 48 == sum(len(batch["advantages"]) for batch in run.batches)
    expected = {
        (d.instance, d.agent, d.turn, ".".join(map(str, d.continuation or ()))): value
        for d, (value,) in zip(run.inside, continuation_advantages(run.inside), strict=True)
    }
    places = zip(rows["instance"], rows["agent"], rows["turn"], rows["continuation"], strict=True)
    assert dict(zip(places, rows["advantage"], strict=True)) == pytest.approx(expected)
    assert any(abs(value) > 0.1 for value in expected.values())
    own = found[found["continuation"].isna()]
    assert list(own["advantage"]) == pytest.approx([v for row in counterfactual(run.decisions) for v in row])


def test_the_tokens_that_are_trained_on_are_those_that_were_sampled(run: Watched) -> None:
    sampled = sorted(
        [*decision.prompt.ids, *candidate.completion.ids]
        for decision in (*run.decisions, *run.inside)
        for candidate in decision.candidates
    )
    passed = []
    for batch in run.batches:
        ids = zip(
            batch["prompt_ids"], batch["prompt_mask"], batch["completion_ids"], batch["completion_mask"], strict=True
        )
        passed += [[*p[pm.bool()].tolist(), *c[cm.bool()].tolist()] for p, pm, c, cm in ids]
    assert sorted(passed) == sampled


def test_the_log_counts_decisions_and_tokens_of_continuations(run: Watched) -> None:
    log = logged(run)
    assert log["num_tokens"] == num_tokens(run.decisions) + num_tokens(run.inside)
    assert log["rollout/continuation_decisions"] == 48
    tokens = [sum(len(c.completion.ids) for d in ds for c in d.candidates) for ds in (run.decisions, run.inside)]
    assert [log["rollout/completion_tokens"], log["rollout/continuation_tokens"]] == tokens
    assert log["rollout/sampled_tokens"] == sum(tokens)
    assert "frac_reward_zero_std" not in log  # TRL's, of groups of as many rows
    assert log["agent/opener_0/frac_exact_groups"] == 1.0  # of siblings
    # Continuations of different candidates meet different texts, and the closer's first turn comes in all of them.
    assert log["agent/closer_0/continuations/frac_exact_groups"] == 0.0
    assert log["agent/closer_0/continuations/frac_without_peers"] == 0.0


def test_without_the_option_continuations_are_sampled_and_not_trained_on(model_path: str, tmp_path: Path) -> None:
    trainer = trained(model_path, tmp_path, train_continuations=False)
    assert trainer.inside == []
    assert "continuation" not in table(tmp_path)
    assert len(table(tmp_path)) == 4 * 8
    assert not [key for key in logged(trainer) if "continuation" in key]


def test_a_frozen_partner_learns_in_no_continuation(model_path: str, tmp_path: Path) -> None:
    policies = {"opener": Policy(adapter="opener"), "closer": Policy(trainable=False)}
    trainer = trained(model_path, tmp_path, policies=policies)
    assert {decision.agent for decision in trainer.inside} == {"opener_0", "closer_0"}
    assert set(table(tmp_path)["agent"]) == {"opener_0"}
    # After its first of two decisions the opener has one more, of the last one nothing follows.
    assert logged(trainer)["rollout/continuation_decisions"] == 2 * 4


def test_what_continues_a_decision_that_a_filter_dropped_is_dropped_too(model_path: str, tmp_path: Path) -> None:
    from pettingllms_trl.credit import Kept

    def first_turns_of_the_closer(decisions: Any) -> Any:
        return Kept.of(decisions, [i for i, d in enumerate(decisions) if (d.agent, d.turn) == ("closer_0", 0)])

    trainer = trained(model_path, tmp_path, filters=first_turns_of_the_closer)
    rows = table(tmp_path)
    inside = rows[rows["continuation"].notna()]
    assert len(rows) - len(inside) == 2 * 4
    assert {name.partition(".")[0] for name in inside["continuation"]} == {"1"}  # the second decision of an episode
    assert len(inside) == 2 * 4 * 2
    assert logged(trainer)["num_tokens"] == num_tokens([*trainer.decisions, *trainer.inside])  # all were sampled


@pytest.mark.parametrize("choose", [pytest.param("reward", marks=pytest.mark.slow), "value"])
def test_the_best_by_its_reward_or_by_its_value_is_played_on(choose: Any, model_path: str, tmp_path: Path) -> None:
    trainer = trained(model_path, tmp_path, choose=choose, audit="stop")
    for decision in trainer.decisions:
        worth = [each.value if choose == "value" else each.reward for each in decision.candidates]
        assert worth[decision.chosen] == max(worth)
    trainer.evaluate(Dataset.from_dict({"seed": [100]}))
    assert [len(decision.candidates) for decision in trainer.decisions] == [1] * 4


# ---- Files ----------------------------------------------------------------------------------------------------------


def test_trees_and_the_audit_of_a_table_are_of_the_episodes_own_decisions(run: Watched) -> None:
    found = table(run.args.output_dir)
    assert [str(tree.label) for tree in trees(found)] == [
        str(t.label) for t in trees(found[found["continuation"].isna()])
    ]
    assert all(len(branch.children) == 4 for tree in trees(found) for branch in tree.children)
    rows = read_table(Path(run.args.output_dir) / "completions" / "completions_00001.parquet")
    about = run_of_tables(rows)
    assert about.num_candidates == 4
    episodes = list(episodes_of_table(about, rows))
    assert [len(d.candidates) for episode in episodes for d in episode.decisions] == [4] * 8
    assert [str(each) for each in audit(about, episodes) if each.status == "failed"] == []


def test_the_record_of_a_rollout_has_its_continuations(run: Watched) -> None:
    episode = run.rollouts[0][0]
    lines = (Path(run.args.output_dir) / "rollouts" / "episodes.jsonl").read_text("ascii").splitlines()
    steps = json.loads(lines[0])["steps"]
    written = [
        (each["return"], [(step["agent"], step["turn"] - 1, step["reply"]) for step in each["steps"]])
        for candidate in steps[1]["candidates"]
        for each in candidate["continuations"]
    ]
    inside = [d for d in episode.continuations if d.continuation is not None and d.continuation.decision == 1]
    expected = [
        (value, [(d.agent, d.turn, d.played.completion.text) for d in inside if d.continuation == (1, k, 0)])
        for k, candidate in enumerate(episode.decisions[1].candidates)
        for value in candidate.continuations
    ]
    assert written == expected
    assert all(len(own) == 2 for _, own in written)  # opener and closer have one turn more
    advantages = [
        step["candidates"][0]["advantage"] for step in steps[1]["candidates"][0]["continuations"][0]["steps"]
    ]
    assert all(isinstance(value, float) for value in advantages)
    assert steps[3]["candidates"][0]["continuations"] == [{"return": 0.0, "steps": []}]
    assert "rollouts of a training" in page(Path(run.args.output_dir) / "rollouts")


def test_a_run_resumed_inside_a_generation_with_continuations_equals_one_never_interrupted(
    model_path: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"num_continuations": 1, "train_continuations": True, "choose": "value", **LIVE}
    options |= {"steps": 2, "credit": "counterfactual", "policies": "shared", "save_total_limit": None}
    whole = mortal(model_path, tmp_path / "whole", **options)
    whole.train()
    part = mortal(model_path, tmp_path / "part", **options)
    part.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-1"))
    assert equal(weights(part), weights(whole))
    assert [log.get("num_tokens") for log in part.state.log_history] == [
        log.get("num_tokens") for log in whole.state.log_history
    ]
