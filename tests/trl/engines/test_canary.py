"""The canary finds an engine that samples from other weights than the trainer's, says so, and lets the others be."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from pettingllms_trl import MultiAgentGRPOConfig, Policy
from pettingllms_trl.engines.canary import Agreement, Canary, Own, begin, compare
from pettingllms_trl.engines.weight_store import StaleWeights, WeightsVersion
from pettingllms_trl.records import Prompt, Scored
from shadow import shadowed
from short_runs import adapter


T = 256
DIRECTION = np.tile([1.0, -1.0], T // 2)  # of length sqrt(T) = 16
START = np.full(T, -5.0)


def rounding(seed: int, size: float = 0.01) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, size, T)


def last(noise: float = 0.01) -> Agreement:
    """Both had the same log-probabilities, of which rounding is known to change each by `noise`."""
    return Agreement(version=0, own=Own(START, START), engine=START, noise=noise, scale=5.0)


def exactly(values: np.ndarray) -> Own:
    """Of a trainer in float32."""
    return Own(values, values)


# ---- One comparison -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "certainty", "is_stale"),
    [(1, 0.8, False), (7, 5.6, False), (8, 6.4, True), (100, 80.0, True)],
)
def test_steps_below_rounding_add_up_until_an_engine_that_stands_still_is_found(
    steps: int, certainty: float, is_stale: bool
) -> None:
    """A step moves a log-probability by 0.0005, a twentieth of the noise: 16 * 0.0005 / 0.01 = 0.8 standard errors."""
    found = compare(last(), steps, exactly(START + 0.0005 * steps * DIRECTION), START)
    assert found.certainty == pytest.approx(certainty, rel=1e-3)
    assert found.followed == pytest.approx(0.0)
    assert found.is_stale is is_stale
    assert found.agreement.version == 0  # nothing to compare the next one with but the start


def test_an_engine_that_follows_is_agreed_with_once_the_movement_is_long_enough_to_tell() -> None:
    agreement, agreed = last(), []
    for step in range(1, 201):
        trainer = START + 0.0005 * step * DIRECTION
        found = compare(agreement, step, exactly(trainer), trainer + rounding(step))
        assert not found.is_stale
        agreement = found.agreement
        agreed.append(agreement.version)
    assert agreed[:29] == [0] * 29  # 0.25 * 16 * 0.0005 * n > 6 * 0.01 from n = 30 on, with noise of 0.01 exactly
    assert 3 <= len(set(agreed)) <= 7  # and again 30 steps after that, or a few more


def test_an_engine_that_stops_after_it_has_followed_is_found() -> None:
    agreement = compare(last(), 50, exactly(START + 0.025 * DIRECTION), START + 0.025 * DIRECTION).agreement
    assert agreement.version == 50
    stuck = agreement.engine
    is_stale = [compare(agreement, n, exactly(START + 0.0005 * n * DIRECTION), stuck).is_stale for n in range(51, 60)]
    assert is_stale == [False] * 7 + [True] * 2


@pytest.mark.parametrize("knows_direction", [True, False])
def test_the_trainers_own_rounding_is_not_taken_for_movement(knows_direction: bool) -> None:
    """Both have rounding of their own in each step, and the same weights, which move by a hundredth of it."""
    for seed in range(200):
        moved = START + 0.0001 * DIRECTION
        own = Own(moved + rounding(2 * seed), moved if knows_direction else None)
        found = compare(last(0.02), 1, own, moved + rounding(2 * seed + 1))
        assert not found.is_stale
        assert found.certainty < 4


def test_without_a_direction_in_float32_a_movement_above_rounding_is_still_followed_or_not() -> None:
    moved = START + 0.07 * DIRECTION
    own = Own(moved + rounding(0), None)
    assert compare(last(0.02), 1, own, START + rounding(1)).is_stale
    assert compare(last(0.02), 1, own, moved + rounding(1)).agreement.version == 1


@pytest.mark.parametrize(("off", "is_stale"), [(0.079, False), (0.081, True), (float("nan"), True)])
def test_a_difference_of_eight_times_the_noise_needs_no_movement_to_be_found(off: float, is_stale: bool) -> None:
    found = compare(last(), 1, exactly(START), START + off)
    assert found.tolerance == pytest.approx(0.08)
    assert found.is_stale is is_stale


def test_the_noise_is_measured_in_the_first_comparison() -> None:
    found = begin(0, exactly(START), START + 0.01 * DIRECTION, largest=0.5)
    assert (found.difference, found.is_stale) == (pytest.approx(0.01), False)
    assert found.agreement.noise == pytest.approx(0.01 * 2**0.5)  # of one rounding beside another
    assert begin(0, exactly(START), START, largest=0.5).agreement.noise == 1e-6  # float32 is not exact elsewhere
    assert begin(0, exactly(START), START + 1.0, largest=0.5).is_stale


# ---- In a trainer ---------------------------------------------------------------------------------------------------

TEAM = {"policies": "lora", "peft_config": adapter(), "max_steps": 3, "compare_every": 1}


def test_one_stale_step_is_found_in_float32_with_both_versions_named(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, (engine,) = shadowed(monkeypatch, model_path, tmp_path, **TEAM)
    trainer.play([{"seed": 1}])
    engine.deaf = True
    with pytest.raises(
        StaleWeights,
        match=r"step 1: .* of policy 'opener'. The trainer holds version 2; the engine \(this process\) was given "
        r"version 2 and says that it uses 'opener-v3'. On a fixed text of 255 tokens .* by [\d.e-]+ nats .* since "
        r"version 0, when they last agreed, the trainer's moved by [\d.e-]+ and the engine's by 0% of that",
    ):
        trainer.train()
    assert trainer.state.global_step == 1


def test_all_policies_are_scored_before_one_is_found_stale() -> None:
    asked: list[str] = []

    class Off:
        served = ("opener", "closer")

        def given(self, policy: str) -> int:
            return 0

        def score(self, policy: str, prompt: Prompt) -> list[Scored]:
            asked.append(policy)
            return [Scored("this process", policy, (-3.0,) * (len(prompt.ids) - 1))]

    canary = Canary(
        Off(),
        {name: Policy(adapter=name) for name in Off.served},
        text_of=lambda name: Prompt([], tuple(range(9))),
        score=lambda name, prompt: exactly(np.zeros(len(prompt.ids) - 1)),
        action="stop",
        every=1,
        largest_at_start=0.5,
    )
    with pytest.raises(StaleWeights, match="those of policy 'opener'"):
        canary.check(WeightsVersion(), 0)
    assert asked == ["opener", "closer"]  # together with processes that share the engine, and may find none stale


def test_with_warn_the_run_goes_on(model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, (engine,) = shadowed(monkeypatch, model_path, tmp_path, **{**TEAM, "max_steps": 2, "canary": "warn"})
    trainer.play([{"seed": 1}])
    engine.deaf = True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.train()
    said = [str(each.message) for each in caught if "does not sample from the weights" in str(each.message)]
    assert [text.partition(",")[0].partition(":")[0] for text in said] == ["step 1", "step 1"]
    assert trainer.state.global_step == 2


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_engines_with_the_trainers_weights_are_let_be_and_scored_every_so_often(
    precision: str, model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, _ = shadowed(
        monkeypatch,
        model_path,
        tmp_path,
        dtype=getattr(torch, precision),
        bf16=precision == "bfloat16",
        policies={"opener": "opening", "closer": Policy(model=model_path, name="closing", trainable=False)},
        peft_config=adapter(),
        max_steps=5,
        compare_every=2,
    )
    trainer.train()
    logged = {
        name: [log["step"] - 1 for log in trainer.state.log_history if f"canary/{name}/difference" in log]
        for name in ("opening", "closing")
    }
    assert logged == {"opening": [0, 2, 4], "closing": [0]}


def test_in_a_run_in_bfloat16_the_direction_is_known_in_float32_where_the_weights_are(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, (engine,) = shadowed(monkeypatch, model_path, tmp_path, bf16=True, canary=None)
    trainer.train()  # from here on accelerate casts in the model's own forward
    trainer.play([{"seed": 1}])
    text = Prompt([], tuple(range(5, 105)))
    own, (scored,) = trainer.engines.own_logprobs("base", text), engine.score("base", text)
    assert own.exact is not None
    assert np.abs(own.exact - scored.logprobs).max() < 1e-5
    assert np.abs(own.working - scored.logprobs).max() > 1e-3
    with monkeypatch.context() as patch:  # which casts in every pass
        patch.setattr(trainer.accelerator.state, "fsdp_plugin", object(), raising=False)
        assert trainer.engines.own_logprobs("base", text).exact is None
    trainer.model.bfloat16()
    assert trainer.engines.own_logprobs("base", text).exact is None


def test_other_weights_at_the_start_are_found(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, (engine,) = shadowed(monkeypatch, model_path, tmp_path)
    with torch.no_grad():
        for parameter in engine.model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    engine.deaf = True
    with pytest.raises(StaleWeights, match=r"step 0: .* differ by [\d.]+ nats .*, expected at most 0.0001\. What was"):
        trainer.play([{"seed": 1}])


@pytest.mark.parametrize("options", [{"canary": None}, {"use_vllm": False}])
def test_nothing_is_scored_where_it_is_switched_off_or_the_trainers_own_weights_sample(
    options: dict[str, object], model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, _ = shadowed(monkeypatch, model_path, tmp_path, **options)
    assert trainer.engines.canary is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"canary": "yes"}, r"canary='yes', expected 'stop', 'warn' or None to compare nothing"),
    ],
)
def test_settings_that_are_none_are_refused(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        MultiAgentGRPOConfig(str(tmp_path), **options)
