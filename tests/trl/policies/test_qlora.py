"""Adapters on a base of 4 bits, as QLoRA has it: they train, are saved and read back. bitsandbytes runs on CPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from pettingllms_trl import MultiAgentGRPOTrainer
from short_runs import adapter, settings
from third_party import Relay


pytest.importorskip("bitsandbytes", reason="needs bitsandbytes")
FOUR_BITS = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)


def logits(model: Any) -> torch.Tensor:
    """In training mode, where bitsandbytes computes in float32 on a CPU; else in bfloat16. There is no dropout."""
    return model.train()(input_ids=torch.arange(5, 15)[None]).logits.detach()


def test_adapters_on_a_base_of_four_bits_train_and_load_alone(
    base_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where a CPU has these instructions, a base that has sampled has no gradients any more.
    monkeypatch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: False)
    options = {"gradient_checkpointing": True, "model_init_kwargs": {"dtype": torch.float32}}
    args = settings(tmp_path, max_steps=4, learning_rate=3e-2, **options)
    trainer = MultiAgentGRPOTrainer(
        base_path,
        Relay,
        args,
        Dataset.from_dict({"seed": range(24)}),
        policies="lora",
        peft_config=adapter(),
        quantization_config=FOUR_BITS,
    )
    base = trainer.model.get_base_model()
    assert base.is_loaded_in_4bit
    assert base.model.layers[0].mlp.up_proj.base_layer.weight.dtype == torch.uint8
    frozen = {name: p.detach().clone() for name, p in trainer.model.named_parameters() if not p.requires_grad}
    trainer.train()
    for name, parameter in trainer.model.named_parameters():
        if name in frozen:
            assert torch.equal(parameter, frozen[name]), name
    trainer.save_model()
    outputs = []
    for name in ("opener", "closer"):
        trainer.model.set_adapter(name)
        outputs.append(logits(trainer.model))
        quantized = AutoModelForCausalLM.from_pretrained(base_path, quantization_config=FOUR_BITS, dtype=torch.float32)
        untrained = logits(quantized)
        alone = PeftModel.from_pretrained(quantized, str(tmp_path / name))
        # TRL holds the adapters of such a base in bfloat16; loaded alone, their values are computed with in float32.
        assert float((logits(alone) - outputs[-1]).abs().max()) < 0.02
        assert float((outputs[-1] - untrained).abs().max()) > 1
    assert float((outputs[0] - outputs[1]).abs().max()) > 1
