"""A prompt read once for all that begin with it gives the log-probabilities and gradients of reading it each time.

Packed rows are worked by hand; models of several kinds are compared with themselves, layer by layer the same weights;
then whole runs, every loss and setting that `test_equals_trl.py` compares, with the same runs row by row.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import test_equals_trl_sampler
import torch
from datasets import Dataset
from test_equals_trl import CASES, LAYOUTS, LOSSES
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from trl import GRPOTrainer

import pettingllms_trl.trainer.parts
import twins
from packed_models import MODELS, PAD, SHAPE, difference, gradients, made, one_by_one, together
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.update.assignment import cost
from pettingllms_trl.update.packed_attention import NAME, attending
from pettingllms_trl.update.packing.conversations import sizes_of
from pettingllms_trl.update.packing.cost import Way, token_price_of
from pettingllms_trl.update.packing.pack import pack
from short_runs import AllRows, adapter
from third_party import OneShot, Relay


# ---- The row, by hand -----------------------------------------------------------------------------------------------

A, B, C, D, X, Y, Z, END = range(1, 9)
# Two prompts, "a b c" with three answers, one of them masked whole, and "d" with one, shuffled.
IDS = torch.tensor(
    [
        [A, B, C, X, Y, END],
        [PAD, PAD, D, Z, END, PAD],
        [A, B, C, Z, END, PAD],
        [A, B, C, X, X, X],
    ]
)
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]])


def test_a_prompt_stands_once_and_each_branch_begins_with_its_last_token() -> None:
    packed = pack(IDS, MASK, 3)
    assert packed.ids.tolist() == [[A, B, C, X, Y, C, Z, C, D, Z]]
    assert packed.positions.tolist() == [[0, 1, 2, 3, 4, 2, 3, 2, 0, 1]]
    assert packed.labels.tolist() == [[-100, -100, X, Y, END, Z, END, -100, Z, END]]
    assert packed.ids.size(1) == 8 + 2  # 3 - 1 + 3 + 2 + 1, the last of an empty completion, and 1 - 1 + 2


def test_a_prompt_stands_once_for_all_rows_with_its_ids() -> None:
    prompts = [ids[:3][seen[:3] == 1].tolist() for ids, seen in zip(IDS, MASK, strict=True)]
    completions = [ids[3:][seen[3:] == 1].tolist() for ids, seen in zip(IDS, MASK, strict=True)]
    sizes = sizes_of(prompts, completions)
    assert pack(IDS, MASK, 3).ids.size(1) == cost(range(4), sizes, token_price=token_price_of("cpu", 32))


def test_values_of_the_row_go_back_to_the_tokens_that_they_predict() -> None:
    packed = pack(IDS, MASK, 3)
    values = torch.arange(10.0)[None]
    assert packed.of_completions(values).tolist() == [[2, 3, 4], [8, 9, 0], [5, 6, 0], [0, 0, 0]]


@pytest.mark.parametrize("way", ["rows", "prompts"])
def test_attention_finds_every_token_of_a_sequence_where_the_row_has_it(way: Way) -> None:
    layout = pack(IDS, MASK, 3, way=way).layout
    own = [row[:n].tolist() for row, n in zip(layout.rows, (5, 4, 3, 2), strict=True)]
    assert own == [[0, 1, 2, 3, 4], [0, 1, 5, 6], [0, 1, 7], [8, 9]]
    assert layout.starts.tolist() == [2, 2, 2, 0]
    if layout.prompts is None:
        places = layout.rows.flatten()
    else:
        places = torch.cat([layout.prompts.flatten(), layout.branches.flatten()])
    assert places[layout.back].tolist() == list(range(10))


@pytest.mark.parametrize(("prompt", "completion", "split"), [(64, 8, True), (8, 128, False), (1, 8, False)])
def test_prompts_are_attended_apart_where_that_costs_less(prompt: int, completion: int, split: bool) -> None:
    ids = torch.ones(4, prompt + completion, dtype=torch.long)
    layout = pack(ids, ids, completion).layout
    assert (layout.prompts is not None) == split


# ---- Models ---------------------------------------------------------------------------------------------------------


def batch(prompt_lengths: tuple[int, ...] = (9, 9), width: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    """Two groups, of three and two, and completions from none to `width` tokens."""
    generator = torch.Generator().manual_seed(1)
    longest = max(prompt_lengths)
    rows, lengths = (0, 1, 0, 0, 1), (7, 3, 5, 0, 6)
    prompts = torch.randint(2, 97, (2, longest), generator=generator)
    ids = torch.cat([prompts[list(rows)], torch.randint(2, 97, (5, width), generator=generator)], dim=1)
    mask = torch.ones_like(ids)
    for row, (group, length) in enumerate(zip(rows, lengths, strict=True)):
        mask[row, : longest - prompt_lengths[group]] = 0
        mask[row, longest + length :] = 0
    return ids, mask


@pytest.mark.parametrize("way", ["rows", "prompts"])
@pytest.mark.parametrize("checkpointing", ["", "checkpointed", "reentrant"])
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("name", MODELS)
def test_log_probabilities_entropies_and_gradients_are_those_of_each_row_alone(
    name: str, lora: bool, checkpointing: str, way: Way
) -> None:
    if lora and name in ("gpt2", "mixtral"):
        pytest.skip("PEFT warns of Conv1D, and has no layer for experts in one tensor")
    model = made(name, lora=lora, checkpointing=checkpointing)
    ids, mask = batch()
    expected = one_by_one(model, ids, mask, 7)
    of_rows = gradients(model, expected)
    with attending(model):
        found = together(model, pack(ids, mask, 7, way=way))
        of_row = gradients(model, found)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-5, atol=1e-5)
    assert difference(of_row, of_rows) < 1e-5


@pytest.mark.parametrize("lengths", [(9, 4), (1, 6), (1, 1)])
@pytest.mark.parametrize("way", ["rows", "prompts"])
def test_prompts_of_different_lengths_and_of_one_token_share_a_row(lengths: tuple[int, int], way: Way) -> None:
    model = made("gemma3-windows")
    ids, mask = batch(lengths)
    expected = one_by_one(model, ids, mask, 7)
    of_rows = gradients(model, expected)
    with attending(model):
        found = together(model, pack(ids, mask, 7, way=way))
        of_row = gradients(model, found)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert difference(of_row, of_rows) < 1e-5


def test_absolute_positions_begin_with_the_prompt_where_rows_are_padded() -> None:
    """TRL gives no positions, so that GPT-2 sees a padded prompt further along than `generate` did; not so here."""
    model = made("gpt2")
    ids, mask = batch((9, 4))
    with attending(model):
        found, _ = together(model, pack(ids, mask, 7))
    alone, _ = one_by_one(model, ids[1:2, 5:], mask[1:2, 5:], 7)
    padded, _ = one_by_one(model, ids, mask, 7)
    torch.testing.assert_close(found[1:2], alone, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(padded[1:2], alone, rtol=1e-2)


def test_the_model_reads_a_prompt_once_forward_and_backward() -> None:
    model = made("qwen3")
    rows: list[tuple[str, int]] = []
    layer = model.get_submodule("model.layers.1.mlp")
    layer.register_forward_hook(lambda *args: rows.append(("forward", args[2].numel() // 32)))
    layer.register_full_backward_hook(lambda *args: rows.append(("backward", args[2][0].numel() // 32)))
    ids, mask = batch()
    with attending(model):
        gradients(model, together(model, pack(ids, mask, 7)))
    # Prompts of 9 less the last token, and branches of 7, 5, 1 and 3, 6.
    assert rows == [("forward", 8 + 13 + 8 + 9), ("backward", 8 + 13 + 8 + 9)]


def test_wrong_positions_and_a_wrong_layout_would_be_seen() -> None:
    model = made("qwen3")
    ids, mask = batch()
    expected = one_by_one(model, ids, mask, 7)[0].detach()
    right = pack(ids, mask, 7)
    running = dataclasses.replace(right, positions=torch.arange(right.ids.size(1))[None])
    others = dataclasses.replace(right.layout, rows=right.layout.rows.roll(1, dims=0))
    mixed = dataclasses.replace(right, layout=others)
    with attending(model), torch.no_grad():
        errors = [float((together(model, each)[0] - expected).abs().max()) for each in (right, running, mixed)]
    assert errors[0] < 1e-5
    assert min(errors[1:]) > 1e-2


def test_models_attend_as_they_did_afterwards() -> None:
    model = made("qwen3")
    with attending(model):
        assert model.config._attn_implementation != "sdpa"
        with attending(model):
            pass
        assert model.config._attn_implementation != "sdpa"
    assert model.config._attn_implementation == "sdpa"


# ---- Runs -----------------------------------------------------------------------------------------------------------


class RowByRow(AllRows):
    """Ours, with the same passes, each prompt read for every row, by TRL's own method."""

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        return GRPOTrainer._get_per_token_logps_and_entropies(self, *args, **kwargs)

    def _attach_team(self) -> None:
        super()._attach_team()
        self.scorer.attending = lambda *_: nullcontext()


