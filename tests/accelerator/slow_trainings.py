"""The rest of the matrix, too slow for the default tests: what a run may have besides a layout.

`use_transformers_continuous_batching` is not among them: it needs streams, which the simulated device does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import Qwen3Config, Qwen3ForSequenceClassification
from trl import SFTConfig

import pettingllms_envs
from designed_runs import DESIGNS, M_BY_N, SIZE
from pettingllms_envs.agents.spec import AgentSpec
from pettingllms_envs.observations import Limits
from pettingllms_envs.programs import program
from pettingllms_envs.teams.designs import write_design
from pettingllms_trl import MultiAgentGRPOTrainer, Policy
from pettingllms_trl.byte_tokenizers import byte_tokenizer
from pettingllms_trl.cli.transformers_agents import open_transformers
from pettingllms_trl.policies.routing import route
from pettingllms_trl.records import Prompt
from pettingllms_trl.sft.demonstrations import Demonstration
from pettingllms_trl.sft.warm_up import warm_up
from picture_books import PictureBook
from short_runs import adapter, around_generation
from third_party import OneShot
from tiny_vlms import FAMILIES
from trainings import SAVED, Case, mixture, resumed
from twin_teams import PAIR, sequence


Again = Callable[[], MultiAgentGRPOTrainer]
SEEDS = Dataset.from_dict({"seed": range(100, 102)})
EVALUATED = {"eval_strategy": "steps", "eval_steps": 1}
UNPACKED = {"shared_prefix": False}
SHARED = {"policies": "shared", "has_adapters": False}
FULL = {"policies": "full", "has_adapters": False}


def frozen_partner(model: str) -> Mapping[str, Any]:
    return {"opener": Policy(model=model), "closer": Policy(model=model, trainable=False)}


def pictures(family: str, **options: Any) -> Case:
    make_processor, make_model = FAMILIES[family]
    processor = make_processor()

    def model(_: Path) -> Any:
        made = make_model(processor, initializer_range=0.1)
        made.set_attn_implementation("eager")
        return made

    given = {**UNPACKED, **options}
    return Case(env=PictureBook, model=model, more={"processing_class": processor}, options=given, **SHARED)


def designed(trainer: MultiAgentGRPOTrainer, again: Again) -> MultiAgentGRPOTrainer:
    """Replies are read as designs and moves; which one follows from what was sampled."""
    encode = trainer.processing_class
    end = [encode.eos_token_id]
    designs = [encode(write_design(design))["input_ids"] + end for design in DESIGNS]
    moves = [encode(f"Moves: {' '.join(letters)}")["input_ids"] + end for letters in ("UU", "DD", "LL", "RR", "DR")]

    def readable(prompts: Any, sample: Callable[[], Any]) -> Any:
        ids, logprobs, *rest = sample()
        replies = [designs if "You are the designer." in encode.decode(prompt) else moves for prompt in prompts]
        return ([known[sum(own) % len(known)] for known, own in zip(replies, ids, strict=True)], logprobs, *rest)

    around_generation(trainer, readable)
    trainer.train()
    return trainer


def played(trainer: MultiAgentGRPOTrainer, again: Again) -> MultiAgentGRPOTrainer:
    trainer.train()
    trainer.evaluate()
    assert len(trainer.play([{"seed": 3}], num_episodes=2)) == 2
    return trainer


def warmed_up(trainer: MultiAgentGRPOTrainer, again: Again) -> MultiAgentGRPOTrainer:
    """Warm adapters up by supervision and load them into the trainer, which takes a step from there."""
    folder = Path(trainer.args.output_dir)
    args = SFTConfig(
        str(folder / "sft"), max_steps=2, per_device_train_batch_size=2, optim="sgd", learning_rate=0.1, seed=1,
        report_to="none", save_strategy="no", disable_tqdm=True, bf16=False, use_cpu=trainer.args.use_cpu,
        gradient_checkpointing=False,
        model_init_kwargs={"attn_implementation": "eager", "dtype": "float32"},
    )  # fmt: skip
    said = {"opener": "Moves: U", "closer": "Moves: D"}
    shown = [
        Demonstration(role=role, prompt=Prompt([{"role": "user", "content": "?"}]), reply=reply, success=True)
        for role, reply in said.items()
    ]
    agents = [f"{role}_0" for role in said]
    found = warm_up(str(folder.parent / "model"), shown, route("lora", agents), args, peft_config=adapter())
    assert found.keys() == said.keys()
    for own in found.values():
        for file in own.glob("adapter_model.safetensors"):
            LEFT.append((trainer.args.use_cpu, file.read_bytes()))
    trainer.train()
    return trainer


LEFT: list[tuple[bool, bytes]] = []
"""Adapters that warm-ups have left, and whether on the CPU."""


def benchmarked(trainer: MultiAgentGRPOTrainer, again: Again) -> MultiAgentGRPOTrainer:
    """Replies of `transformers:MODEL` agents to two questions, which take the accelerator that is there."""
    trainer.train()
    spec = {
        "opener_0": AgentSpec("transformers", str(Path(trainer.args.output_dir).parent / "model"), {"max_tokens": 6})
    }
    models = open_transformers(spec, 2)
    try:
        for seed in range(2):
            question = Prompt([{"role": "user", "content": "?"}])
            asked = type("Asked", (), {"messages": question.messages, "seed": seed, "tools": (), "limits": Limits()})
            assert models.agents["opener_0"].reply(asked).text is not None
    finally:
        models.close()
    return trainer


def reward_model(folder: Path) -> Mapping[str, Any]:
    """A classifier of the same size as a reward function, beside what the environment pays."""
    torch.manual_seed(5)
    Qwen3ForSequenceClassification(Qwen3Config.from_pretrained(folder / "model", num_labels=1)).save_pretrained(
        folder / "reward"
    )
    byte_tokenizer().save_pretrained(folder / "reward")
    return {"reward_funcs": str(folder / "reward")}


SLOW: dict[str, Case] = {
    "L0": Case(env=OneShot, policies="shared", has_adapters=False),
    "L1": Case(policies="shared", has_adapters=False),
    "L3": Case(policies="full", has_adapters=False),
    "mixture": Case(policies=mixture),
    "conversation": Case(options={"history": "conversation"}),
    "save and resume": Case(policies=mixture, options=SAVED, run=resumed),
    "autocast": Case(options={"bf16": True}, most=None),
    "a frozen partner": Case(policies=frozen_partner, has_adapters=False),
    "unpacked rows": Case(
        options={"shared_prefix": False, "per_device_train_batch_size": 2, "generation_batch_size": 8}
    ),
    "a reference beside a full model": Case(options={"beta": 0.1}, **SHARED),
    "a reference below an adapter": Case(options={"beta": 0.1}),
    "references of several models": Case(options={"beta": 0.1}, **FULL),
    "moving references": Case(options={"beta": 0.1, "sync_ref_model": True, "ref_model_sync_steps": 1}, **FULL),
    "pictures, Gemma 3": pictures("gemma"),
    "pictures, Qwen2.5-VL": pictures("qwen"),
    "image gain": pictures("qwen", image_gain_steps=1),
    "designed teams": Case(
        env=partial(pettingllms_envs.make, "plan_path", workflow="designed", size=SIZE, max_members=2),
        options={name: value for name, value in M_BY_N.items() if name != "credit"},
        more={"credit": "counterfactual"},
        run=designed,
    ),
    "a program": Case(env=program(sequence, agents=PAIR), options={"sampling": "parallel"}, more={"credit": "grpo"}),
    "two iterations": Case(options={"num_iterations": 2, "max_steps": 4}),
    "two updates a generation": Case(options={"steps_per_generation": 2, "max_steps": 4}, **FULL),
    "gradient accumulation": Case(options={"gradient_accumulation_steps": 2}),
    "gradient checkpointing": Case(options={"gradient_checkpointing": True}),
    "adaptive entropy": Case(options={"use_adaptive_entropy": True}),
    "evaluation and play": Case(options=EVALUATED, more={"eval_dataset": SEEDS}, run=played),
    "the best model at the end": Case(
        options={
            **SAVED,
            **EVALUATED,
            "load_best_model_at_end": True,
            "metric_for_best_model": "eval_rollout/decisions",
            "greater_is_better": False,
        },
        more={"eval_dataset": SEEDS},
    ),
    "a reward model": Case(more=reward_model),
    "warm-up": Case(run=warmed_up),
    "a benchmark's agents": Case(run=benchmarked),
    "weights in bfloat16, L2": Case(dtype="bfloat16"),
    "weights in bfloat16, L3": Case(dtype="bfloat16", **FULL),
    "autocast, L3": Case(options={"bf16": True}, most=None, **FULL),
    "autocast, conversation, a reference": Case(
        options={"bf16": True, "history": "conversation", "beta": 0.1}, most=None
    ),
}
