"""The update beside TRL's: loss and gradients of the same decisions, each prompt read once or for every candidate.

    PYTHONPATH=. python benchmarks/bench_update.py [--memory] [--ways] [--json update.json] [--strict]
    PYTHONPATH=. python benchmarks/bench_update.py --flat --shapes 64x16x8
    PYTHONPATH=. python benchmarks/bench_update.py --tree 6x512x200x64x8 --rounds 3 --memory [--no-history]
    PYTHONPATH=. python benchmarks/bench_update.py --fit 30
    PYTHONPATH=. python benchmarks/bench_update.py --device cuda --dtype bfloat16 --model qwen3-0.6b \
        --shapes 1024x128x8

A shape is PxCxK: one decision, a prompt of P tokens and K candidates of C tokens each. A tree is TxPxOxCxK: a
conversation of T turns, with O tokens observed between two (`conversation_updates.py`). Both trainers have the same
random weights and are given the same batch, TRL's in the micro-batches of 8, 4, 2 or 1 rows that are fastest. A round
is `_compute_loss` and its backward of one, then of the other, in one process. What is compared is the median of the
rounds' ratios, with their range and, from a bootstrap over rounds, its 95% interval. Gradients are compared, too.
Seconds are the processor's on a CPU (one thread), the clock's on a GPU. Weights are random: no network.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from conversation_updates import (
    ROWS,
    SIDES,
    Amount,
    Tree,
    amounts_of,
    batches_of,
    cost_of_updates,
    fit,
    packed_as,
)
from datasets import Dataset
from figures import Figure, parser_of, write
from flat_groups import Shape, compare_flat
from machine import process_memory
from prompt_ways import compare_ways, figures_of, speeds, ways
from tokenizer_of_two import two_words
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

import pettingllms_envs
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.update.packing.cost import Way, token_price_of


GOALS: Mapping[Shape, tuple[float, float | None]] = {
    Shape(512, 64, 8): (3.5, 2.5),
    Shape(1024, 64, 8): (4.5, 2.5),
    Shape(64, 512, 8): (1.0, None),
}
"""Of the 25M model on a CPU: how many times TRL's speed, and how many times less memory."""
USUAL = (Shape(300, 128, 4), Shape(300, 512, 4), Shape(1000, 128, 4), Shape(1000, 512, 4))
"""Without goals: what decisions of the shipped configurations have, K = 4."""
MICRO_BATCHES = (8, 4, 2, 1)
"""Rows of a pass of TRL's, of which the fastest is compared with."""

