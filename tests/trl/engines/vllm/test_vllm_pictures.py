"""vLLM is shown the pictures that the trainer is: the same ids, the same log-probabilities, and weights of now."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration

from launches import launched, report, two
from pettingllms_envs.agents import AgentSpec
from pettingllms_trl.cli.transformers_agents import open_transformers
from pettingllms_trl.pixels import ImageInputs
from pettingllms_trl.records import Prompt
from picture_books import Describer, PictureBook, as_image, drawn, played
from real_vllm import served
from short_runs import adapter
from tiny_vlms import qwen, qwen_processor
from vllm_teams import check_same, off_by, team


pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"),
]

PLACE = 28 * 28
"""Pixels of one place."""
EXACT = 1e-3
"""Largest difference between log-probabilities of the trainer and of vLLM in float32, in nats."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Qwen2.5-VL and its processor as vLLM loads them: with attention heads of 64, and a part for videos."""
    pytest.importorskip("vllm", reason="needs the extra `vllm`")
    pytest.importorskip("torchvision", reason="vLLM's Qwen2.5-VL imports it")
    path, processor = tmp_path_factory.mktemp("vlm"), qwen_processor()
    config = qwen(processor, initializer_range=0.1).config
    text = config.text_config
    text.num_attention_heads = text.num_key_value_heads = 1
    text.rope_parameters["mrope_section"] = [8, 12, 12]
    torch.manual_seed(0)
    model = Qwen2_5_VLForConditionalGeneration(config)
    with torch.no_grad():  # the place of a picture is never likely, as it is not to a trained model
        model.get_input_embeddings().weight[:, 0] = 5.0
        model.lm_head.weight[config.image_token_id] = -10.0 * (torch.arange(64) == 0)
    model.save_pretrained(path)
    processor.save_pretrained(path)
    config_file = path / "processor_config.json"
    config_file.write_text(config_file.read_text().replace("StillProcessor", "Qwen2_5_VLProcessor"))
    (path / "video_preprocessor_config.json").write_text(json.dumps({"video_processor_type": "Qwen2VLVideoProcessor"}))
    return str(path)


def trained(
    folder: str,
    out: Path,
    *,
    env: Any = PictureBook,
    policies: Any = "shared",
    peft_config: LoraConfig | None = None,
    most_places: int = 16,
    **options: Any,
) -> Any:
    """A trainer after three steps; each plays the same four rows, so that all but the first have known pictures."""
    from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer  # which warns where vLLM is installed

    settings = {
        "num_generations": 4,
        "per_device_train_batch_size": 16,
        "max_completion_length": 6,
        "learning_rate": 1e-2,
        "max_steps": 3,
        "vllm_max_model_length": 512,
        "logging_steps": 1,
        "canary": "stop",
        **options,
    }
    args = MultiAgentGRPOConfig(
        str(out), use_cpu=True, bf16=False, use_vllm=True, report_to="none", save_strategy="no", **settings
    )
    processor = AutoProcessor.from_pretrained(folder)
    processor.image_processor.size["longest_edge"] = most_places * PLACE
    rows = Dataset.from_dict({"seed": range(4)})
    trainer = MultiAgentGRPOTrainer(
        None if isinstance(policies, dict) else folder,
        env,
        args,
        rows,
        policies=policies,
        processing_class=None if isinstance(policies, dict) else processor,
        peft_config=peft_config,
    )
    trainer.train()
    return trainer


def check_agrees(trainer: Any, policy: str) -> None:
    """In each step vLLM sampled as the trainer scores, and now it scores two pictures as the trainer does."""
    differences = off_by({"log": trainer.state.log_history})
    print(f"\n{policy}: vLLM and trainer differ by {max(differences):.1e} nats at most")
    assert len(differences) == 3
    assert max(differences) <= EXACT
    assert trainer.engines.scored_text(policy).images  # what the canary has compared
    scores = []
    with trainer.engines.rollout("scores", step=3, report=lambda *_: None):
        for number in (1, 2):
            image = as_image(drawn(number, (112, 84)))
            prompt = Prompt([{"role": "user", "content": ["Look:", image, "Moves?"]}], images=(image,))
            prompt = replace(prompt, ids=tuple(trainer.codecs[policy].encode([prompt])[0]))
            (scored,) = trainer.engines.engine_set.score(policy, prompt)
            assert scored.logprobs == pytest.approx(trainer.engines.own_logprobs(policy, prompt).working, abs=EXACT)
            scores.append(torch.tensor(scored.logprobs))
    assert float((scores[0] - scores[1]).abs().max()) > 50 * EXACT  # it looks


def moved(trainer: Any, folder: str) -> set[str]:
    """Weights that differ from those of the folder."""
    before = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder).state_dict()
    return {name for name, tensor in trainer.model.state_dict().items() if not torch.equal(tensor, before[name])}


