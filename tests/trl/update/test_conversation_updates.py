"""Conversations stay together in the update, and every optimizer step has the rows and the weights that it had."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from test_equals_trl import LOSSES
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import GRPOTrainer

import twins
from packed_models import difference
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer, Policy
from pettingllms_trl.update import builder, packed_logprobs
from pettingllms_trl.update.assignment import Assignment, assign_by_tokens, cost
from pettingllms_trl.update.builder import num_movable_of
from pettingllms_trl.update.packing.conversations import Size, sizes_of
from pettingllms_trl.update.packing.pack import Packed, pack
from short_runs import settings
from third_party import Relay


DEAR_TOKENS = 1e6
"""A price with which the way with the fewest tokens is the cheapest."""

# ---- Passes ---------------------------------------------------------------------------------------------------------


def conversations(number: int, turns: int, candidates: int = 3) -> list[Size]:
    """Prompts of 10, 18, 26, ... tokens, completions of 3; the first candidate is played on, 5 tokens are observed."""
    draw = random.Random(0)

    def some(length: int) -> list[int]:
        return [draw.randrange(1000) for _ in range(length)]

    prompts: list[list[int]] = []
    replies: list[list[int]] = []
    for _ in range(number):
        prompt = some(10)
        for _ in range(turns):
            own = [some(3) for _ in range(candidates)]
            prompts += [prompt] * candidates
            replies += own
            prompt = prompt + own[0] + some(5)
    return sizes_of(prompts, replies)


def passes_of(dealt: Assignment, process: int = 0) -> list[list[set[int]]]:
    """The rows of each pass, by micro-step."""
    found = []
    for hands, lengths in zip(dealt.rows, dealt.passes or (), strict=True):
        rows = iter(hands[process])
        found.append([{row for row in (next(rows) for _ in range(number)) if row is not None} for number in lengths])
    return found


def shuffled(sizes: Sequence[Size], seed: int = 0) -> list[int]:
    return random.Random(seed).sample(range(len(sizes)), len(sizes))


def test_a_pass_has_whole_conversations_as_many_as_fit_when_each_is_read_once() -> None:
    sizes = conversations(4, turns=3)  # rows 0 to 8 are the first
    dealt = assign_by_tokens(sizes, shuffled(sizes), budget=90, token_price=DEAR_TOKENS, num_steps=1)
    # A trunk of 26 - 1 tokens and branches of 3 tokens, of two turns 2 and of the last 3: 46.
    assert cost(range(9), sizes, token_price=DEAR_TOKENS) == 25 + 3 * (2 + 2 + 3) == 46
    assert dealt.num_tokens_read == 4 * 46
    assert dealt.num_tokens == 4 * 3 * (10 + 18 + 26 + 3 * 3)
    assert sorted(map(min, passes_of(dealt)[0])) == [0, 9, 18, 27]
    assert all(rows == {*range(min(rows), min(rows) + 9)} for rows in passes_of(dealt)[0])
    (together,) = passes_of(assign_by_tokens(sizes, shuffled(sizes), budget=92, token_price=DEAR_TOKENS, num_steps=1))
    assert [len(rows) for rows in together] == [18, 18]


def test_a_conversation_over_the_budget_is_cut_between_turns_and_a_turn_over_it_between_candidates() -> None:
    sizes = conversations(1, turns=4)
    # Both halves: 17 + 3 * (2 + 3) = 32 tokens, and 33 + 3 * (2 + 3) = 48; all of it: 33 + 3 * 9 = 60.
    (halves,) = passes_of(assign_by_tokens(sizes, shuffled(sizes), budget=48, token_price=DEAR_TOKENS, num_steps=1))
    assert halves == [{0, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11}]
    # The last turn alone has 33 + 9 = 42: it is divided. Before it, two have 25 + 3 * (2 + 3) = 40, all three 46.
    (small,) = passes_of(assign_by_tokens(sizes, shuffled(sizes), budget=40, token_price=DEAR_TOKENS, num_steps=1))
    first, others, *divided = sorted(small, key=min)
    assert first == {0, 1, 2}
    assert others == {3, 4, 5, 6, 7, 8}
    assert sorted(map(len, divided)) == [1, 2]


def test_self_contained_prompts_stay_in_the_micro_step_that_they_were_in() -> None:
    sizes = [Size(group, 10 + group, 3) for group in range(5) for _ in range(2)]
    order = shuffled(sizes)
    common = {"budget": 1000, "token_price": DEAR_TOKENS, "num_steps": 4, "num_updates": 2}
    assert assign_by_tokens(sizes, order, num_movable=2, **common) == assign_by_tokens(sizes, order, **common)


def rows_of_updates(dealt: Assignment, num_movable: int) -> list[set[int]]:
    steps = [{row for hand in hands for row in hand} - {None} for hands in dealt.rows]
    return [set().union(*steps[i : i + num_movable]) for i in range(0, len(steps), num_movable)]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("num_processes", [1, 2])
def test_an_optimizer_step_has_the_rows_that_it_would_have_if_none_were_moved(seed: int, num_processes: int) -> None:
    sizes = conversations(5, turns=3)
    order = shuffled(sizes, seed)
    groups: dict[Any, list[int]] = {}
    for row in order:
        groups.setdefault(sizes[row].group, []).append(row)
    expected: list[set[int]] = [set() for _ in range(6)]
    for i, rows in enumerate(groups.values()):  # 15 prompts, in order, to six micro-steps
        expected[i * 6 // 15] |= {*rows}
    for num_updates in (1, 2, 3, 6):
        movable = 6 // num_updates
        dealt = assign_by_tokens(
            sizes,
            order,
            budget=90,
            token_price=DEAR_TOKENS,
            num_steps=6,
            num_updates=num_updates,
            num_movable=movable,
            num_processes=num_processes,
            left_out={row for row in order if row % 7 == 0},
        )
        found = rows_of_updates(dealt, movable)
        assert found == [set().union(*expected[i : i + movable]) for i in range(0, 6, movable)]


def test_turns_are_shared_as_far_as_they_are_in_the_same_optimizer_step() -> None:
    sizes = conversations(8, turns=3)
    read = [
        assign_by_tokens(
            sizes,
            shuffled(sizes),
            budget=1000,
            token_price=DEAR_TOKENS,
            num_steps=8,
            num_updates=updates,
            num_movable=8 // updates,
        ).num_tokens_read
        for updates in (1, 2, 4, 8)
    ]
    assert read == sorted(read)
    assert read[0] == 8 * 46


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"steps_per_generation": 4, "gradient_accumulation_steps": 4}, 4),
        ({"steps_per_generation": 4, "gradient_accumulation_steps": 2}, 2),
        ({"steps_per_generation": 2, "gradient_accumulation_steps": 4}, 2),
        ({"steps_per_generation": 2, "gradient_accumulation_steps": 3}, 1),  # an optimizer step begins inside
        ({"steps_per_generation": 4, "gradient_accumulation_steps": 4, "loss_type": "bnpo"}, 1),
        ({"steps_per_generation": 4, "gradient_accumulation_steps": 4, "entropy_coef": 0.1}, 1),
        ({"steps_per_generation": 4, "gradient_accumulation_steps": 4, "use_adaptive_entropy": True}, 1),
    ],
)
@pytest.mark.filterwarnings("ignore:an optimizer step waits")
def test_rows_move_only_where_they_weigh_the_same(options: dict[str, Any], expected: int, tmp_path: Path) -> None:
    assert num_movable_of(settings(tmp_path, **options), options["steps_per_generation"]) == expected


# ---- Runs -----------------------------------------------------------------------------------------------------------


class Scripted(MultiAgentGRPOTrainer):
    """Replies depend on the prompt alone."""

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any) -> Any:
        seen: Counter[str] = Counter()
        completions = []
        for ids in map(list, prompt_ids):
            draw = random.Random(f"{ids}/{seen[str(ids)]}")
            seen[str(ids)] += 1
            completions.append([*(draw.randrange(5, 200) for _ in range(draw.randint(1, 7))), self.eos_token_ids[0]])
        return completions, None


class RowByRow(Scripted):
    """Rows stay in their micro-steps, and each is read by TRL's own method."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assignment = self.builder._assignment_by_tokens
        self.builder._assignment_by_tokens = lambda *given, **more: partial(assignment(*given, **more), num_movable=1)

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        return GRPOTrainer._get_per_token_logps_and_entropies(self, *args, **kwargs)

    def _attach_team(self) -> None:
        super()._attach_team()
        self.scorer.attending = lambda *_: nullcontext()