MODELS: Mapping[str, dict[str, int]] = {
    "25M": {
        "vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 7,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
    },
    "0.4M": {
        "vocab_size": 2000, "hidden_size": 96, "intermediate_size": 288, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 6, "head_dim": 16,
    },
    "qwen3-0.6b": {
        "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    },
    "qwen3-1.7b": {
        "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setting:
    """What is the same for all that is compared."""

    model: str
    device: str
    dtype: torch.dtype
    checkpointing: bool
    attention: str

    def now(self) -> float:
        """Seconds; on a GPU, when all that was given to it is done."""
        if self.device == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    def make_model(self) -> PreTrainedModel:
        """The same weights each time."""
        torch.manual_seed(0)
        config = Qwen3Config(
            **MODELS[self.model],
            max_position_embeddings=16384,
            tie_word_embeddings=True,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
            attn_implementation=self.attention,
        )
        with torch.device(self.device):
            model: PreTrainedModel = Qwen3ForCausalLM(config)
        return model.to(self.dtype)

    def arguments(self, folder: str) -> dict[str, Any]:
        """Of both trainers."""
        return {
            "output_dir": folder,
            "num_generations": 8,
            "per_device_train_batch_size": 8,
            "beta": 0.0,
            "report_to": "none",
            "bf16": False,
            "use_cpu": self.device == "cpu",
            "gradient_checkpointing": self.checkpointing,
        }


Update = Callable[[Mapping[str, Any]], torch.Tensor]
"""A batch to its loss, whose gradients are then in the model."""


def of_trl(setting: Setting, folder: str) -> tuple[Update, PreTrainedModel]:
    """`GRPOTrainer`'s own."""
    model = setting.make_model()
    trainer = GRPOTrainer(
        model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(**setting.arguments(folder)),
        train_dataset=Dataset.from_dict({"prompt": ["any"]}),
        processing_class=two_words(),
    )
    return _update(trainer, model, lambda: nullcontext()), model


def of_ours(setting: Setting, folder: str) -> tuple[Update, PreTrainedModel]:
    """Ours, with prompts shared."""
    trainer, model = our_trainer(setting, folder)
    return _update(trainer, model, lambda: trainer.scorer.attending("base")), model


def our_trainer(setting: Setting, folder: str) -> tuple[MultiAgentGRPOTrainer, PreTrainedModel]:
    """With prompts shared."""
    model = setting.make_model()
    trainer = MultiAgentGRPOTrainer(
        model,
        lambda: pettingllms_envs.make("plan_path"),
        MultiAgentGRPOConfig(**setting.arguments(folder)),
        Dataset.from_dict({"seed": [0]}),
        processing_class=two_words(),
    )
    if not trainer.scorer.is_packable("base"):
        raise RuntimeError("the model does not share prompts; expected it to, or there is nothing to compare")
    return trainer, model


def _update(
    trainer: GRPOTrainer, model: PreTrainedModel, inside: Callable[[], AbstractContextManager[None]]
) -> Update:
    trainer.current_gradient_accumulation_steps = 1
    model.train()

    def update(batch: Mapping[str, Any]) -> torch.Tensor:
        with inside():
            loss = trainer._compute_loss(model, dict(batch))
            loss.backward()
        return loss.detach()

    return update


def in_micro_batches(update: Update, rows: int) -> Update:
    """The same loss and gradients, a pass for each `rows` rows."""

    def parted(batch: Mapping[str, Any]) -> torch.Tensor:
        number = len(batch["advantages"])
        losses = [
            update({name: _rows_of(value, number, slice(first, first + rows)) for name, value in batch.items()})
            for first in range(0, number, rows)
        ]
        return torch.stack(losses).sum()

    return parted


def _rows_of(value: Any, number: int, rows: slice) -> Any:
    return value[rows] if isinstance(value, torch.Tensor) and value.ndim and len(value) == number else value


def fastest_micro_batch(setting: Setting, update: Update, model: PreTrainedModel, batch: Mapping[str, Any]) -> int:
    """Rows of the passes in which an update is fastest, the second time each; the fewest if there is no room."""
    seconds: dict[int, float] = {}
    for rows in (each for each in MICRO_BATCHES if each <= len(batch["advantages"])):
        for _ in range(2):
            model.zero_grad(set_to_none=False)
            began = setting.now()
            if _has_room(in_micro_batches(update, rows), batch):
                seconds[rows] = setting.now() - began
    return min(seconds, key=seconds.__getitem__, default=MICRO_BATCHES[-1])


def make_batch(setting: Setting, shape: Shape) -> dict[str, Any]:
    """One decision's rows, with all that either trainer reads."""
    generator = torch.Generator().manual_seed(1)
    vocabulary = MODELS[setting.model]["vocab_size"]
    prompt = torch.randint(2, vocabulary, (1, shape.prompt), generator=generator)
    completions = torch.randint(2, vocabulary, (shape.candidates, shape.completion), generator=generator)
    prompts = prompt.repeat(shape.candidates, 1)
    num_tokens = completions.numel()
    tensors = {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": completions,
        "completion_mask": torch.ones_like(completions),
        "advantages": torch.linspace(-1, 1, shape.candidates),
        "num_items_in_batch": torch.tensor(num_tokens),
    }
    ours = {"policy": "base", "loss_scale": 1.0, "entropy_scale": 1.0, "num_tokens": num_tokens}
    return {**{name: value.to(setting.device) for name, value in tensors.items()}, **ours}


def flops(setting: Setting, shape: Shape, *, is_shared: bool) -> float:
    """Multiplications and additions of a forward and backward pass, layers computed anew by checkpoints included."""
    prompt, own, number = shape.prompt, shape.completion, shape.candidates
    if is_shared:
        tokens = prompt + number * own
        pairs = prompt**2 / 2 + number * (prompt * own + own**2 / 2)
    else:
        tokens = number * (prompt + own)
        pairs = number * (prompt + own) ** 2 / 2
    return flops_of(setting, Amount(tokens, pairs, number * own))


def flops_of(setting: Setting, amount: Amount) -> float:
    """The same of any tokens, pairs of query and key, and tokens that are scored."""
    of = MODELS[setting.model]
    width, heads, head = of["hidden_size"], of["num_attention_heads"], of["head_dim"]
    per_layer = width * head * 2 * (heads + of["num_key_value_heads"]) + 3 * width * of["intermediate_size"]
    layers = of["num_hidden_layers"] * (2 * per_layer * amount.tokens + 4 * heads * head * amount.pairs)
    return (4 if setting.checkpointing else 3) * layers + 3 * 2 * of["vocab_size"] * width * amount.scored


def matrix_rate(setting: Setting) -> float:
    """FLOP a second of a large matrix product."""
    size = 1024 if setting.device == "cpu" else 8192
    a, b = (torch.randn(size, size, device=setting.device, dtype=setting.dtype) for _ in range(2))
    rates = []
    for _ in range(6):
        began = setting.now()
        _ = a @ b
        rates.append(2 * size**3 / (setting.now() - began))
    return max(rates)


def compare(setting: Setting, shape: Shape, rounds: int) -> dict[str, Any]:
    """Rounds of both, in turn, after one that is not counted. What a GPU has no room for has no seconds."""
    batch = make_batch(setting, shape)
    with tempfile.TemporaryDirectory() as folder:
        theirs, model = of_trl(setting, folder)
        rows = fastest_micro_batch(setting, theirs, model, batch)
        runs = {"trl": (in_micro_batches(theirs, rows), model), "ours": of_ours(setting, folder)}
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds + 1):
            for name, (update, model) in [*runs.items()]:
                model.zero_grad(set_to_none=False)
                began = setting.now()
                if _has_room(update, batch):
                    seconds[name].append(setting.now() - began)
                else:
                    del runs[name]
                    seconds[name].clear()
        error = math.nan
        if len(runs) == 2:
            pairs = zip(*(model.parameters() for _, model in runs.values()), strict=True)
            error = max(float((b.grad - a.grad).norm() / a.grad.norm()) for a, b in pairs)
    rate = matrix_rate(setting)
    counted = {name: tuple(each[1:]) for name, each in seconds.items()}
    return summarized(setting, shape, counted, rate) | {"gradient_error": error, "rows": rows}


def _has_room(update: Update, batch: Mapping[str, Any]) -> bool:
    try:
        update(batch)
    except torch.OutOfMemoryError:
        return False
    return True


def interval_of(ratios: Sequence[float]) -> tuple[float, float]:
    """95% interval of the median of rounds' ratios: percentiles of a bootstrap over rounds."""
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def summarized(
    setting: Setting, shape: Shape, seconds: Mapping[str, tuple[float, ...]], rate: float
) -> dict[str, Any]:
    """Medians of the rounds and of their ratios, not a number where there are none; and what share of the rate of
    matrix products ours has, round by round."""
    ratios = [a / b for a, b in zip(seconds["trl"], seconds["ours"], strict=False)] or [math.nan]
    work = flops(setting, shape, is_shared=True)
    shares = tuple(work / each / rate for each in seconds["ours"])
    return {
        "shape": str(shape),
        **{name: statistics.median(each or [math.nan]) for name, each in seconds.items()},
        "seconds": seconds,
        "ratio": statistics.median(ratios),
        "interval": interval_of(ratios),
        "least": min(ratios),
        "most": max(ratios),
        "bound": flops(setting, shape, is_shared=False) / work,
        "of_matrix_rate": statistics.median(shares or [math.nan]),
        "shares": shares,
        "matrix_rate": rate,
    }


def peak(setting: Setting, shape: Shape | Tree, which: str, rows: int = ROWS) -> int | None:
    """Bytes that an update takes above its model and gradients; `None` where the GPU has not so many. On a CPU in a
    process of its own, whose peak it is.

    Args:
        rows: Of a pass of TRL's, if it is the one, and the shape is not a tree.
    """
    with tempfile.TemporaryDirectory() as folder:
        update, model = (of_trl if which == "trl" else of_ours)(setting, folder)
    if isinstance(shape, Tree):
        (batch, *_), way = _of_side(setting, shape, which)[0][-1:], SIDES[which]
        update = packed_as(way)(update)
    else:
        batch = make_batch(setting, shape)
        update = in_micro_batches(update, rows) if which == "trl" else update
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    small = make_batch(setting, Shape(4, 4, 2))
    update(small)  # what is allocated once
    if setting.device == "cpu":
        before = process_memory("VmRSS")
        update(batch)
        return process_memory("VmHWM") - before
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    return torch.cuda.max_memory_allocated() - before if _has_room(update, batch) else None


def peaks(setting: Setting, given: argparse.Namespace, shape: Shape | Tree, rows: int = ROWS) -> dict[str, int]:
    """Of all, on a CPU each measured in a process of its own; without one for which there was no room."""
    found = {}
    for which in SIDES if isinstance(shape, Tree) else ("trl", "ours"):
        if given.device == "cuda":
            gc.collect()
            if (taken := peak(setting, shape, which, rows)) is not None:
                found[which] = taken
            continue
        command = [sys.executable, __file__, "--peak", which, "--rows", str(rows)]
        command += ["--tree" if isinstance(shape, Tree) else "--shapes", shape.text]
        command += ["--device", given.device, "--dtype", given.dtype, "--model", given.model]
        command += ["--attention", given.attention, *(["--checkpointing"] if given.checkpointing else [])]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ}).stdout
        if (last := shown.split()[-1]) != "None":
            found[which] = int(last)
    return found


