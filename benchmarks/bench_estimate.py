"""What `pettingllms train --estimate` computes beside what can be measured without a GPU.

    PYTHONPATH=. python benchmarks/bench_estimate.py

* Bytes of weights, gradients and optimizer states of a real training run, for each layout.
* The peak of a pass of the update: tensors alive, and the process's memory as the operating system counts it.
* Tokens of the KV cache as vLLM says it has them, where vLLM is installed.

On tiny models, on a CPU, in float32. What a GPU adds (a caching allocator, CUDA graphs, kernels' workspaces) is not in
it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import torch
from bench_update import MODELS
from datasets import Dataset
from figures import Figure, write
from peft import LoraConfig
from transformers import AutoConfig, Qwen3Config, Qwen3ForCausalLM

import pettingllms_envs
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.estimate.activations import measured_pass, pass_bytes
from pettingllms_trl.estimate.memory import Weights, blocks_of_cache, logits_bytes, training_state
from pettingllms_trl.estimate.shapes import shape_of
from pettingllms_trl.testing import byte_tokenizer, save_tiny_model


LORA = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
SHAPES = ((512, 64, 8), (1024, 64, 8), (64, 512, 8))
"""Tokens of a prompt and of a completion, and sequences of a pass, as `bench_update.py` has them."""


def trained_bytes(layout: str) -> Iterator[tuple[str, float, float]]:
    """What, computed and measured bytes, of a training run of two steps."""
    with tempfile.TemporaryDirectory() as folder:
        path = save_tiny_model(Path(folder, "model"), byte_tokenizer())
        trainer = MultiAgentGRPOTrainer(
            path,
            lambda: pettingllms_envs.make("plan_path", size=4, num_turns=1),
            MultiAgentGRPOConfig(
                folder,
                num_generations=2,
                per_device_train_batch_size=2,
                max_completion_length=4,
                max_steps=2,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
                bf16=False,
                beta=0.1,  # so that there is a gradient whatever the rewards
            ),
            Dataset.from_dict({"seed": range(2)}),
            policies={"shared": "shared", "lora": "lora", "full": "full"}[layout],
            peft_config=LORA if layout == "lora" else None,
        )
        kept: dict[int, int] = {}
        step = trainer.create_optimizer().step
        trainer.optimizer.step = lambda *a, **k: (kept.update(gradients(trainer.model)), step(*a, **k))[1]
        trainer.train()
        shape = shape_of(AutoConfig.from_pretrained(path), LORA if layout == "lora" else None)
        held = {
            "shared": [Weights(parameters=shape.parameters, width=4, is_trained=True)],
            "lora": [
                Weights(parameters=shape.parameters, width=4, is_trained=False),
                Weights(parameters=2 * shape.adapter, width=4, is_trained=True),
            ],
            "full": [Weights(parameters=2 * shape.parameters, width=4, is_trained=True)],
        }[layout]
        state = training_state(held, "ddp", 1)
        states = [t for one in trainer.optimizer.state.values() for t in one.values() if t.dim()]
        yield "weights", state.weights, sum(p.nbytes for p in set(trainer.model.parameters()))
        yield "gradients", state.gradients, sum(kept.values())
        yield "optimizer states", state.optimizer, sum(t.nbytes for t in states)


def gradients(model: torch.nn.Module) -> dict[int, int]:
    """Bytes of each gradient that there is."""
    return {id(p): p.grad.nbytes for p in model.parameters() if p.grad is not None}


def passes() -> Iterator[tuple[str, float, float]]:
    """What, computed and measured bytes, of a pass: first of tensors alive, then of the whole process."""
    config = Qwen3Config(**MODELS["25M"], tie_word_embeddings=True)
    for checkpointing in (False, True):
        options = {"rows": 2, "length": 128, "in_bfloat16": False, "checkpointing": checkpointing}
        computed = pass_bytes(config, dtype=torch.float32, **options)
        kind = "with checkpoints" if checkpointing else "without checkpoints"
        yield f"a pass, tensors alive, {kind}", computed.peak, measured_pass(Qwen3ForCausalLM(config), **options).peak
    for prompt, completion, rows in SHAPES:
        layers = pass_bytes(
            config, rows=rows, length=prompt + completion, dtype=torch.float32, in_bfloat16=False, checkpointing=False
        )
        tokens, hidden, vocabulary = rows * completion, config.hidden_size, config.vocab_size
        logits = logits_bytes(tokens, hidden, vocabulary, width=4, trained_head=hidden * vocabulary)
        command = [sys.executable, str(Path(__file__).with_name("bench_update.py")), "--peak", "trl"]
        shown = subprocess.run(
            [*command, "--shapes", f"{prompt}x{completion}x{rows}"], capture_output=True, text=True, check=True
        )
        yield (
            f"TRL's pass, process, {prompt}x{completion}x{rows}",
            max(layers.peak, layers.kept + logits),
            float(shown.stdout.split()[-1]),
        )


def cache_tokens() -> Iterator[tuple[str, float, float]]:
    """What, computed and vLLM's own tokens of a KV cache of 64 MiB."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # in this process: read by vLLM when the engine is made
    from vllm import LLM

    with tempfile.TemporaryDirectory() as folder:
        path = save_tiny_model(
            Path(folder), byte_tokenizer(), hidden_size=64, head_dim=64, max_position_embeddings=1024
        )
        engine = LLM(
            path, dtype="float32", enforce_eager=True, kv_cache_memory_bytes=2**26, enable_prefix_caching=True
        )
        cache = engine.llm_engine.vllm_config.cache_config
        computed = blocks_of_cache(
            2**26, 4 * shape_of(AutoConfig.from_pretrained(path)).kv_values, block=cache.block_size
        )
        yield "tokens of a KV cache of 64 MiB", computed, cache.num_gpu_blocks * cache.block_size


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--only", choices=("state", "passes", "cache"), help="one part")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: list[tuple[str, float, float]] = []
    if given.only in (None, "state"):
        for layout in ("shared", "lora", "full"):
            found += [(f"{layout}, {what}", *sizes) for what, *sizes in trained_bytes(layout)]
    if given.only in (None, "passes"):
        found += passes()
    if given.only == "cache" or (given.only is None and find_spec("vllm")):
        found += cache_tokens()
    print(f"{'':44}{'computed':>15}{'measured':>15}{'error':>9}")
    for what, computed, measured in found:
        print(f"{what:44}{computed:15,.0f}{measured:15,.0f}{computed / measured - 1:9.1%}")
    write(
        given.json,
        [
            Figure(name=f"estimate, {what}", unit="of measured", ours=(computed / measured,), better="neither")
            for what, computed, measured in found
        ],
    )


if __name__ == "__main__":
    main()
