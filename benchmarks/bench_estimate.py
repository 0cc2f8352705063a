"""What `pettingllms train --estimate` says beside what can be measured without a GPU.

    PYTHONPATH=. python benchmarks/bench_estimate.py

* The peak of memory of an update: by shapes, and of the same update on the CPU as PyTorch's profiler counts what its
  allocator hands out, both with the head as a CPU runs it; and by how much the process grew, as the operating system
  counts it.
* Operations of a dense update beside 6ND and attention by hand.
* With `--only sizes` the update of Qwen3 of 0.6B, 1.7B and 8B in each layout, of one decision of each agent and of
  conversations, and TRL's `GRPOTrainer` beside it (minutes).
* Tokens of the KV cache as vLLM says it has them, where vLLM is installed (`--only cache`).

Each case runs in a process of its own, so that nothing is left of one in the next. On small models, in float32, with
the same made-up replies. What a GPU adds (a caching allocator, CUDA graphs, kernels' workspaces) is not in it.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from machine import process_memory

from pettingllms_trl.estimate.simulated_shapes import ShapesDevice


DEVICE = ShapesDevice.install()  # before transformers

import torch  # noqa: E402
from children import in_child  # noqa: E402
from datasets import Dataset  # noqa: E402
from figures import Figure, parser_of, write  # noqa: E402
from peft import LoraConfig  # noqa: E402
from qwen3 import QWEN3, save_qwen3  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen3Config, Trainer  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402
from trl.kernels import chunked_logprob  # noqa: E402

import pettingllms_envs  # noqa: E402
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer  # noqa: E402
from pettingllms_trl.estimate.memory import blocks_of_cache  # noqa: E402
from pettingllms_trl.estimate.simulated_shapes import Work  # noqa: E402
from pettingllms_trl.estimate.stand_ins import put_on_device, standing_in  # noqa: E402
from pettingllms_trl.estimate.step import Lengths, Phase, fill_optimizer, made_up, passes_over, run_step  # noqa: E402
from pettingllms_trl.testing import byte_tokenizer, save_tiny_model  # noqa: E402
from pettingllms_trl.update.packing import cost  # noqa: E402


WIDTH, LAYERS, VOCABULARY = 256, 4, 8192
SIZES = {"vocab_size": VOCABULARY, "eos_token_id": 1, "pad_token_id": 0, "bos_token_id": None}
PLAIN = {"hidden_size": WIDTH, "intermediate_size": 3 * WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
MODELS = {
    "Qwen3": Qwen3Config(**SIZES, **PLAIN, num_key_value_heads=2, head_dim=64, tie_word_embeddings=True),
    "Llama": LlamaConfig(**SIZES, **PLAIN, num_key_value_heads=4, tie_word_embeddings=False),
    "GPT-2": GPT2Config(
        **SIZES, n_embd=WIDTH, n_layer=LAYERS, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    ),
}
TILES = chunked_logprob._forward_tile, chunked_logprob._backward_tile
"""What TRL's head runs on a CPU."""
LAYOUTS = {"L1": "shared", "L2": "lora", "L3": "full"}
LENGTHS = Lengths(prompt=200)
COMPLETION, ROWS = 100, 4


def trainer_of(folder: str, layout: str, *, use_cpu: bool, checkpointing: bool) -> MultiAgentGRPOTrainer:
    """The trainer of a small model in the folder."""
    return MultiAgentGRPOTrainer(
        str(Path(folder, "model")),
        lambda: pettingllms_envs.make("plan_path", size=4, num_turns=1, workflow="draft_plan"),
        MultiAgentGRPOConfig(
            str(Path(folder, "out")),
            num_generations=4,
            per_device_train_batch_size=ROWS,
            gradient_accumulation_steps=2,
            max_completion_length=COMPLETION,
            max_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            gradient_checkpointing=checkpointing,
            use_cpu=use_cpu,
            bf16=False,
        ),
        Dataset.from_dict({"seed": range(8)}),
        policies=LAYOUTS[layout],
        peft_config=LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM") if layout == "L2" else None,
    )