def _of_side(setting: Setting, tree: Tree, which: str) -> tuple[list[dict[str, Any]], Way | None]:
    """The batches of TRL's rows, or all in one, and how that is packed."""
    rows_each = ROWS if which == "trl" else tree.turns * tree.candidates
    return batches_of(tree, MODELS[setting.model]["vocab_size"], setting.device, rows_each), SIDES[which]


def compare_tree(setting: Setting, tree: Tree, rounds: int) -> dict[str, Any]:
    """Rounds of TRL's rows, of each prompt once, and of the conversation once, in turn, after one not counted."""
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = of_trl(setting, folder), of_ours(setting, folder)
    seconds: dict[str, list[float]] = {which: [] for which in SIDES}
    gradients: dict[str, list[torch.Tensor]] = {}
    sides = {which: _of_side(setting, tree, which) for which in SIDES}
    for number in range(rounds + 1):
        for which, (batches, way) in [*sides.items()]:
            update, model = theirs if which == "trl" else ours
            model.zero_grad(set_to_none=False)
            began = setting.now()
            with packed_as(way):
                has_room = all(_has_room(update, batch) for batch in batches)
            if not has_room:
                del sides[which]
                seconds[which].clear()
            elif number:
                seconds[which].append(setting.now() - began)
            else:
                gradients[which] = [parameter.grad.clone() for parameter in model.parameters()]
    expected = gradients.get("trl", gradients["conversations"])
    amounts = amounts_of(tree)
    work = flops_of(setting, amounts["conversations"]) / matrix_rate(setting)
    return {
        "seconds": {which: tuple(each) for which, each in seconds.items()},
        "amounts": amounts,
        "errors": {
            which: max(float((a - b).norm() / b.norm()) for a, b in zip(own, expected, strict=True))
            for which, own in gradients.items()
        },
        "shares": tuple(work / each for each in seconds["conversations"]),
    }


