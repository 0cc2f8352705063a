"""Sequences that cannot move a weight are left out of the update, which is otherwise what it is with all of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import test_equals_trl_sampler
import torch
from datasets import Dataset
from test_equals_trl import LOSSES, STALE
from transformers import TrainerCallback

import pettingllms_trl.trainer.parts
import twins
from batches import batch_of, rows_of
from decisions import decision
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer, Policy
from pettingllms_trl.records import Decision
from pettingllms_trl.update.assignment import assign_by_tokens
from pettingllms_trl.update.micro_batches import ShardInfo, split
from pettingllms_trl.update.packing.conversations import Size
from pettingllms_trl.update.packing.cost import token_price_of
from short_runs import AllRows
from third_party import OneShot, Relay


PRICE = token_price_of("cpu", 512)


class OddOnly(OneShot):
    """Answers are paid in odd instances; in even ones all are worth the same, so that their groups are flat."""

    def step(self, action: str | None) -> None:
        super().step(action)
        if self.question % 2 == 0:
            self.rewards = {"solver_0": 0.5}


class FirstOnly(Relay):
    """Answers are paid in the instances 0 and 1 only; those of the closer, in instance 0 only."""

    def step(self, action: str | None) -> None:
        agent = self.agent_selection
        super().step(action)
        if action is not None and self.task >= (1 if agent == "closer_0" else 2):
            self.rewards = dict.fromkeys(self.possible_agents, 0.0)


def left_out_of(
    trainer: MultiAgentGRPOTrainer, decisions: Sequence[Decision], advantages: Sequence[float], policy: int = 0
) -> frozenset[int]:
    """The numbers of the rows that the trainer would leave out."""
    return trainer.builder.rows_without_gradient(trainer.routing.trained[policy], decisions, advantages)


def paid(*rewards: float) -> Decision:
    return decision("solver_0", rewards)


class Passes(TrainerCallback):
    """Notes how many rows each pass through the loss has, and the weights after each optimizer step."""

    def __init__(self, trainer: MultiAgentGRPOTrainer) -> None:
        self.rows: list[int] = []
        self.weights: list[dict[str, torch.Tensor]] = []
        compute = trainer.compute_loss

        def noted(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            self.rows.append(len(inputs["advantages"]))
            return compute(model, inputs, *args, **kwargs)

        trainer.compute_loss = noted
        trainer.add_callback(self)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any, **kwargs: Any) -> None:
        self.weights.append({name: p.detach().clone() for name, p in model.named_parameters()})


def both(*given: Any, **options: Any) -> tuple[twins.Run, Passes, twins.Run, Passes]:
    """A run that leaves rows out, and the same run with all of them."""
    found: list[Any] = []
    for each in (MultiAgentGRPOTrainer, AllRows):
        trainer = made(each, *given, **options)
        passes = Passes(trainer)
        found += [twins.run(trainer), passes]
    return tuple(found)


SMALL = {"bf16": False, "shuffle_dataset": False, "max_steps": 2, "per_device_train_batch_size": 4}
"""Two instances a generation, in the order of their seeds."""


def made(
    trainer_class: type[MultiAgentGRPOTrainer], env: Any, model: str, path: Path, more: Any = None, **options: Any
) -> MultiAgentGRPOTrainer:
    arguments = twins.arguments(path, **{**SMALL, **options})
    return trainer_class(
        model, env, MultiAgentGRPOConfig(**arguments), Dataset.from_dict({"seed": twins.SEEDS}), **(more or {})
    )


def assert_alike(found: twins.Run, expected: twins.Run) -> None:
    """Gradients and weights within 1e-6, and all numbers that are of all rows."""
    assert len(found.gradients) == len(expected.gradients) > 0
    for one, other in zip(found.gradients, expected.gradients, strict=True):
        assert one.keys() == other.keys()
        assert max(float((one[name] - other[name]).abs().max()) for name in one) <= 1e-6
    assert max(float((found.weights[n] - w).abs().max()) for n, w in expected.weights.items()) <= 1e-6
    for mine, theirs in zip(found.log, expected.log, strict=True):
        names = [name for name in theirs if not any(part in name for part in twins.OVER_PASSES)]
        assert {name: mine[name] for name in names} == pytest.approx(
            {name: theirs[name] for name in names}, rel=1e-5, abs=1e-6, nan_ok=True
        )


# ---- The update -----------------------------------------------------------------------------------------------------

CASES: dict[str, dict[str, Any]] = {
    **LOSSES,
    **{f"{loss}-stale": {**STALE, **options} for loss, options in LOSSES.items()},
    "sequence": {"importance_sampling_level": "sequence", "loss_type": "grpo", **STALE},
    "off_policy_mask_threshold": {**STALE, "off_policy_mask_threshold": 0.001},
    "delta": {**STALE, "delta": 1.05},
    "mask_truncated_completions": {"mask_truncated_completions": True, "loss_type": "grpo"},
    "scale_rewards": {"scale_rewards": "batch"},
    "budget": {"max_tokens_per_microbatch": 60},
    "misaligned": {"steps_per_generation": 2, "gradient_accumulation_steps": 3, "max_steps": 4},
}


@pytest.mark.parametrize("case", [pytest.param(c, marks=() if c == "bnpo-stale" else pytest.mark.slow) for c in CASES])
@pytest.mark.filterwarnings("ignore:an optimizer step waits")
def test_gradients_weights_and_what_is_logged_of_all_rows_are_those_with_all_rows(
    case: str, model_path: str, tmp_path: Path
) -> None:
    found, passes, expected, of_all = both(OddOnly, model_path, tmp_path, **{"optim": "sgd", **CASES[case]})
    assert_alike(found, expected)
    assert sum(passes.rows) <= 0.6 * sum(of_all.rows)  # of each generation's instances, half are odd
    shares = [log["rollout/frac_rows_updated"] for log in found.log if "rollout/frac_rows_updated" in log]
    assert max(shares) <= 0.5
    assert {log.get("rollout/frac_rows_updated", 1.0) for log in expected.log} == {1.0}


@pytest.mark.parametrize(
    "layout", ["lora", *(pytest.param(layout, marks=pytest.mark.slow) for layout in ("shared", "full"))]
)
def test_a_step_without_any_advantage_moves_weights_by_momentum_and_decay(
    layout: str, model_path: str, tmp_path: Path
) -> None:
    # Both agents learn in the first step; in the second none has an advantage.
    options = {"optim": "adamw_torch", "adam_epsilon": 1e-3, "weight_decay": 0.1, "learning_rate": 1e-2}
    found, passes, expected, _ = both(lambda: FirstOnly(1), model_path, tmp_path, {"policies": layout}, **options)
    assert_alike(found, expected)
    for step in found.gradients[1:]:
        assert step.keys() == expected.gradients[0].keys()
        assert all(bool((gradient == 0).all()) for gradient in step.values())
    assert sum(passes.rows) <= 3 * 4  # in the first step two groups of the opener's and one of the closer's
    for before, after in itertools.pairwise(passes.weights):
        assert any(not torch.equal(before[name], weight) for name, weight in after.items())


def test_a_policy_whose_rows_are_all_left_out_takes_its_step_beside_one_that_learns(
    model_path: str, tmp_path: Path
) -> None:
    class CloserUnpaid(Relay):
        def step(self, action: str | None) -> None:
            super().step(action)
            self.rewards["closer_0"] = 0.0

    options = {"optim": "adamw_torch", "weight_decay": 0.1, "max_steps": 1}
    found, _, expected, _ = both(lambda: CloserUnpaid(1), model_path, tmp_path, {"policies": "lora"}, **options)
    assert found.gradients[0].keys() == expected.gradients[0].keys()
    assert any(".closer." in name for name in found.gradients[0])


def test_a_policy_whose_turn_it_is_not_is_not_touched(model_path: str, tmp_path: Path) -> None:
    class Unpaid(Relay):
        def step(self, action: str | None) -> None:
            super().step(action)
            self.rewards = dict.fromkeys(self.possible_agents, 0.0)

    options = {"optim": "adamw_torch", "alternate_every": 1, "max_steps": 2}
    found = twins.run(
        made(MultiAgentGRPOTrainer, lambda: Unpaid(1), model_path, tmp_path, {"policies": "lora"}, **options)
    )
    agents = [{"opener" if ".opener." in name else "closer" for name in step} for step in found.gradients]
    assert agents == [{"opener"}, {"closer"}]


# ---- Which rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "left_out"),
    [
        ({}, {0, 2, 3}),
        ({"shared_prefix": False}, set()),
        ({"beta": 0.1}, set()),
        ({"entropy_coef": 0.01}, set()),
        ({"use_adaptive_entropy": True}, set()),
        ({"top_entropy_quantile": 0.5}, set()),
    ],
)
def test_a_row_is_left_out_where_nothing_but_its_advantage_could_move_a_weight(
    options: dict[str, Any], left_out: set[int], model_path: str, tmp_path: Path
) -> None:
    trainer = made(MultiAgentGRPOTrainer, OneShot, model_path, tmp_path, **options)
    assert left_out_of(trainer, [paid(1, 2, 3, 4, 5)], [0.0, 1e-6, -1e-12, -0.0, -1.0]) == left_out


def test_the_rounding_of_equal_rewards_is_no_advantage(model_path: str, tmp_path: Path) -> None:
    trainer = made(MultiAgentGRPOTrainer, OneShot, model_path, tmp_path)
    flat, paid_otherwise, judged_otherwise, alone = paid(0.1, 0.1), paid(0.1, 0.2), paid(0.1, 0.1), paid(0.1)
    decisions = [flat, paid_otherwise, judged_otherwise, alone]
    assert left_out_of(trainer, decisions, [7e-5, 7e-5, 7e-5, 7e-5, 7e-5, -7e-5, 7e-5]) == {0, 1}


def test_small_advantages_of_a_credit_function_without_a_mean_are_no_rounding(model_path: str, tmp_path: Path) -> None:
    def slight(decisions: Sequence[Decision]) -> list[list[float]]:
        return [[0.005] * len(each.candidates) for each in decisions]

    trainer = made(MultiAgentGRPOTrainer, OneShot, model_path, tmp_path, {"credit": slight})
    assert left_out_of(trainer, [paid(1, 1)], [0.005, 0.005]) == set()


def test_the_kl_term_is_the_policys_own(model_path: str, tmp_path: Path) -> None:
    policies = {"opener": Policy(adapter="opener", beta=0.1), "closer": Policy(adapter="closer")}
    trainer = made(MultiAgentGRPOTrainer, Relay, model_path, tmp_path, {"policies": policies})
    left_out = [left_out_of(trainer, [paid(1, 2)], [0.0, 1.0], policy) for policy in (0, 1)]
    assert left_out == [set(), {0}]


@pytest.mark.parametrize("num_processes", [1, 2, 3])
@pytest.mark.parametrize("num_steps", [1, 4])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.85, 1.0])
def test_rows_left_out_stay_in_their_micro_step_and_every_process_has_as_many_passes(
    share: float, num_steps: int, num_processes: int
) -> None:
    rng = random.Random(0)
    sizes = [Size(group, 10 + 7 * group, 1 + (3 * group + k) % 5) for group in range(7) for k in range(4)]
    order = rng.sample(range(28), 28)
    left_out = frozenset(row for row in range(28) if rng.random() < share)
    common = {"budget": 60, "token_price": PRICE, "num_steps": num_steps, "num_processes": num_processes}
    dealt = assign_by_tokens(sizes, order, left_out=left_out, **common)
    whole = assign_by_tokens(sizes, order, **common)
    assert dealt.num_rows == whole.num_rows
    assert dealt.passes is not None
    passed: list[int] = []
    for step, of_all, passes in zip(dealt.rows, whole.rows, dealt.passes, strict=True):
        assert {row for hand in step for row in hand} - {None} == {row for hand in of_all for row in hand} - {None}
        assert len({len(hand) for hand in step}) == 1
        passed += [row for hand in step for row in hand[: sum(passes)] if row is not None]
    assert sorted(passed) == [row for row in range(28) if row not in left_out]


@pytest.mark.parametrize("token_mean", [False, True])
def test_what_is_left_out_counts_in_every_denominator(token_mean: bool) -> None:
    # Rows of 1 to 5 tokens in micro-steps of 3 and 2. Rows 2, 3 and 4 come last in theirs and go through no pass.
    shared = ShardInfo(1, [3, 2], [3, 2], [6, 9], [[1, 1], []])
    steps = split(batch_of([1, 2, 3, 4, 5]), num_steps=2, max_rows=9, token_mean=token_mean, shard=shared)
    assert [[rows_of(piece) for piece in passes] for passes in steps] == [[[0], [1]], [[]]]
    scales = [piece["loss_scale"] for passes in steps for piece in passes]
    # By rows each weighs 2 / 5; by tokens 1 / 6 and 2 / 6 of the micro-step's, as with all of them.
    assert scales == pytest.approx([1 / 6, 2 / 6, 0] if token_mean else [0.4, 0.4, 0])
    assert steps[0][0]["num_items_in_batch"] == 15


# ---- A sampler's log-probabilities ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["token_truncate", pytest.param("sequence_truncate", marks=pytest.mark.slow)])
def test_importance_ratios_are_logged_of_the_rows_that_go_through_the_model(
    mode: str, model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pettingllms_trl.trainer.parts, "EngineSet", test_equals_trl_sampler.OurEngine)
    monkeypatch.setattr("pettingllms_trl.engines.factory.find_spec", lambda name: True)
    options = {"optim": "sgd", "use_vllm": True, "vllm_importance_sampling_mode": mode, "max_steps": 1}
    ratios: list[torch.Tensor] = []
    whole = AllRows.prepare_generation

    def noted(self: Any, *args: Any) -> Any:
        steps = whole(self, *args)
        for piece in (piece for passes in steps for piece in passes):
            odd = piece["advantages"].abs() > 1e-10
            of_odd, mask = piece["importance_sampling_ratio"][odd], piece["completion_mask"][odd].bool()
            ratios.append(of_odd.flatten() if of_odd.size(1) == 1 else of_odd[mask])
        return steps

    monkeypatch.setattr(AllRows, "prepare_generation", noted)
    found, _, expected, _ = both(OddOnly, model_path, tmp_path, **options)
    assert_alike(found, expected)
    odd = torch.cat(ratios)
    named = {name: found.log[0][f"sampling/importance_sampling_ratio/{name}"] for name in ("min", "mean", "max")}
    assert named == pytest.approx({"min": odd.min().item(), "mean": odd.mean().item(), "max": odd.max().item()})
    assert found.log[0]["sampling/sampling_logp_difference/mean"] > 0