def of_run(
    trainer_class: type[MultiAgentGRPOTrainer], model: str, path: Path, options: dict[str, Any], **more: Any
) -> twins.Run:
    """Without momentum or a norm in the optimizer, which would make much of a rounding."""
    peft = more.pop("peft", False)
    trainer = trainer_class(
        model,
        OneShot if more.get("reward_funcs") is None else twins.Unpaid,
        MultiAgentGRPOConfig(**twins.arguments(path, **{"max_steps": 3, "optim": "sgd", "bf16": False, **options})),
        Dataset.from_dict({"seed": twins.SEEDS}),
        peft_config=adapter() if peft else None,
        **more,
    )
    assert set(trainer.scorer.packable.values()) == {True}
    return twins.run(trainer)


def assert_alike(found: twins.Run, expected: twins.Run) -> None:
    assert len(found.gradients) == len(expected.gradients) > 0
    for one, other in zip(found.gradients, expected.gradients, strict=True):
        assert difference(one, other) < 1e-5
    for one, other in zip(found.log, expected.log, strict=True):
        # Packed rows that cannot move a weight are left out, and with them the numbers of what passes read.
        are_left_out = one.get("rollout/frac_rows_updated", 1.0) < 1.0
        for key, value in other.items():
            if "time" in key or "per_second" in key or key in ("loss", "train_loss"):  # losses are about 0
                continue
            if are_left_out and any(part in key for part in twins.OVER_PASSES):
                continue
            assert one[key] == pytest.approx(value, rel=1e-4, abs=1e-6, nan_ok=True), key