def report_tree(setting: Setting, tree: Tree, found: dict[str, Any], taken: Mapping[str, int]) -> list[Figure]:
    """Print how much faster than each of the others a conversation is, beside tokens and operations. Its figures."""
    where = f"{tree}, {setting.model}, {str(setting.dtype).removeprefix('torch.')}, {setting.device}"
    where += ", checkpointing" if setting.checkpointing else ""
    own, amounts, seconds = "conversations", found["amounts"], found["seconds"]
    updates = cost_of_updates(tree, token_price_of(setting.device, MODELS[setting.model]["hidden_size"]))
    print(
        f"{where}: {statistics.median(seconds[own] or [math.nan]):.2f} s, {amounts[own].tokens} tokens,"
        f" {statistics.median(found['shares'] or [math.nan]):.0%} of the matrix product's rate"
    )
    print("  tokens read in 2 and 4 updates a generation: " + ", ".join(f"{updates[n]:.2f}x" for n in (2, 4)))
    figures = []
    for which, name in (("trl", "TRL GRPOTrainer"), ("prompts", "each prompt once")):
        ratios = [a / b for a, b in zip(seconds[which], seconds[own], strict=False)] or [math.nan]
        tokens = amounts[which].tokens / amounts[own].tokens
        operations = flops_of(setting, amounts[which]) / flops_of(setting, amounts[own])
        side = own if which == "trl" else which  # whose gradients are compared with TRL's
        goal = (0.85 if which == "prompts" else 0.7) * min(tokens, operations)
        less = taken[which] / taken[own] if {which, own} <= taken.keys() else math.nan
        low, high = interval_of(ratios)
        print(
            f"  beside {name}: {statistics.median(ratios):.2f}x [{low:.2f}, {high:.2f}]"
            f" ({min(ratios):.2f}-{max(ratios):.2f}),"
            f" goal {goal:.2f}x; tokens {tokens:.2f}x ({amounts[which].tokens}), operations {operations:.2f}x,"
            f" memory {less:.2f}x less, gradients {found['errors'].get(side, math.nan):.0e}",
            flush=True,
        )
        absent = _without_room({which: seconds[which], "ours": seconds[own]})
        name_of_figure = f"update of a whole conversation beside {name}, {where}"
        peer = () if absent else seconds[which]
        figures.append(
            Figure(name=name_of_figure, unit="s", ours=seconds[own], peer_name=name, peer=peer, absent=absent)
        )
    return figures