def of_team(trainer_class: type[MultiAgentGRPOTrainer], model: str, path: Path, **options: Any) -> twins.Run:
    """Three turns of two agents, in four micro-steps for two optimizer steps."""
    more = {name: options.pop(name) for name in ("policies", "credit", "quantization_config") if name in options}
    common = {
        "history": "conversation",
        "steps_per_generation": 4,
        "gradient_accumulation_steps": 2,
        "per_device_train_batch_size": 4,
        "max_steps": 2,
        "learning_rate": 0.05,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "bf16": False,
    }
    trainer = trainer_class(
        model,
        partial(Relay, 3),
        MultiAgentGRPOConfig(**twins.arguments(path, **{**common, **options})),
        Dataset.from_dict({"seed": twins.SEEDS}),
        **more,
    )
    return twins.run(trainer)


def difference_of_weights(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    return max(float((one[name] - weight).abs().max()) for name, weight in other.items())


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_weights_after_twenty_steps_are_those_of_rows_read_one_by_one(
    loss: str, model_path: str, tmp_path: Path
) -> None:
    options = {"max_steps": 20, "per_device_train_batch_size": 2, **LOSSES[loss]}
    found, expected = (of_team(each, model_path, tmp_path, **options) for each in (Scripted, RowByRow))
    assert difference_of_weights(found.weights, expected.weights) < 1e-5
    before = AutoModelForCausalLM.from_pretrained(model_path).state_dict()
    assert difference_of_weights(before, found.weights) > 1e-3


class CutOff(Scripted):
    """The longest replies do not come to their end."""

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any) -> Any:
        completions, _ = super()._generate_single_turn(prompt_ids, *rest)
        return [ids if len(ids) < 7 else [*ids[:-1], 5] for ids in completions], None


