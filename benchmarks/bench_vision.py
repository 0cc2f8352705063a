"""Seconds and memory of a training step of a random Qwen2.5-VL on pictures of 224 pixels, beside TRL's GRPOTrainer.

    PYTHONPATH=. python benchmarks/bench_vision.py                        # a tiny one, on a CPU
    PYTHONPATH=. python benchmarks/bench_vision.py --device cuda --size 3b --json vision.json

Both are shown the same pictures and texts, sample 64 completions of 16 prompts with `generate`, and train adapters on
them in one process, one trainer after the other. The first step is left out.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any


sys.path.insert(0, str(Path(__file__).parents[1] / "tests/trl"))

import torch
from datasets import Dataset
from figures import Figure, parser_of, write
from peft import LoraConfig
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from picture_books import PictureBook, as_image, drawn
from tiny_vlms import StillProcessor, qwen_processor


SIDE, PROMPTS, CANDIDATES = 224, 16, 4
TEXT: Mapping[str, dict[str, int]] = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
    "3b": {"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16},
}
TOWER: Mapping[str, dict[str, int]] = {
    "tiny": {"depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4},
    "3b": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16},
}
ASKED = "Which colour is the disc?"


class Pictures(PictureBook):
    """Shows one picture and a text."""

    def show(self, seed: int) -> Any:
        """A picture of its own in each instance."""
        return {"parts": [as_image(drawn(seed, (SIDE, SIDE))), ASKED]}


class Steps(TrainerCallback):
    """Seconds and peak bytes of each step."""

    def __init__(self, device: str) -> None:
        self.device, self.seconds, self.gigabytes = device, list[float](), list[float]()

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        self.began = time.perf_counter()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
            self.gigabytes.append(torch.cuda.max_memory_allocated() / 1e9)
        self.seconds.append(time.perf_counter() - self.began)


def make_model(size: str, device: str, processor: StillProcessor) -> Qwen2_5_VLForConditionalGeneration:
    """Random weights, the same every time: on a GPU in bfloat16."""
    of = processor.tokenizer.convert_tokens_to_ids
    ends = {"eos_token_id": of("<|im_end|>"), "pad_token_id": of("<|endoftext|>"), "bos_token_id": None}
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3] if size == "tiny" else [16, 24, 24]}
    vocabulary = len(processor.tokenizer) if size == "tiny" else 151_936
    text = {**TEXT[size], "vocab_size": vocabulary, "num_key_value_heads": 2, "rope_parameters": rope, **ends}
    out = TEXT[size]["hidden_size"]
    config = Qwen2_5_VLConfig(
        text_config=text,
        vision_config={**TOWER[size], "out_hidden_size": out, "fullatt_block_indexes": [TOWER[size]["depth"] - 1]},
        image_token_id=of("<|image_pad|>"),
        video_token_id=of("<|video_pad|>"),
        vision_start_token_id=of("<|vision_start|>"),
        vision_end_token_id=of("<|vision_end|>"),
        tie_word_embeddings=True,
        **ends,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen2_5_VLForConditionalGeneration(config)
    return model.to(torch.bfloat16) if device == "cuda" else model


def rewards(completions: Any, **_: Any) -> list[float]:
    """For TRL; differs among siblings."""
    return [float(len(set(each[0]["content"]))) for each in completions]


def measured(make: Callable[..., Any], arguments: Any, given: argparse.Namespace, **more: Any) -> Steps:
    """One trainer's steps."""
    processor = qwen_processor()
    processor.image_processor.size = {"shortest_edge": 4 * 28 * 28, "longest_edge": SIDE * SIDE}
    steps = Steps(given.device)
    with tempfile.TemporaryDirectory() as folder:
        args = arguments(
            output_dir=folder,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=PROMPTS * CANDIDATES // 8,
            num_generations=CANDIDATES,
            max_completion_length=given.length,
            max_steps=given.steps + 1,
            learning_rate=1e-5,
            bf16=given.device == "cuda",
            use_cpu=given.device == "cpu",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **({"shared_prefix": False} if arguments is MultiAgentGRPOConfig else {}),
        )
        trainer = make(
            model=make_model(given.size, given.device, processor),
            args=args,
            processing_class=processor,
            peft_config=LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"),
            callbacks=[steps],
            **more,
        )
        trainer.train()
    del trainer
    gc.collect()
    return steps


def main() -> None:
    """Run both and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--size", choices=TEXT, default="tiny")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--length", type=int, default=16, help="tokens of a completion, at most")
    parser.add_argument("--steps", type=int, default=3, help="steps that are counted")
    given = parser.parse_args()
    content = [{"type": "image"}, {"type": "text", "text": ASKED}]
    rows = [{"prompt": [{"role": "user", "content": content}], "images": [drawn(i, (SIDE, SIDE))]} for i in range(64)]
    theirs = measured(GRPOTrainer, GRPOConfig, given, train_dataset=Dataset.from_list(rows), reward_funcs=rewards)
    ours = measured(
        MultiAgentGRPOTrainer,
        MultiAgentGRPOConfig,
        given,
        train_dataset=Dataset.from_dict({"seed": range(64)}),
        env=Pictures,
    )
    found = []
    for name, unit, own, other in (
        ("a step", "s", ours.seconds[1:], theirs.seconds[1:]),
        ("peak memory", "GB", ours.gigabytes[1:], theirs.gigabytes[1:]),
    ):
        if own:
            print(f"{name}, Qwen2.5-VL {given.size}: {median(own):.2f} {unit}; TRL {median(other):.2f} {unit}")
            figure = {"unit": unit, "ours": tuple(own), "peer_name": "TRL GRPOTrainer", "peer": tuple(other)}
            found.append(Figure(name=f"{name} with pictures, Qwen2.5-VL {given.size}", **figure))
    write(given.json, found)


if __name__ == "__main__":
    main()