def seconds_of_ways(setting: Setting, shape: Shape, rounds: int) -> dict[str, tuple[float, ...]]:
    """Of each way to share a prompt. Flex attention on a GPU only: torch has no backward pass of it on a CPU."""
    with tempfile.TemporaryDirectory() as folder:
        _, model = of_ours(setting, folder)
    batch = make_batch(setting, shape)
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    compared = ways(checkpointing=setting.checkpointing, has_flex=setting.device != "cpu")
    return compare_ways(model, ids, shape, rounds=rounds, now=setting.now, compared=compared)


def report(setting: Setting, found: dict[str, Any], goal: tuple[float, float | None] | None) -> bool:
    """Print a row. Returns whether its goals are met."""
    speed, memory = goal or (None, None)
    is_met = (speed is None or found["ratio"] >= speed) and (memory is None or found.get("memory", memory) >= memory)
    less = f"{found['memory']:6.2f}x" if "memory" in found else "      -"
    verdict = (
        "" if goal is None else f"  goal {speed}x{f', {memory}x' if memory else ''}: {'met' if is_met else 'MISSED'}"
    )
    print(
        f"{found['shape']:22s}{found['trl']:9.3f}{found['ours']:9.3f}{found['ratio']:8.2f}x"
        f" [{found['interval'][0]:.2f}, {found['interval'][1]:.2f}]"
        f" ({found['least']:.2f}-{found['most']:.2f}){found['bound']:8.2f}x{found['of_matrix_rate']:9.1%}"
        f"{found['gradient_error']:10.0e}{less}{found['rows']:5d}{verdict}",
        flush=True,
    )
    return is_met