QUICK = (
    "grpo-beta=0.1",
    "vespo-stale",
    "use_adaptive_entropy-crossing",
)


@pytest.mark.parametrize(
    ("case", "layout"),
    [
        pytest.param(case, layout, marks=() if case in QUICK and layout == "shared" else pytest.mark.slow)
        for case in CASES
        for layout in LAYOUTS
        if not (CASES[case].get("sync_ref_model") and LAYOUTS[layout].get("peft"))
        if "model_init_kwargs" not in CASES[case]  # dropout, which is drawn once for a prompt
    ],
)
def test_every_loss_has_the_gradients_of_rows_read_one_by_one(
    case: str, layout: str, model_path: str, tmp_path: Path
) -> None:
    runs = [
        of_run(each, model_path, tmp_path, CASES[case], **LAYOUTS[layout])
        for each in (MultiAgentGRPOTrainer, RowByRow)
    ]
    assert_alike(*runs)


@pytest.mark.parametrize(
    ("loss", "peft"),
    [
        pytest.param(
            loss, peft, marks=() if peft == (loss == "grpo") and loss in ("dapo", "grpo") else pytest.mark.slow
        )
        for loss in LOSSES
        for peft in (False, True)
    ],
)
def test_every_loss_has_the_gradients_of_trls_own_trainer(
    loss: str, peft: bool, model_path: str, tmp_path: Path
) -> None:
    # In one micro-step, for of bnpo each is a mean of its own, over whatever rows are in it.
    options = {**LOSSES[loss], "beta": 0.1, "gradient_accumulation_steps": 1, "per_device_train_batch_size": 16}
    of_theirs = {**options, "max_steps": 3, "optim": "sgd", "bf16": False}
    expected = twins.run(twins.their_trainer(model_path, tmp_path, of_theirs, peft=peft))
    found = of_run(MultiAgentGRPOTrainer, model_path, tmp_path, options, peft=peft)
    for one, other in zip(found.gradients, expected.gradients, strict=True):
        assert difference(one, other) < 1e-5


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case == "dapo-token_mask" else pytest.mark.slow)
        for case in test_equals_trl_sampler.CASES
    ],
)
def test_the_correction_of_a_samplers_log_probabilities_is_that_of_rows_read_one_by_one(
    case: str, model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pettingllms_trl.trainer.parts, "EngineSet", test_equals_trl_sampler.OurEngine)
    monkeypatch.setattr("pettingllms_trl.engines.factory.find_spec", lambda name: True)
    options = {**test_equals_trl_sampler.CASES[case], "use_vllm": True}
    runs = [of_run(each, model_path, tmp_path, options) for each in (AllRows, RowByRow)]
    assert_alike(*runs)
    if options.get("vllm_importance_sampling_correction", True):
        assert runs[0].log[0]["sampling/importance_sampling_ratio/min"] != 1.0


