"""With a sampler that gives log-probabilities, as vLLM does, the trainer reduced to one agent is TRL's, too.

Both are given the same made-up samples, for every mode of the correction with every loss; test_equals_trl_vllm.py
gives them those of a real engine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trl.trainer.grpo_trainer

import pettingllms_trl.trainer.parts
from pettingllms_trl.records import Completion, Request, Sampled
from twins import END, assert_equal, our_trainer, run, their_trainer


Sample = tuple[list[int], list[float]]
SEQUENCE = {"importance_sampling_level": "sequence"}
LOSSES: dict[str, dict[str, Any]] = {
    loss: {"loss_type": loss, **(SEQUENCE if loss == "luspo" else {})}
    for loss in ("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo")
}
MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
OFF = {"vllm_importance_sampling_correction": False}
CASES: dict[str, dict[str, Any]] = {
    **{
        f"{loss}-{mode}": {**options, "vllm_importance_sampling_mode": mode}
        for loss, options in LOSSES.items()
        for mode in MODES
        if not (loss == "vespo" and mode.startswith("sequence"))  # refused, by TRL too
    },
    "uncorrected": OFF,
    "uncorrected-vespo": {**OFF, "loss_type": "vespo"},
    "clip_max": {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": 1.01},
    "clip_min": {
        "vllm_importance_sampling_mode": "token_mask",
        "vllm_importance_sampling_clip_min": 0.9,
        "vllm_importance_sampling_clip_max": 1.1,
    },
    "off_policy_mask_threshold": {"off_policy_mask_threshold": 0.02},
    "steps_per_generation": {"steps_per_generation": 4},
    "stale": {"num_iterations": 2, "steps_per_generation": 4, "beta": 0.1, "entropy_coef": 0.01},
    "top_entropy_quantile": {"top_entropy_quantile": 0.3},
    "mask_truncated_completions": {"mask_truncated_completions": True},
}
FAST = {
    *("dapo-token_mask", "dapo-sequence_truncate", "vespo-token_mask", "uncorrected-vespo", "clip_min"),
}


def made_up(prompt_ids: Sequence[int], k: int, generation: int) -> Sample:
    """Any tokens, with log-probabilities near a random model's (-5.56): some ratios are clipped and some not."""
    draw = random.Random(f"{list(prompt_ids)}/{k}/{generation}")
    length = draw.randint(1, 8)
    ids = [draw.randrange(5, 200) for _ in range(length)]
    if draw.random() < 0.5:
        ids[-1] = END
    return ids, [-5.56 + draw.uniform(-0.3, 0.3) for _ in ids]


class TheirEngine:
    """In the place of `trl.generation.vllm_generation.VLLMGeneration`: gives what `sample` gives."""

    def __init__(self, **_: Any) -> None:
        self.generation = -1

    def sync_weights(self) -> None: ...

    def generate(self, prompts: list[list[int]], num_generations: int, **_: Any) -> tuple[Any, Any, Any, Any]:
        self.generation += 1
        found = [self.sample(prompt, i % num_generations) for i, prompt in enumerate(prompts)]
        return prompts, [ids for ids, _ in found], [[[value] for value in values] for _, values in found], None

    def sample(self, prompt: Sequence[int], k: int) -> Sample:
        return made_up(prompt, k, self.generation)


class OurEngine:
    """An `Engine` that gives what `made_up` gives, with the signature of a `EngineSet`."""

    is_batched = False
    served = ()
    tensor_parallel = None

    def __init__(self, *_: Any, codecs: Mapping[str, Any], **__: Any) -> None:
        (self.codec,) = codecs.values()
        self.engine = self
        self.generation = -1
        self.asked: list[tuple[int, Request]] = []

    def sync_weights(self, model: Any, version: Any) -> None: ...

    @contextmanager
    def rollout(self, seed: str) -> Iterator[None]:
        self.generation += 1
        yield

    def submit(self, ticket: int, request: Request) -> None:
        self.asked.append((ticket, request))

    def step(self, timeout: float = 0.0) -> list[tuple[int, Sampled]]:
        ticket, request = self.asked.pop()
        prompt_ids = tuple(self.codec.tokenize(request.prompt))
        found = [made_up(prompt_ids, k, self.generation) for k in range(request.num_candidates)]
        return [
            (
                ticket,
                Sampled(
                    replace(request.prompt, ids=prompt_ids),
                    tuple(
                        Completion(ids=tuple(ids), text=self.codec.decode(ids), logprobs=tuple(logprobs))
                        for ids, logprobs in found
                    ),
                ),
            )
        ]


@pytest.mark.parametrize(
    ("case", "policies"),
    [
        *[pytest.param(case, "shared", marks=() if case in FAST else pytest.mark.slow) for case in CASES],
        pytest.param("dapo-sequence_mask", "lora", marks=pytest.mark.slow),
        ("stale", "lora"),
    ],
)
def test_with_the_same_samples_the_update_equals_plain_trl(
    case: str, policies: str, model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trl.trainer.grpo_trainer, "VLLMGeneration", TheirEngine)
    monkeypatch.setattr(pettingllms_trl.trainer.parts, "EngineSet", OurEngine)
    monkeypatch.setattr("pettingllms_trl.engines.factory.find_spec", lambda name: True)
    options = {**CASES[case], "use_vllm": True}
    peft = policies == "lora"
    theirs = run(their_trainer(model_path, tmp_path / "theirs", options, peft=peft))
    ours = run(our_trainer(model_path, tmp_path / "ours", options, peft=peft, policies=policies))
    assert_equal(theirs, ours)
    corrected = options.get("vllm_importance_sampling_correction", True)
    assert ("sampling/importance_sampling_ratio/max" in ours.log[0]) == corrected
    if corrected:
        assert ours.log[0]["sampling/importance_sampling_ratio/min"] != 1.0