def to_save(setting: Setting, found: dict[str, Any], goal: tuple[float, float | None] | None) -> list[Figure]:
    """A row's figures."""
    checkpointing = ", checkpointing" if setting.checkpointing else ""
    attention = "" if setting.attention == "sdpa" else f", {setting.attention}"
    where = f"{setting.model}, {str(setting.dtype).removeprefix('torch.')}, {setting.device}{checkpointing}{attention}"
    name, peer = f"{found['shape']}, {where}", "TRL GRPOTrainer"
    speed, memory = goal or (None, None)
    sides = found["seconds"]
    saved = [
        Figure(
            name=f"update, {name}",
            unit="s",
            ours=sides["ours"],
            peer_name=peer,
            peer=sides["trl"] if sides["ours"] else (),
            goal="" if speed is None else f">= {speed}x",
            met=None if speed is None else found["ratio"] >= speed,
            absent=_without_room(sides),
        ),
        Figure(
            name=f"update's share of the rate of matrix products, {name}",
            unit="%",
            ours=tuple(100 * share for share in found["shares"]),
            better="neither",
        ),
        Figure(
            name=f"rows of TRL's fastest passes, {name}", unit="rows", ours=(float(found["rows"]),), better="neither"
        ),
        Figure(  # at every shape again: its rounds
            name=f"a matrix product, {str(setting.dtype).removeprefix('torch.')}, {setting.device}",
            unit="TFLOP/s",
            ours=(found["matrix_rate"] / 1e12,),
            better="neither",
        ),
    ]
    if not math.isnan(found["gradient_error"]):
        ours = (found["gradient_error"],)
        saved.append(Figure(name=f"gradients' difference, {name}", unit="", ours=ours, better="neither"))
    if "memory" in found:
        bytes_of = {
            which: (found["peak"][which] / 1e6,) if which in found["peak"] else () for which in ("ours", "trl")
        }
        saved.append(
            Figure(
                name=f"update's peak memory, {name}",
                unit="MB",
                ours=bytes_of["ours"],
                peer_name=peer,
                peer=bytes_of["trl"] if bytes_of["ours"] else (),
                goal="" if memory is None else f">= {memory}x",
                met=None if memory is None else found["memory"] >= memory,
                absent=_without_room(bytes_of),
            )
        )
    return saved + (figures_of(found["ways"], name) if "ways" in found else [])


def _without_room(measured: Mapping[str, Sequence[float]]) -> str:
    names = [
        {"trl": "TRL", "ours": "ours", "prompts": "each prompt once"}[which]
        for which, values in measured.items()
        if not values
    ]
    return f"the GPU has no room for {' and '.join(names)}" if names else ""


