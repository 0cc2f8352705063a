"""vLLM is shown the pictures that the trainer is: the same ids, the same log-probabilities, and weights of now."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import Qwen2_5_VLForConditionalGeneration

from picture_books import PictureBook
from real_vllm import served
from tiny_vlms import qwen, qwen_processor
from vllm_teams import off_by


pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"),
]

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
    (path / "video_preprocessor_config.json").write_text(json.dumps({"video_processor_type": "Qwen2VLVideoProcessor"}))
    return str(path)


def trained(folder: str, out: Path, *, peft_config: LoraConfig | None = None, **options: Any) -> Any:
    from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer

    settings = {
        "num_generations": 4,
        "per_device_train_batch_size": 16,
        "max_completion_length": 6,
        "learning_rate": 1e-2,
        "max_steps": 3,
        "vllm_max_model_length": 256,
        "logging_steps": 1,
        "canary": "stop",
        **options,
    }
    args = MultiAgentGRPOConfig(
        str(out), use_cpu=True, bf16=False, use_vllm=True, report_to="none", save_strategy="no", **settings
    )
    trainer = MultiAgentGRPOTrainer(
        folder,
        PictureBook,
        args,
        Dataset.from_dict({"seed": range(32)}),
        policies="shared",
        processing_class=qwen_processor(),
        peft_config=peft_config,
    )
    trainer.train()
    return trainer


def test_a_model_that_is_trained_whole_samples_as_the_trainer_scores(folder: str, tmp_path: Path) -> None:
    trainer = trained(folder, tmp_path)
    differences = off_by({"log": trainer.state.log_history})
    print(differences, [log for log in trainer.state.log_history])
    assert len(differences) == 3
    assert max(differences) <= EXACT