def measured(trainer: MultiAgentGRPOTrainer) -> tuple[float, float]:
    """The most bytes that the allocator had handed out in an update, and by how many the process grew."""
    fill_optimizer(trainer)
    decisions = made_up(trainer, LENGTHS)
    trainer.prepare_generation = lambda rows: passes_over(trainer, decisions)
    tensors = [*trainer.model.parameters(), *trainer.model.buffers()]
    states = [each for state in trainer.optimizer.state.values() for each in state.values()]
    alive = sum(each.nbytes for each in {id(each): each for each in (*tensors, *states)}.values())
    Path("/proc/self/clear_refs").write_text("5")  # the most of the process begins anew
    before = process_memory("VmHWM")
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        trainer.train()
    events = [each for each in profiled.profiler.kineto_results.events() if each.name() == "[memory]"]
    most = now = 0
    for each in sorted(events, key=lambda event: event.start_ns()):
        now += each.nbytes()
        most = max(most, now)
    return alive + most, process_memory("VmHWM") - before


def updates(checkpointing: bool) -> Iterator[tuple[str, float, float]]:
    """What, simulated and measured bytes."""
    for name, layout in itertools.product(MODELS, LAYOUTS):
        most, counted, grown = in_child(update, name, layout, checkpointing)
        yield f"{name}, {layout}{', checkpoints' * checkpointing}", most, counted
        print(f"  the process grew by {grown / 1e6:.0f} MB", flush=True)


def update(name: str, layout: str, checkpointing: bool) -> tuple[float, float, float]:
    """The most bytes of an update on the simulated device and on the CPU, and by how many the process grew."""
    cost.TOKEN_PRICES = {"cpu": 8.0, "cuda": 8.0}  # prompts are shared in the same way on both
    with tempfile.TemporaryDirectory() as folder:
        AutoModelForCausalLM.from_config(MODELS[name]).save_pretrained(Path(folder, "model"))
        byte_tokenizer().save_pretrained(Path(folder, "model"))
        make = partial(trainer_of, folder, layout, checkpointing=checkpointing)

        def simulated() -> MultiAgentGRPOTrainer:
            chunked_logprob._forward_tile, chunked_logprob._backward_tile = TILES  # in the place of a GPU's kernels
            return make(use_cpu=False)

        step = run_step(simulated, DEVICE, lambda _: LENGTHS, samples=False)
        most = max(step.phases[phase].peak for phase in ("scoring", "backward", "optimizer step"))
        return most, *measured(make(use_cpu=True))


def operations(name: str) -> tuple[float, float]:
    """Simulated and hand-counted operations of a forward and backward pass of 8 rows of 512 tokens."""
    rows, length = 8, 512
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(MODELS[name])
    put_on_device(model, DEVICE)
    before = DEVICE.since(Work())
    ids = torch.zeros((rows, length), dtype=torch.long).to("mlu")
    model(input_ids=ids, use_cache=False).logits.float().sum().backward()
    products = sum(each.weight.numel() for each in model.modules() if isinstance(each, torch.nn.Linear))
    # Scores and their sums over values, forward, and two and a half as much backward.
    attention = 3.5 * 4 * LAYERS * rows * length**2 * 4 * MODELS[name].head_dim
    return DEVICE.since(before).flops, 6 * products * rows * length + attention


SHAPES = {
    "headline": ("--max_completion_length", "4096"),
    "six turns": ("--max_completion_length", "256", "--history", "conversation", "env_kwargs.num_turns=6"),
}
ADAPTER = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")


def sizes(chosen: Sequence[str]) -> list[Figure]:
    """Print peak memory and operations of an update, 8 rows a pass, which another GPU samples for, and of a pass of
    TRL's."""
    figures = []
    for size, layout, kind in itertools.product(chosen, LAYOUTS, SHAPES):
        phases, seconds = in_child(size_of, size, layout, kind)
        (peak, flops), scoring = [(phase.peak / 1e9, phase.work.flops / 1e12) for phase in phases]
        label, of_scoring = f"{size} {layout}, {kind}", f"scoring {scoring[0]:.2f} GB, {scoring[1]:,.0f} TFLOP"
        print(f"{label:28}{peak:7.2f} GB{flops:10,.0f} TFLOP; {of_scoring}; {seconds:.0f} s", flush=True)
        peer: dict[str, Any] = {}
        if kind == "headline" and layout != "L3" and size != "8B":
            of_peer, of_a_pass = in_child(of_trl, size, layout)
            print(f"{'  a pass of TRL':28}{of_peer / 1e9:7.2f} GB{of_a_pass / 1e12:10,.0f} TFLOP", flush=True)
            peer = {"peer_name": "a pass of TRL's GRPOTrainer", "peer": (of_peer / 1e9,)}
        figures += [
            Figure(name=f"estimate, peak of {label}", unit="GB", ours=(peak,), better="neither", **peer),
            Figure(name=f"estimate, operations of {label}", unit="TFLOP", ours=(flops,), better="neither"),
        ]
    return figures