def compile_for_every_shape() -> None:
    """Let torch compile flex attention as often as it needs, and raise an error instead of the slow way, which makes
    all scores of a layer, once it has compiled too often."""
    torch._dynamo.config.recompile_limit = 64
    torch._dynamo.config.fail_on_recompile_limit_hit = True


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(__doc__, is_strict=True)
    parser.add_argument("--model", choices=MODELS, default="25M")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--attention", default="sdpa", help="TRL's: sdpa, flex_attention, ...")
    parser.add_argument("--checkpointing", action="store_true", help="gradient checkpointing, in both")
    parser.add_argument("--shapes", nargs="+", type=Shape.parse, default=[*GOALS, *USUAL], metavar="PxCxK")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tree", nargs="+", type=Tree.parse, metavar="TxPxOxCxK", help="whole conversations instead")
    parser.add_argument("--no-history", action="store_true", help="prompts of a tree stand for themselves")
    parser.add_argument("--fit", type=int, metavar="N", help="the price of a token, from N passes of any lengths")
    parser.add_argument("--seed", type=int, default=1, help="of these passes")
    parser.add_argument("--memory", action="store_true", help="peak memory, too, in processes of their own")
    parser.add_argument("--ways", action="store_true", help="other ways to share a prompt, too")
    parser.add_argument("--flat", action="store_true", help="a generation of which some groups have no advantage")
    parser.add_argument("--rows", type=int, default=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--peak", choices=("ours", *SIDES), help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare and print."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.attention == "flex_attention" and given.device == "cpu":
        parser.error(
            "--attention flex_attention on a CPU, where torch has no backward pass of it; expected --device cuda"
        )
    if given.device == "cpu":
        torch.set_num_threads(1)
    else:
        compile_for_every_shape()
    setting = Setting(given.model, given.device, getattr(torch, given.dtype), given.checkpointing, given.attention)
    trees = [replace(tree, has_history=not given.no_history) for tree in given.tree or ()]
    if given.peak:
        print(peak(setting, [*trees, *given.shapes][0], given.peak, given.rows))
        return
    print(f"{given.model}, {given.device}, {given.dtype}, checkpointing {'on' if given.checkpointing else 'off'}")
    if given.flat:
        with tempfile.TemporaryDirectory() as folder:
            trainer, model = our_trainer(setting, folder)
        vocabulary = MODELS[given.model]["vocab_size"]
        write(given.json, compare_flat(trainer, model, given.shapes[0], vocabulary, given.rounds, setting.now))
        return
    if given.fit:
        with tempfile.TemporaryDirectory() as folder:
            _, model = of_ours(setting, folder)
        fit(model, MODELS[given.model], given.fit, given.rounds, setting.now, seed=given.seed)
        return
    figures = list[Figure]()
    if trees:
        for tree in trees:
            found = compare_tree(setting, tree, given.rounds)
            figures += report_tree(setting, tree, found, peaks(setting, given, tree) if given.memory else {})
        write(given.json, figures)
        return
    all_met = _compare_shapes(setting, given, figures)
    write(given.json, figures)
    if given.strict and not all_met:
        raise SystemExit("a goal is missed")


def _compare_shapes(setting: Setting, given: argparse.Namespace, figures: list[Figure]) -> bool:
    """Print each shape, and add its figures. Whether all goals are met."""
    print(
        f"{'':22s}{'TRL s':>9s}{'ours s':>9s}{'faster':>33s}{'bound':>11s}{'of peak':>9s}{'grad err':>10s}"
        f"{'less':>7s}{'rows':>5s}"
    )
    all_met = True
    for shape in given.shapes:
        found = compare(setting, shape, given.rounds)
        if given.memory:
            taken = peaks(setting, given, shape, found["rows"])
            found |= {"peak": taken, "memory": taken["trl"] / taken["ours"] if len(taken) == 2 else math.nan}
        has_goal = given.model == "25M" and given.device == "cpu"
        goal = GOALS.get(shape) if has_goal else None
        all_met &= report(setting, found, goal)
        if given.ways:
            found["ways"] = seconds_of_ways(setting, shape, given.rounds)
            print("    " + ", ".join(f"{n} {ratio:.2f}x" for n, ratio in speeds(found["ways"]).items()), flush=True)
        figures += to_save(setting, found, goal)
    return all_met


if __name__ == "__main__":
    main()
