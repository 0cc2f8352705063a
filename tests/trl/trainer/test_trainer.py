"""The trainer on a tiny random model and teams of two: what is trained, what moves, what is logged, saved, resumed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from datasets import Dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, TrainerCallback

import pettingllms_trl.update.builder
from moved_weights import moved, part_of, weights
from pettingllms_envs import plan_path_v0
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer, Policy
from pettingllms_trl.credit import at_grpo, grpo
from pettingllms_trl.trainer.dataloading import rows_left_out, shifting_evaluation
from pettingllms_trl.update.entropy import EntropyBonus
from pettingllms_trl.update.micro_batches import split
from short_runs import KeepsBatches, KeepsGradients, KeepsRollouts, adapter, around_generation, keep_all_rows, settings
from third_party import Monologue, Relay


SEEDS = Dataset.from_dict({"seed": range(24)})
PLAN_PATH = partial(plan_path_v0.env, size=4, num_turns=2)
GAMES = pytest.mark.parametrize("env", [partial(Relay, 1), PLAN_PATH], ids=["third_party", "plan_path"])


class Team(KeepsRollouts, KeepsBatches, MultiAgentGRPOTrainer):
    """Keeps the gradients before each step as well."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kept = KeepsGradients()
        self.gradients, self.corrects = kept.steps, False
        super().__init__(*args, callbacks=[kept], **kwargs)

    def compute_loss(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        self.use_vllm = self.corrects  # after the generation, which needs none
        return super().compute_loss(*args, **kwargs)


def team(model: Any, path: Path, *, env: Any = Relay, train_dataset: Any = SEEDS, **options: Any) -> Team:
    """A trainer of the team: 2 rows of 4 candidates, adapters of rank 4, one step; `options` go where they belong."""
    own = {name: options.pop(name) for name in ("policies", "credit", "eval_dataset") if name in options}
    adapters = own.setdefault("policies", "lora") != "shared"
    return Team(
        model=model,
        env=env,
        args=settings(path, **{"seed": 7, "audit": "stop", **options}),
        train_dataset=train_dataset,
        peft_config=adapter() if adapters else None,
        **own,
    )


def norm_of(gradients: dict[str, torch.Tensor], part: str) -> float:
    return math.sqrt(sum(float(g.square().sum()) for name, g in gradients.items() if part_of(name) == part))


# ---- What is trained on -------------------------------------------------------------------------------------------


def tokens(ids: torch.Tensor, mask: torch.Tensor) -> tuple[int, ...]:
    return tuple(ids[mask.bool()].tolist())


@GAMES
@pytest.mark.parametrize("policies", ["lora", pytest.param("shared", marks=pytest.mark.slow)])
def test_the_tokens_trained_on_are_the_tokens_sampled_each_once_under_its_own_policy(
    env: Any, policies: str, model_path: str, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, env=env, policies=policies, gradient_accumulation_steps=2)
    keep_all_rows(trainer)
    drawn: list[tuple[int, ...]] = []

    def noted(prompts: Any, generate: Any) -> Any:  # what leaves the generator, before anything of ours
        ids, logprobs = generate()
        drawn.extend(map(tuple, ids))
        return ids, logprobs

    around_generation(trainer, noted)
    trainer.train()
    sampled = sorted(
        (trainer.routing.of_agent[decision.agent], decision.prompt.ids, candidate.completion.ids)
        for decision in [d for e in trainer.rollouts[0] for d in e.decisions]
        for candidate in decision.candidates
    )
    trained = sorted(
        (
            batch["policy"],
            tokens(batch["prompt_ids"][i], batch["prompt_mask"][i]),
            tokens(batch["completion_ids"][i], batch["completion_mask"][i]),
        )
        for batch in trainer.batches
        for i in range(len(batch["advantages"]))
    )
    assert trained == sampled
    assert sorted(drawn) == sorted(ids for _, _, ids in sampled)
    longest = max(len(prompt) for _, prompt, _ in sampled) + 8
    for batch in trainer.batches:
        prompts = {tokens(*row) for row in zip(batch["prompt_ids"], batch["prompt_mask"], strict=True)}
        assert sum(len(prompt) - 1 for prompt in prompts) + int(batch["completion_mask"].sum()) <= 8 * longest


@GAMES
def test_both_roles_get_advantages_that_differ_and_sum_to_zero_over_each_group(
    env: Any, model_path: str, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, env=env)
    # A random model writes nothing readable; so a reply is read as the letters its bytes stand for.
    trainer.processing_class.batch_decode = lambda rows, **_: [spell(ids) for ids in rows]
    trainer.train()
    by_row = defaultdict(list)
    for batch in trainer.batches:
        for i, value in enumerate(batch["advantages"].tolist()):
            by_row[batch["policy"], tokens(batch["prompt_ids"][i], batch["prompt_mask"][i])].append(value)
    for values in by_row.values():
        assert sum(values) == pytest.approx(0, abs=1e-5)
    for policy in trainer.routing.of_agent.values():
        assert any(abs(value) > 0.1 for (name, _), values in by_row.items() if name == policy for value in values)


def spell(ids: Sequence[int]) -> str:
    return "Moves: " + " ".join("UDLR"[i % 4] for i in ids[: 1 + ids[0] % 3])


@GAMES
def test_a_groups_advantages_reach_the_rows_of_its_own_candidates(env: Any, model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, env=env)
    trainer.processing_class.batch_decode = lambda rows, **_: [spell(ids) for ids in rows]
    trainer.train()
    decisions = [d for e in trainer.rollouts[0] for d in e.decisions]
    expected = sorted(
        (trainer.routing.of_agent[d.agent], d.prompt.ids, c.completion.ids, round(advantage, 5))
        for d, values in zip(decisions, at_grpo(decisions), strict=True)
        for c, advantage in zip(d.candidates, values, strict=True)
    )
    found = sorted(
        (
            batch["policy"],
            tokens(batch["prompt_ids"][i], batch["prompt_mask"][i]),
            tokens(batch["completion_ids"][i], batch["completion_mask"][i]),
            round(float(batch["advantages"][i]), 5),
        )
        for batch in trainer.batches
        for i in range(len(batch["advantages"]))
    )
    assert found == expected


# ---- What moves ---------------------------------------------------------------------------------------------------


def test_rows_of_one_role_move_its_adapter_and_nothing_else(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, env=Monologue, max_steps=3, weight_decay=0.5)
    before = weights(trainer)
    trainer.train()
    assert moved(before, weights(trainer)) == {"opener"}


def test_an_adapter_with_momentum_stays_put_in_a_step_without_its_rows(model_path: str, tmp_path: Path) -> None:
    class Fades(Relay):
        """In rows with an odd seed only the opener acts."""

        def step(self, action: str | None) -> None:
            super().step(action)
            if action is not None and self.task % 2:
                self.agent_selection = "opener_0"

    trainer = team(
        model_path,
        tmp_path,
        env=Fades,
        max_steps=2,
        weight_decay=0.5,
        shuffle_dataset=False,
        lr_scheduler_type="constant",
        train_dataset=Dataset.from_dict({"seed": [0, 2, 1, 3]}),
    )
    seen = []

    class KeepWeights(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            seen.append(weights(trainer))

    trainer.add_callback(KeepWeights())
    before = weights(trainer)
    trainer.train()
    assert moved(before, seen[0]) == {"opener", "closer"}
    assert moved(seen[0], seen[1]) == {"opener"}


def test_after_a_step_each_adapter_has_moved_and_the_base_has_not(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, max_steps=1)
    before = weights(trainer)
    trainer.train()
    assert moved(before, weights(trainer)) == {"opener", "closer"}


def test_a_shared_policy_moves_the_model_itself(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, policies="shared")
    before = weights(trainer)
    trainer.train()
    assert moved(before, weights(trainer)) == {"base"}
    assert trainer.routing.adapters == ()


def test_a_learning_rate_of_zero_freezes_one_policy_alone(model_path: str, tmp_path: Path) -> None:
    policies = {"opener": "opener", "closer": Policy(adapter="closer", learning_rate=0.0)}
    trainer = team(model_path, tmp_path, policies=policies, max_steps=2, weight_decay=0.5)
    before = weights(trainer)
    trainer.train()
    assert moved(before, weights(trainer)) == {"opener"}


def test_a_policys_learning_rate_is_scheduled_like_the_others(model_path: str, tmp_path: Path) -> None:
    policies = {"opener": "opener", "closer": Policy(adapter="closer", learning_rate=1e-3)}
    trainer = team(model_path, tmp_path, policies=policies, max_steps=2, lr_scheduler_type="linear")
    rates = []

    class KeepRates(TrainerCallback):
        def on_step_begin(self, *args: Any, optimizer: Any = None, **kwargs: Any) -> None:
            rates.append({(group["lr"], bool(group["params"])) for group in optimizer.param_groups})

    trainer.add_callback(KeepRates())
    trainer.train()
    assert all(filled for step in rates for _, filled in step)  # of FSDP2 torch loads one empty group at most
    used = [sorted(rate for rate, _ in step) for step in rates]
    assert used == [pytest.approx([1e-3, 1e-2]), pytest.approx([5e-4, 5e-3])]


def test_each_policys_gradient_is_clipped_by_its_own_norm(model_path: str, tmp_path: Path) -> None:
    free = team(model_path, tmp_path, max_grad_norm=1e6)
    free.train()
    (loose,) = free.gradients
    limit = norm_of(loose, "closer") / 10
    bound = team(
        model_path,
        tmp_path,
        max_grad_norm=1e6,
        policies={"opener": "opener", "closer": Policy(adapter="closer", max_grad_norm=limit)},
    )
    bound.train()
    (clipped,) = bound.gradients
    assert norm_of(clipped, "closer") == pytest.approx(limit, rel=1e-3)
    for name, gradient in clipped.items():
        if part_of(name) == "opener":
            assert torch.equal(gradient, loose[name])
    log = bound.state.log_history[0]
    for part in ("opener", "closer"):
        assert log[f"policy/{part}/grad_norm"] == pytest.approx(norm_of(loose, part), rel=1e-4)
    assert log["grad_norm"] == pytest.approx(math.hypot(norm_of(loose, "opener"), norm_of(loose, "closer")), rel=1e-4)


# ---- Passes -------------------------------------------------------------------------------------------------------


def make_uneven(trainer: Team) -> None:
    """Completions of 1 to 8 tokens, and adapters away from their start, where A has no gradient and KL is zero."""

    def cut_short(prompts: Any, generate: Any) -> Any:
        ids, logprobs = generate()
        return [[*row[: i % 8], 1 if i % 3 else row[i % 8]] for i, row in enumerate(ids)], logprobs  # 1: the end

    around_generation(trainer, cut_short)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, p in trainer.model.named_parameters():
            if "lora_B" in name:
                p.normal_(std=0.1, generator=generator)


def stale(batch: dict[str, Any]) -> dict[str, Any]:
    """As if older weights had sampled, and another engine: ratios of exp(-0.4) to exp(0.4), functions of the token."""
    ids = batch["completion_ids"]
    per_token = torch.sin(ids.float())
    return {
        **batch,
        "old_per_token_logps": -5.5 + 0.3 * per_token,
        "importance_sampling_ratio": torch.exp(0.4 * torch.cos(ids.float()) * batch["completion_mask"]),
    }


SEQUENCE = {"importance_sampling_level": "sequence"}
LOSSES = {
    loss: {"loss_type": loss, **(SEQUENCE if loss == "luspo" else {})}
    for loss in ("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo")
}


@pytest.mark.parametrize(
    ("options", "corrected"),
    [
        *[pytest.param(loss, False, marks=pytest.mark.slow) for name, loss in LOSSES.items()],
        *[
            pytest.param(
                {**loss, "entropy_coef": 0.05, "gradient_accumulation_steps": 2},
                False,
                marks=() if name == "grpo" else pytest.mark.slow,
            )
            for name, loss in LOSSES.items()
        ],
        *[
            pytest.param({**LOSSES[loss], **SEQUENCE}, False, marks=pytest.mark.slow)
            for loss in ("grpo", "dapo", "bnpo")
        ],
        *[
            pytest.param({**LOSSES[loss]}, True, marks=() if loss == "vespo" else pytest.mark.slow)
            for loss in ("dapo", "luspo", "vespo")
        ],
        ({**LOSSES["grpo"], "off_policy_mask_threshold": 0.01, "mask_truncated_completions": True}, False),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_many_small_passes_give_the_gradient_of_one_large_pass(
    options: dict[str, Any], corrected: bool, model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, logs = {}, {}
    accumulation = options.get("gradient_accumulation_steps", 1)
    for rows in (1000, 3):
        monkeypatch.setattr(
            pettingllms_trl.update.builder,
            "split",
            lambda b, rows=rows, **o: split(stale(b), **{**o, "max_rows": rows}),
        )
        trainer = team(
            model_path,
            tmp_path,
            beta=0.04,
            max_grad_norm=1e6,
            vllm_importance_sampling_mode="token_mask",
            shared_prefix=False,  # where rows are what is counted
            **options,
        )
        make_uneven(trainer)
        trainer.corrects = corrected
        trainer.train()
        (found[rows],) = trainer.gradients
        logs[rows] = trainer.state.log_history[0]
        passes = [len(batch["advantages"]) for batch in trainer.batches]
        assert sum(passes) == 2 * accumulation * 4 * 4  # rows, decisions, candidates
        assert max(passes) == (3 if rows == 3 else 2 * accumulation * 4 * 4 // 2 // accumulation)
    assert found[3].keys() == found[1000].keys()
    assert any(float(g.abs().max()) > 1e-3 for g in found[1000].values())
    for name, gradient in found[1000].items():
        torch.testing.assert_close(found[3][name], gradient, rtol=1e-4, atol=1e-6)
    assert {key for key in logs[1000] if "policy/" in key and ("entropy" in key or "kl" in key)}
    for key, value in logs[1000].items():
        if "time" not in key:
            assert logs[3][key] == pytest.approx(value, rel=1e-3, abs=1e-5), key


def test_entropy_is_steered_for_each_policy_by_itself_and_once_a_step(model_path: str, tmp_path: Path) -> None:
    # A micro-step has 2 x 4 x 2 rows for each policy, so two passes of 8; two micro-steps make a step.
    options = {"use_adaptive_entropy": True, "entropy_coef": 0.1, "entropy_coef_delta": 0.01, "max_steps": 3}
    options["shared_prefix"] = False
    trainer = team(model_path, tmp_path, gradient_accumulation_steps=2, entropy_target=15.0, **options)
    trainer.train()
    assert len(trainer.batches) == 3 * 2 * 2 * 2
    for log, expected in zip(trainer.state.log_history, (0.11, 0.12, 0.13), strict=False):
        for key in ("entropy_coef", "policy/opener/entropy_coef", "policy/closer/entropy_coef"):
            assert log[key] == pytest.approx(expected)
    entropies = [trainer.entropy.control(name).entropy for name in ("opener", "closer")]
    assert entropies[0] != entropies[1]


def test_an_entropy_at_most_the_target_raises_a_coefficient_and_one_above_lowers_it() -> None:
    adaptive = {"use_adaptive_entropy": True, "entropy_coef_delta": 0.01, "entropy_target": 3.0}
    args = MultiAgentGRPOConfig("any", entropy_coef=0.1, **adaptive, use_cpu=True, bf16=False)
    bonus = EntropyBonus(["opener", "closer"], args)
    bonus.load_state_dict({"closer": [0.2, 6.0]})
    bonus.keep("opener", torch.tensor([2.5, 1.0]))
    bonus.keep("closer", torch.tensor([13.0, 4.0]))  # 3.25 nats a token
    assert bonus.steer(lambda sums: sums, torch.device("cpu")) == {
        "entropy_coef": pytest.approx([0.11, 0.19]),
        "policy/opener/entropy_coef": pytest.approx([0.11]),
        "policy/closer/entropy_coef": pytest.approx([0.19]),
    }
    assert (bonus.control("opener").entropy, bonus.control("closer").entropy) == (2.5, 3.25)
    bonus.steer(lambda sums: sums, torch.device("cpu"))  # a step without any tokens changes nothing
    assert bonus.state_dict() == {"opener": [pytest.approx(0.11), 2.5], "closer": [pytest.approx(0.19), 3.25]}


def test_a_resumed_run_has_the_fixed_coefficient_that_it_is_given() -> None:
    args = MultiAgentGRPOConfig("any", entropy_coef=0.5, use_cpu=True, bf16=False)
    fixed = EntropyBonus(["opener"], args)
    fixed.load_state_dict({"opener": [0.01, math.inf]})  # of a run with entropy_coef=0.01
    assert fixed.control("opener").coefficient == 0.5
    args.use_adaptive_entropy = True
    adapted = EntropyBonus(["opener"], args)
    adapted.load_state_dict({"opener": [0.01, math.inf]})  # which has adapted nothing
    assert adapted.control("opener").coefficient == 0.5
    adapted.load_state_dict({"opener": [0.02, 2.5]})
    assert adapted.control("opener").coefficient == 0.02


# ---- Logs ---------------------------------------------------------------------------------------------------------


def test_a_step_logs_rewards_outcomes_groups_and_each_policy(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, env=PLAN_PATH, shared_prefix=False)
    trainer.train()
    log, decisions = trainer.state.log_history[0], [d for e in trainer.rollouts[0] for d in e.decisions]
    for agent in ("drafter_0", "planner_0"):
        own = [d for d in decisions if d.agent == agent]
        rewards = [c.reward for d in own for c in d.candidates]
        constant = [len({c.reward for c in d.candidates}) == 1 for d in own]
        assert log[f"agent/{agent}/reward"] == pytest.approx(sum(rewards) / len(rewards))
        assert log[f"agent/{agent}/frac_reward_zero_std"] == sum(constant) / len(constant)
        returns = [episode.returns[agent] for episode in trainer.rollouts[0]]
        assert log[f"agent/{agent}/return"] == pytest.approx(sum(returns) / len(returns))
    rewards = [c.reward for d in decisions for c in d.candidates]
    assert log["reward"] == pytest.approx(sum(rewards) / len(rewards))
    assert log["outcome/success"] == sum(e.outcome["success"] for e in trainer.rollouts[0]) / 2
    assert log["rollout/decisions"] == len(decisions) / 2
    # A random model's replies are unreadable: -0.2 for the format.
    assert log["agent/planner_0/rewards/format"] == pytest.approx(-0.2)
    assert {"policy/drafter/grad_norm", "policy/planner/grad_norm", "policy/planner/entropy", "loss"} <= log.keys()
    assert len(trainer.batches) == 4  # two passes each, so that a metric of the first could be taken for the second's
    assert not [key for key in log if key.count("policy/") > 1]


def test_the_completions_table_has_a_row_for_every_candidate(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, env=PLAN_PATH, log_completions=True, num_completions_to_print=1)
    trainer.train()
    (file,) = (tmp_path / "completions").iterdir()
    table = pandas.read_parquet(file)
    decisions = [d for e in trainer.rollouts[0] for d in e.decisions]
    assert len(table) == sum(len(d.candidates) for d in decisions)
    assert {"agent", "turn", "instance", "episode", "chosen", "advantage"} <= set(table.columns)
    assert table["chosen"].sum() == len(decisions)
    of = {(d.instance, d.agent, d.turn): d for d in decisions}
    expected = dict(zip(of, at_grpo(decisions), strict=True))
    for key, rows in table.groupby(["instance", "agent", "turn"]):
        assert rows["advantage"].tolist() == pytest.approx(expected[key], abs=1e-6)
        assert rows["completion"].map(lambda c: c[0]["content"]).tolist() == [
            c.completion.text for c in of[key].candidates
        ]
        assert rows["chosen"].tolist() == [k == of[key].chosen for k in range(4)]


# ---- Disk ---------------------------------------------------------------------------------------------------------


def test_each_role_is_saved_to_a_folder_that_peft_loads_on_the_base_alone(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path)
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    trained = weights(trainer)
    for role in ("opener", "closer"):
        base = AutoModelForCausalLM.from_pretrained(model_path)
        loaded = PeftModel.from_pretrained(base, tmp_path / "saved" / role)
        found = {name: p for name, p in loaded.named_parameters() if "lora_" in name}
        assert len(found) == 2 * 14  # A and B of seven linear layers in each of two blocks
        for name, p in found.items():
            assert torch.equal(p, trained[name.replace(".default.", f".{role}.")])


@pytest.mark.parametrize(
    "options",
    [
        *(pytest.param({"policies": each}, marks=pytest.mark.slow) for each in ("lora", "shared")),
        # Below the target until the third step, so that the coefficients that are resumed with went up and then down.
        pytest.param(
            {"policies": "lora", "use_adaptive_entropy": True, "entropy_coef": 0.1, "entropy_target": 5.5595},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["lora", "shared", "adaptive entropy"],
)
def test_a_resumed_run_equals_one_never_interrupted(options: dict[str, Any], model_path: str, tmp_path: Path) -> None:
    def run(path: Path) -> Team:
        return team(
            model_path,
            path,
            **options,
            max_steps=4,
            save_strategy="steps",
            save_steps=2,
            gradient_accumulation_steps=2,
            lr_scheduler_type="cosine",
        )

    whole = run(tmp_path / "whole")
    whole.train()
    resumed = run(tmp_path / "resumed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    assert moved(weights(whole), weights(resumed)) == set()
    assert whole.rollouts[2:] == resumed.rollouts
    for one, other in zip(whole.state.log_history[:4], resumed.state.log_history[:4], strict=True):
        assert {k: v for k, v in one.items() if "time" not in k} == {k: v for k, v in other.items() if "time" not in k}


# ---- Layouts and options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policies", ["lora", "shared"])
def test_evaluation_reports_outcomes_and_moves_nothing(policies: str, model_path: str, tmp_path: Path) -> None:
    rows = Dataset.from_dict({"seed": range(5), "split": ["test"] * 5})
    trainer = team(
        model_path, tmp_path, env=PLAN_PATH, policies=policies, eval_dataset=rows, per_device_eval_batch_size=2
    )
    before = weights(trainer)
    metrics = trainer.evaluate()
    assert moved(before, weights(trainer)) == set()
    episodes = [e for rollout in trainer.rollouts for e in rollout]
    assert len(episodes) == 5
    assert metrics["eval_outcome/success"] == sum(e.outcome["success"] for e in episodes) / 5
    rewards = [c.reward for e in episodes for d in e.decisions for c in d.candidates]
    assert metrics["eval_reward"] == pytest.approx(sum(rewards) / len(rewards), abs=0.05)
    assert {"eval_agent/drafter_0/reward", "eval_agent/planner_0/return", "eval_outcome/regret"} <= metrics.keys()


def test_evaluation_during_training_leaves_the_run_as_it_would_have_been_but_for_the_draws(
    model_path: str, tmp_path: Path
) -> None:
    trainer = team(
        model_path, tmp_path, max_steps=2, eval_strategy="steps", eval_steps=1, eval_dataset=SEEDS.select(range(3))
    )
    trainer.train()
    assert [log["step"] for log in trainer.state.log_history if "eval_reward" in log] == [1, 2]
    assert all("reward" in log or "eval_reward" in log or "train_loss" in log for log in trainer.state.log_history)


def test_a_trainer_without_training_rows_plays_but_refuses_to_train(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, env=PLAN_PATH, train_dataset=None)
    episodes = trainer.play([{"seed": 0}, {"seed": 1, "split": "test"}], num_episodes=3)
    assert [(e.instance, e.episode) for e in episodes] == [(i, k) for i in range(2) for k in range(3)]
    with pytest.raises(ValueError, match=r"train\(\) needs a train_dataset: give one whose rows are instances"):
        trainer.train()


def test_parallel_sampling_trains_on_whole_trajectories(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, sampling="parallel", credit="grpo")
    keep_all_rows(trainer)
    before = weights(trainer)
    trainer.train()
    assert moved(before, weights(trainer)) == {"opener", "closer"}
    episodes = trainer.rollouts[0]
    assert [(e.instance, e.episode) for e in episodes] == [(i, k) for i in range(2) for k in range(4)]
    assert len({e.returns["opener_0"] for e in episodes}) > 1
    # Both decisions of an agent in an episode carry the same advantage.
    values = defaultdict(set)
    decisions = [d for e in episodes for d in e.decisions]
    for decision, (value,) in zip(decisions, grpo(decisions), strict=True):
        values[decision.agent, decision.instance, decision.episode].add(value)
    assert all(len(found) == 1 for found in values.values())
    assert sum(len(batch["advantages"]) for batch in trainer.batches) == 2 * 4 * 4


@pytest.mark.parametrize(
    ("options", "rollouts"),
    [
        pytest.param({"steps_per_generation": 4, "gradient_accumulation_steps": 2}, 2, marks=pytest.mark.slow),
        pytest.param({"num_iterations": 2}, 2, marks=pytest.mark.slow),
        ({"num_iterations": 2, "steps_per_generation": 2, "loss_type": "grpo"}, 1),
    ],
    ids=["steps", "iterations", "both"],
)
def test_a_generation_may_serve_several_steps(
    options: dict[str, Any], rollouts: int, model_path: str, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, max_steps=4, **options)
    before = weights(trainer)
    trainer.train()
    assert len(trainer.rollouts) == rollouts
    assert moved(before, weights(trainer)) == {"opener", "closer"}
    assert all(math.isfinite(log["loss"]) for log in trainer.state.log_history if "loss" in log)


def test_a_rollout_is_the_same_twice_under_a_seed(model_path: str, tmp_path: Path) -> None:
    one = team(model_path, tmp_path, max_steps=2)
    one.train()
    other = team(model_path, tmp_path, max_steps=2)
    other.train()
    assert one.rollouts == other.rollouts
    assert moved(weights(one), weights(other)) == set()
    assert one.rollouts[0] != one.rollouts[1]


def test_agents_may_share_an_adapter(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, policies={"opener": "both", "closer": "both"})
    before = weights(trainer)
    trainer.train()
    assert moved(before, weights(trainer)) == {"both"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        # 8 passes of 8 rows are a mini-batch of 64; the 16 rows of a generation are two of them.
        (
            {"gradient_accumulation_steps": 8, "steps_per_generation": 2, "max_steps": 6},
            r"waits for 4 rollouts.* max_steps 6 takes 24 rollouts\. Set gradient_accumulation_steps=2 for one",
        ),
        (
            {"gradient_accumulation_steps": 3, "steps_per_generation": 2, "max_steps": 4},
            r"waits for 1\.5 .* takes 6 roll",
        ),
    ],
)
def test_an_optimizer_step_that_waits_for_several_rollouts_is_warned_of(
    options: dict[str, Any], said: str, model_path: str, tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match=said):
        team(model_path, tmp_path, **options)


@pytest.mark.parametrize(
    ("options", "num_rows", "said"),
    [
        # A generation plays 2 rows. An epoch of 5 has two generations, each of one step.
        (
            {"max_steps": -1},
            5,
            "Each epoch leaves 1 of 5 rows out, others each time, as in TRL: a generation plays 2.",
        ),
        ({"max_steps": 3, "shuffle_dataset": False}, 5, "1 of 5 rows out, always the last, as"),
        ({"max_steps": 2}, 5, ""),  # which ends with the epoch
        ({"max_steps": -1}, 6, ""),
        ({"eval_strategy": "epoch"}, 6, "Evaluations draw from the random numbers that training samples with"),
        ({"eval_strategy": "epoch", "use_vllm": True}, 6, ""),  # each request has a seed
    ],
)
def test_rows_left_out_and_evaluations_that_shift_samples_are_said(
    options: dict[str, Any], num_rows: int, said: str, tmp_path: Path
) -> None:
    args = settings(tmp_path, **options)
    notes = rows_left_out(Dataset.from_dict({"seed": range(num_rows)}), args), shifting_evaluation(args)
    assert [said in note for note in notes if note] == ([True] if said else [])


def test_what_a_trainer_says_at_its_creation_is_printed_once(
    model_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    team(model_path, tmp_path, train_dataset=Dataset.from_dict({"seed": range(5)}), max_steps=-1)
    assert capsys.readouterr().out.count("Each epoch leaves 1 of 5 rows out") == 1


@pytest.mark.filterwarnings("ignore:an optimizer step waits")
def test_generations_of_one_optimizer_step_bear_different_names_which_seed_them(
    model_path: str, tmp_path: Path
) -> None:
    options = {"gradient_accumulation_steps": 3, "steps_per_generation": 1, "max_steps": 2}
    trainer = team(model_path, tmp_path, **options)
    trainer.train()
    assert trainer.rollout_names == ["0", "0.1", "0.2", "1", "1.1", "1.2"]
    versions = [{d.policy_version for episode in episodes for d in episode.decisions} for episodes in trainer.rollouts]
    assert versions == [{0}, {0}, {0}, {1}, {1}, {1}]  # the optimizer steps of the weights that sampled


@pytest.mark.parametrize(
    ("options", "step", "expected"),
    [
        # Two generations of two micro-steps each in an optimizer step.
        ({"gradient_accumulation_steps": 4, "steps_per_generation": 2}, 0, [0, 0, 1, 1]),
        # One of two micro-steps, used twice.
        ({"gradient_accumulation_steps": 4, "steps_per_generation": 2, "num_iterations": 2}, 0, [0, 0, 0, 0]),
        # One for two optimizer steps, resumed after the first: what was saved may lack the generation.
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 4}, 2, [0, 0]),
    ],
)
@pytest.mark.filterwarnings("ignore:an optimizer step waits")
def test_a_generations_micro_steps_are_given_one_list_of_its_rows(
    options: dict[str, Any], step: int, expected: list[int], model_path: str, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, policies="shared", **options)
    trainer._step = step
    made = [[{"seed": seed} for seed in (1, 2, 3)] for _ in range(8)]
    rows = iter(made)
    batches, num_items = trainer.get_batch_samples(rows, trainer.args.gradient_accumulation_steps, torch.device("cpu"))
    generations = list({id(batch): batch for batch in batches}.values())
    assert [next(i for i, each in enumerate(generations) if each is batch) for batch in batches] == expected
    assert all(each in made for each in generations)
    assert num_items is None
    assert len(list(rows)) == 8 - len(expected)  # as many were taken as there are micro-steps