def size_of(size: str, layout: str, kind: str) -> tuple[list[Phase], float]:
    """The backward passes and the scoring of a generation, and the CPU seconds of their estimate."""
    from pettingllms_trl.cli.estimate import estimated

    file = Path(__file__).parents[1] / "examples" / "configs" / f"plan_path_{layout}_1.7B.yaml"
    with tempfile.TemporaryDirectory() as folder:
        save_qwen3(size, folder)
        argv = ("--config", str(file), "--model_name_or_path", folder, "--use_vllm", "true", "--vllm_mode", "colocate")
        began = time.process_time()
        phases = estimated(DEVICE, (*argv, *SHAPES[kind])).step.phases
    return [phases["backward"], phases["scoring"]], time.process_time() - began


def of_trl(size: str, layout: str) -> tuple[float, float]:
    """Bytes at the peak of a pass of TRL's own trainer, of 8 rows of the headline's lengths, and its operations."""
    kept: dict[str, Any] = {}
    loss, step = GRPOTrainer._compute_loss, Trainer.training_step

    def compute_loss(*args: Any, **kwargs: Any) -> Any:
        DEVICE.peak, kept["before"] = DEVICE.now, DEVICE.since(Work())
        return loss(*args, **kwargs)

    with tempfile.TemporaryDirectory() as folder, standing_in(DEVICE, lambda said: None, nullcontext):
        save_qwen3(size, folder)
        args = GRPOConfig(
            str(Path(folder, "out")), num_generations=4, per_device_train_batch_size=8, max_completion_length=4096,
            max_steps=1, save_strategy="no", report_to="none", disable_tqdm=True, bf16=True, logging_strategy="no",
            model_init_kwargs={"dtype": "bfloat16" if layout == "L2" else "float32"},
        )  # fmt: skip
        trainer = GRPOTrainer(
            folder, [lambda completions, **_: [float(i % 2) for i in range(len(completions))]], args,
            Dataset.from_dict({"prompt": ["x" * 500] * 8}), processing_class=byte_tokenizer(),
            peft_config=ADAPTER if layout == "L2" else None,
        )  # fmt: skip
        fill_optimizer(trainer)
        with (
            mock.patch.object(GRPOTrainer, "_compute_loss", compute_loss),
            mock.patch.object(Trainer, "training_step", step),
        ):
            trainer.train()
    return DEVICE.peak, DEVICE.since(kept["before"]).flops


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
        config = AutoConfig.from_pretrained(path)
        values = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
        computed = blocks_of_cache(2**26, 4 * values, block=cache.block_size)
        yield "tokens of a KV cache of 64 MiB", computed, cache.num_gpu_blocks * cache.block_size


def main() -> None:
    """Compare and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", choices=("updates", "operations", "sizes", "cache"), help="one part")
    parser.add_argument("--sizes", nargs="+", choices=QWEN3, default=["0.6B", "1.7B", "8B"], help="of --only sizes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if given.only == "sizes":
        write(given.json, sizes(given.sizes))
        return
    found: list[tuple[str, float, float]] = []
    if given.only in (None, "operations"):
        found += [(f"{name}, operations", *in_child(operations, name)) for name in ("Qwen3", "Llama")]
    if given.only in (None, "updates"):
        found += [*updates(checkpointing=False), *updates(checkpointing=True)]
    if given.only == "cache":
        found += cache_tokens()
    print(f"{'':40}{'estimate':>17}{'measured':>17}{'error':>9}")
    for what, computed, counted in found:
        print(f"{what:40}{computed:17,.0f}{counted:17,.0f}{computed / counted - 1:9.1%}")
    write(
        given.json,
        [
            Figure(name=f"estimate, {what}", unit="of measured", ours=(computed / counted,), better="neither")
            for what, computed, counted in found
        ],
    )


if __name__ == "__main__":
    main()