TEAMS: dict[str, dict[str, Any]] = {
    "lora": {"policies": "lora"},
    "full": {"policies": "full"},
    "shared": {},
    "conversation": {"policies": "lora", "options": {"history": "conversation"}},
    "parallel": {"options": {"sampling": "parallel"}, "credit": "grpo"},
    "budget": {"options": {"max_tokens_per_microbatch": 100}},
    "filters": {"filters": {"nonzero_variance": {}}},
    "checkpointing": {"policies": "lora", "options": {"gradient_checkpointing": True}},
}


def of_team(trainer_class: type[MultiAgentGRPOTrainer], model: str, path: Path, **team: Any) -> twins.Run:
    common = {"max_steps": 2, "optim": "sgd", "bf16": False, "beta": 0.1, "steps_per_generation": 4}
    options = {**common, **team.pop("options", {})}
    trainer = trainer_class(
        model,
        Relay,
        MultiAgentGRPOConfig(**twins.arguments(path, **options)),
        Dataset.from_dict({"seed": twins.SEEDS}),
        **team,
    )
    return twins.run(trainer)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "conversation" else pytest.mark.slow) for name in TEAMS],
)
def test_teams_have_the_gradients_of_rows_read_one_by_one(name: str, model_path: str, tmp_path: Path) -> None:
    runs = [of_team(each, model_path, tmp_path, **TEAMS[name]) for each in (MultiAgentGRPOTrainer, RowByRow)]
    assert_alike(*runs)


BOUNDED = {
    **LOSSES,
    "entropy_coef": {"entropy_coef": 0.05},
    "entropy_coef-grpo": {"entropy_coef": 0.05, "loss_type": "grpo"},
    "sequence": {"importance_sampling_level": "sequence", "loss_type": "grpo"},
    "mask_truncated_completions": {"mask_truncated_completions": True},
}


@pytest.mark.parametrize(
    ("name", "shared_prefix"),
    [
        pytest.param(name, shared, marks=() if name == "entropy_coef-grpo" and shared else pytest.mark.slow)
        for name in BOUNDED
        for shared in (False, True)
    ],
)
def test_many_small_passes_have_the_gradients_of_one_large_pass(
    name: str, shared_prefix: bool, model_path: str, tmp_path: Path
) -> None:
    # One micro-step, for rows of a small pass would weigh otherwise in means over each of several (bnpo, entropies).
    common = {
        "shared_prefix": shared_prefix,
        "steps_per_generation": 1,
        "gradient_accumulation_steps": 1,
        **BOUNDED[name],
    }
    runs = [
        of_team(MultiAgentGRPOTrainer, model_path, tmp_path, options={**common, "max_tokens_per_microbatch": most})
        for most in (60, 10_000)
    ]
    for one, other in zip(runs[0].gradients, runs[1].gradients, strict=True):
        assert difference(one, other) < 1e-5