def test_a_model_that_is_trained_whole_samples_as_the_trainer_scores(folder: str, tmp_path: Path) -> None:
    trainer = trained(folder, tmp_path)
    check_agrees(trainer, "base")
    assert any("visual" in name for name in moved(trainer, folder))


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "v_proj"]])
def test_adapters_on_vision_parts_are_served_too(folder: str, tmp_path: Path, targets: Any) -> None:
    config = LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM", init_lora_weights=False)
    trainer = trained(folder, tmp_path, peft_config=config)
    check_agrees(trainer, "base")


def test_vllm_in_the_process_bounds_pictures_as_the_trainer_does(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_agrees(trained(folder, tmp_path, most_places=8), "base")
    monkeypatch.setattr(ImageInputs, "size", {"shortest_edge": 4 * PLACE, "longest_edge": 16 * PLACE})
    with pytest.raises(
        ValueError,
        match=r"of agent 'solver_0' has \d+ tokens with \[6\] of its pictures, and vLLM read \d+; expected the same. "
        r"Pictures are bounded by {.*'longest_edge': 12544} here, and there by mm_processor_kwargs={'size': ",
    ):
        trained(folder, tmp_path, most_places=8)


def test_a_policy_that_sees_and_one_that_reads_texts_are_sampled_beside_each_other(
    folder: str, base_path: str, tmp_path: Path
) -> None:
    from pettingllms_trl import Policy

    policies = {"seer": Policy(model=folder), "teller": Policy(model=base_path)}
    trainer = trained(folder, tmp_path, env=Describer, policies=policies)
    check_agrees(trainer, "seer")
    assert list(trainer.image_inputs) == ["seer"]
    assert not trainer.engines.scored_text("teller").images


def test_adapters_of_which_one_agent_sees_and_the_other_reads_are_sampled_by_one_engine(
    folder: str, tmp_path: Path
) -> None:
    config = adapter(init_lora_weights=False)
    check_agrees(trained(folder, tmp_path, env=Describer, policies="lora", peft_config=config), "seer")


@pytest.mark.slow
def test_two_processes_train_as_one_where_one_of_them_has_no_pictures(folder: str, tmp_path: Path) -> None:
    about = {"env": "few pictures", "real": True}
    few = {"num_generations": 2, "steps_per_generation": 2, "gradient_accumulation_steps": 2, "shared_prefix": False}
    specs = {layout: team(layout, about=about, **few) for layout in ("shared", "lora")}
    launched(tmp_path / "one", specs, folder)
    launched(tmp_path / "two", specs, folder, *two())
    for name in specs:
        one, other = report(tmp_path / "one", name), report(tmp_path / "two", name)
        check_same(one, other, f"{name}, pictures on one of two")
        assert any(min(pair) == 0 < max(pair) for pair in zip(*other["num_seeing"], strict=True))


def test_bench_with_vllm_replies_as_with_transformers(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an adapter on both parts, without which the model says the same of every picture."""
    from pettingllms_trl.cli.vllm_agents import open_vllm

    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    torch.manual_seed(1)
    config = LoraConfig(
        r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False
    )
    get_peft_model(Qwen2_5_VLForConditionalGeneration.from_pretrained(folder), config).save_pretrained(tmp_path)
    gc.collect()  # an engine that is forgotten later would take this one's process groups along
    greedy = {"temperature": 0.0, "max_tokens": 6, "adapter": str(tmp_path)}
    openers = {
        "transformers": (open_transformers, greedy),
        "vllm": (open_vllm, {**greedy, "dtype": "float32", "max_model_len": 512}),
    }
    said = {}
    for kind, (opener, own) in openers.items():
        models = opener({"solver_0": AgentSpec(kind, folder, own)}, 4)
        said[kind] = played(models.agents["solver_0"], range(12))
        models.close()
    assert said["vllm"] == said["transformers"]
    assert len(set(said["vllm"])) > 6


def test_a_server_is_shown_pictures_with_adapters_and_with_whole_models(folder: str, tmp_path: Path) -> None:
    options = "--max-model-len 512 --logprobs-mode processed_logprobs --enable-scale-out --enable-lora --max-loras 2 "
    options += "--max-lora-rank 8 --enable-tower-connector-lora --no-enable-chunked-prefill "
    options += """--limit-mm-per-prompt {"video":0}"""
    environment = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_SERVER_DEV_MODE": "1"}
    with served(folder, tmp_path / "log", options, **environment) as url:
        server = {"vllm_mode": "server", "vllm_server_base_url": url, "vllm_server_timeout": 300.0}
        config = adapter(init_lora_weights=False)
        with pytest.raises(
            ValueError, match=r"\[6\] of its pictures, and vLLM read \d+; .* --mm-processor-kwargs of ht"
        ):
            trained(folder, tmp_path / "bounds", peft_config=config, most_places=8, **server)
        check_agrees(trained(folder, tmp_path / "adapter", peft_config=config, **server), "base")
        check_agrees(trained(folder, tmp_path / "whole", **server), "base")  # the last: now it has these weights
