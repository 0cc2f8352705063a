"""With a real vLLM engine the trainer reduced to one agent makes TRL's updates. Run with `-m vllm`.

TRL cannot push full weights into vLLM for CPUs ("'Parameter' object has no attribute 'weight_loader'"), so its own
engine is a stand-in, which gives the tokens and log-probabilities that ours sampled, with the weights of every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("case", "policies"),
    [("dapo-sequence_mask", "shared"), ("vespo-token_truncate", "shared"), ("stale", "lora")],
)
def test_what_a_real_engine_sampled_gives_the_update_of_plain_trl(
    case: str, policies: str, base_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import trl.trainer.grpo_trainer  # where vLLM is installed, importing TRL warns of much
    from test_equals_trl_sampler import CASES, TheirEngine

    import pettingllms_trl.update.builder
    from twins import assert_equal, our_trainer, run, their_trainer

    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    options = {**CASES[case], "use_vllm": True, "vllm_max_model_length": 64, "bf16": False, "generation_kwargs": None}
    peft = policies == "lora"
    trainer = our_trainer(base_path, tmp_path / "ours", options, peft=peft, policies=policies)
    record: dict[tuple[int, ...], list[Any]] = {}
    engine = trainer.engines.engine_set.engine
    step = engine.step

    def recorded(*timeout: float) -> Any:
        answers = list(step(*timeout))
        for _, sampled in answers:
            record.setdefault(sampled.prompt.ids, []).append(sampled)
        return answers

    engine.step = recorded
    states: list[torch.Tensor] = []
    shuffle = pettingllms_trl.update.builder.shuffle_sequence_dict

    def shuffled(batch: Any) -> Any:
        states.append(torch.get_rng_state())
        return shuffle(batch)

    monkeypatch.setattr(pettingllms_trl.update.builder, "shuffle_sequence_dict", shuffled)
    ours = run(trainer)
    differences = [log.get("sampling/sampling_logp_difference/max", 0.0) for log in ours.log]
    assert 0 < max(differences) < 1e-3  # it was a real engine, with weights of now

    class Replay(TheirEngine):
        def sample(self, prompt: Sequence[int], k: int) -> tuple[list[int], list[float]]:
            sampled = record[tuple(prompt)]
            completion = sampled[0].completions[k]
            if k == len(sampled[0].completions) - 1:
                sampled.pop(0)
            return list(completion.ids), list(completion.logprobs or ())

    def shuffled_as_ours(batch: Any) -> Any:
        torch.set_rng_state(states.pop(0))  # an engine in the process draws from its generator, too
        return shuffle(batch)

    monkeypatch.setattr(trl.trainer.grpo_trainer, "VLLMGeneration", Replay)
    monkeypatch.setattr(trl.trainer.grpo_trainer, "shuffle_sequence_dict", shuffled_as_ours)
    assert_equal(run(their_trainer(base_path, tmp_path / "theirs", options, peft=peft)), ours)
    assert all(not left for left in record.values())