def test_without_shared_prompts_no_pass_is_above_the_bound_and_chunks_give_the_same_numbers(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded = {"shared_prefix": False, "max_tokens_per_microbatch": 100, "beta": 0.1, "max_steps": 1, "bf16": False}
    args = MultiAgentGRPOConfig(**twins.arguments(tmp_path, **bounded))
    trainer = MultiAgentGRPOTrainer(model_path, Relay, args, Dataset.from_dict({"seed": twins.SEEDS}))
    score, sizes = trainer.scorer._score, []

    def spying(model: Any, ids: torch.Tensor, *args: Any, **options: Any) -> Any:
        sizes.append((torch.is_grad_enabled(), ids.shape))
        return score(model, ids, *args, **options)

    monkeypatch.setattr(trainer.scorer, "_score", spying)
    with torch.no_grad():
        rows = (trainer.model.eval(), IDS, MASK, 3)
        whole, _, _ = trainer.scorer.score(*rows, batch_size=4)
        with trainer.scorer.scoring(pictures=None, chunks=[[2, 0], [1]]):
            found, _, _ = trainer.scorer.score(*rows, batch_size=4)
    # The second chunk has a prompt of one token and a completion of two.
    assert [shape for _, shape in sizes] == [(4, 6), (2, 6), (1, 3)]
    torch.testing.assert_close(found[:3], whole[:3] * MASK[:3, 3:])
    assert found[3].isnan().all()  # the row of no chunk
    sizes.clear()
    trainer.train()
    assert {has_gradient for has_gradient, _ in sizes} == {False, True}
    assert max(shape.numel() for _, shape in sizes) <= 100


# ---- Models that cannot ---------------------------------------------------------------------------------------------


def mixes_tokens(model: PreTrainedModel) -> None:
    """As a recurrent or convolutional layer: a token's input has something of the token before it in the row."""
    layer = model.get_submodule("model.layers.1.mlp")
    layer.register_forward_pre_hook(lambda _, inputs: (inputs[0] + inputs[0].roll(1, dims=1),))


def untouched(model: PreTrainedModel) -> None:
    pass


OTHERS: dict[str, tuple[Callable[[], PreTrainedModel], Callable[[PreTrainedModel], None], str]] = {
    "a layer that mixes tokens": (MODELS["qwen3"], mixes_tokens, "other log-probabilities"),
    "positions in the attention's bias": (
        lambda: BloomForCausalLM(
            BloomConfig(vocab_size=300, hidden_size=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=1)
        ),
        untouched,
        "other log-probabilities",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_model_that_cannot_is_found_out_and_trained_as_before(
    name: str, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, change, why = OTHERS[name]
    monkeypatch.setitem(SHAPE, "vocab_size", 300)
    runs = []
    for shared_prefix in (True, False):
        torch.manual_seed(0)
        model = make()
        model.generation_config.pad_token_id = 0
        model.config._name_or_path = "none"
        change(model)
        arguments = twins.arguments(tmp_path, max_steps=2, bf16=False, shared_prefix=shared_prefix)
        catching = pytest.warns(UserWarning, match=why) if shared_prefix else warnings.catch_warnings()
        with catching:
            trainer = MultiAgentGRPOTrainer(
                model,
                OneShot,
                MultiAgentGRPOConfig(**arguments),
                Dataset.from_dict({"seed": twins.SEEDS}),
                processing_class=tokenizer,
            )
        assert set(trainer.scorer.packable.values()) == {False}
        runs.append(twins.run(trainer))
    assert [n for n, w in runs[0].weights.items() if not torch.equal(w, runs[1].weights[n])] == []


def test_a_loss_over_a_routers_tokens_takes_trls_path(tokenizer: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = MixtralForCausalLM(
        MixtralConfig(**{**SHAPE, "vocab_size": 300}, num_local_experts=4, output_router_logits=True)
    )
    arguments = twins.arguments(tmp_path, max_steps=1, router_aux_loss_coef=0.01)
    with pytest.warns(UserWarning, match="router"):
        trainer = MultiAgentGRPOTrainer(
            model,
            OneShot,
            MultiAgentGRPOConfig(**arguments),
            Dataset.from_dict({"seed": twins.SEEDS}),
            processing_class=tokenizer,
        )
    assert trainer.scorer.packable == {"base": False}


def test_in_sixteen_bits_the_model_is_tried_against_one_in_which_candidates_see_each_other(
    tokenizer: Any, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**{**SHAPE, "vocab_size": 300})).to(torch.bfloat16)
    trainer = MultiAgentGRPOTrainer(
        model,
        OneShot,
        MultiAgentGRPOConfig(**twins.arguments(tmp_path, max_steps=2)),
        Dataset.from_dict({"seed": twins.SEEDS}),
        processing_class=tokenizer,
    )
    assert trainer.scorer.packable == {"base": True}
    assert trainer.scorer._is_in_float32(trainer.model) is False
    twins.run(trainer)


def test_a_resumed_run_tries_what_is_spread_over_processes_at_its_first_pass(tokenizer: Any, tmp_path: Path) -> None:
    # Inside a generation nothing is dealt any more, which is where such weights are tried otherwise.
    torch.manual_seed(0)
    trainer = MultiAgentGRPOTrainer(
        Qwen3ForCausalLM(Qwen3Config(**{**SHAPE, "vocab_size": 300})),
        OneShot,
        MultiAgentGRPOConfig(**twins.arguments(tmp_path, max_steps=1)),
        Dataset.from_dict({"seed": twins.SEEDS}),
        processing_class=tokenizer,
    )
    trainer.scorer.packable.clear()  # as `try_all` leaves it there
    config = trainer.model.config
    with trainer.scorer.attending("base"):
        assert config._attn_implementation_internal == NAME
    assert config._attn_implementation_internal != NAME