def test_completions_that_are_masked_are_counted_as_they_are_packed(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assigned, read = list[Assignment](), list[int]()

    def assigning(*args: Any, **kwargs: Any) -> Assignment:
        assigned.append(assign_by_tokens(*args, **kwargs))
        return assigned[-1]

    def packing(*args: Any, **kwargs: Any) -> Packed:
        packed = pack(*args, **kwargs)
        read.append(packed.ids.size(1))
        return packed

    monkeypatch.setattr(builder, "assign_by_tokens", assigning)
    monkeypatch.setattr(packed_logprobs, "pack", packing)
    of_team(CutOff, model_path, tmp_path, max_steps=1, gradient_accumulation_steps=4, mask_truncated_completions=True)
    num_passes = sum(map(len, assigned[-1].passes or ()))
    assert num_passes > 1
    assert sum(read[-num_passes:]) == assigned[-1].num_tokens_read


LAYOUTS: dict[str, dict[str, Any]] = {
    "one policy, KL": {"beta": 0.1},
    "adapters, checkpoints": {"policies": "lora", "gradient_checkpointing": True},
    "adapters, KL": {"policies": "lora", "beta": 0.1},
    "models": {"policies": "full"},
    "a mixture": {"policies": {"opener": Policy(adapter="opener"), "closer": Policy(trainable=False)}},
    "parallel episodes": {"sampling": "parallel", "credit": "grpo"},
    "entropy bonus": {"entropy_coef": 0.05},
    "a small budget": {"max_tokens_per_microbatch": 200},
}
IN_EVERY_RUN = ("adapters, KL",)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in IN_EVERY_RUN else pytest.mark.slow) for name in LAYOUTS],
)
def test_every_layout_has_the_gradients_of_rows_read_one_by_one(name: str, model_path: str, tmp_path: Path) -> None:
    runs = [of_team(each, model_path, tmp_path, **LAYOUTS[name]) for each in (Scripted, RowByRow)]
    for one, other in zip(runs[0].gradients, runs[1].gradients, strict=True):
        assert difference(one, other) < 1e-5
    found, without_moves = ([log.get("rollout/frac_tokens_read", 0.0) for log in run.log] for run in runs)
    if name == "entropy bonus":
        assert found == without_moves
    else:
        assert sum(found) < sum(without_moves)


def with_float32(trainer_class: type[MultiAgentGRPOTrainer]) -> type[MultiAgentGRPOTrainer]:
    """With adapters in float32, which TRL holds in bfloat16 on a base of 4 bits: gradients would be rounded to it."""

    class Float32(trainer_class):  # type: ignore[misc, valid-type]
        def _attach_team(self) -> None:
            super()._attach_team()
            for parameter in self.model.parameters():
                if parameter.requires_grad:
                    parameter.data = parameter.data.float()

    return Float32


def test_adapters_on_a_base_of_four_bits_have_the_gradients_of_rows_read_one_by_one(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = pytest.importorskip("bitsandbytes.nn.modules", reason="needs bitsandbytes")
    monkeypatch.setattr(
        modules, "has_avx512bf16", lambda: False
    )  # whose kernel, once used to sample, has no gradients
    four_bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    options = {"policies": "lora", "quantization_config": four_bits, "model_init_kwargs": {"dtype": torch.float32}}
    runs = [of_team(with_float32(each), model_path, tmp_path, **options) for each in (Scripted, RowByRow)]
    for one, other in zip(runs[0].gradients, runs[1].gradients, strict=True):
        assert difference(one, other) < 1e-5
    found, without_moves = (sum(log.get("rollout/frac_tokens_read", 0.0) for log in run.log) for run in runs)
    assert found < without_moves
