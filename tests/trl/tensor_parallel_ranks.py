"""A program: one vLLM engine over as many processes as it is launched with; the first leaves its answers in a file.

torchrun --nproc_per_node 2 tensor_parallel_ranks.py MODEL OUT.pt
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from transformers import AutoModelForCausalLM, AutoTokenizer

from pettingllms_trl import MultiAgentGRPOConfig
from pettingllms_trl.engines.kinds import PromptCodec
from pettingllms_trl.engines.vllm.params import VllmParams
from pettingllms_trl.processes.tensor_parallel import tensor_parallel_group
from pettingllms_trl.records import Prompt, Request


TEAM = {"opener_0": "opener", "closer_0": "closer"}
PROMPTS = ("Go on.", "What follows?", "And then?", "Why?")
NUM_CANDIDATES = 3


def main(path: str, out: str) -> None:
    size = int(os.environ.get("WORLD_SIZE", "1"))
    args = MultiAgentGRPOConfig(
        str(Path(out).parent / "run"),
        use_cpu=True,
        bf16=False,
        report_to="none",
        max_completion_length=12,
        seed=3,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_max_model_length=512,
        vllm_tensor_parallel_size=size,
    )
    PartialState()
    tokenizer = AutoTokenizer.from_pretrained(path)
    torch.manual_seed(1)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(path), config, adapter_name="opener")
    model.add_adapter("closer", config)
    found = {
        "adapters": asked(engine(args, path, tokenizer, TEAM, model), model),
        "whole": asked(engine(args, path, tokenizer, dict.fromkeys(TEAM, "team"), None), other(path)),
    }
    if args.process_index == 0:
        torch.save(found, out)
    PartialState().wait_for_everyone()
    os._exit(0)  # engines of one process take the groups of one another along as they are collected


def engine(args: Any, path: str, tokenizer: Any, of_agent: dict[str, str], model: Any) -> Any:
    from pettingllms_trl.engines.vllm.colocated import ColocatedVllm, engine_arguments
    from pettingllms_trl.engines.vllm.tensor_parallel import TensorParallelVllm

    codec = PromptCodec(
        tokenize=lambda prompt: tokenizer.apply_chat_template(
            list(prompt.messages), add_generation_prompt=True, return_dict=False
        ),
        decode=lambda ids: tokenizer.decode(ids, skip_special_tokens=True),
    )
    arguments = {"model": path, "dtype": "float32", **engine_arguments(args), "kv_cache_memory_bytes": 2**27}
    options = {
        "of_agent": of_agent,
        "adapters": {name: model.peft_config[name] for name in ("opener", "closer")} if model else {},
        "params": VllmParams.of_config(args, dict.fromkeys(of_agent, codec)),
        "folder": Path(args.output_dir),
    }
    if args.world_size == 1:
        return ColocatedVllm(arguments, **options), None
    group = tensor_parallel_group(args, args.world_size)
    return TensorParallelVllm(arguments, group=group, **options), group


def other(path: str) -> Any:
    """A full model with other weights than those that the engine loaded."""
    model = AutoModelForCausalLM.from_pretrained(path)
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return model


def asked(made: tuple[Any, Any], model: Any) -> dict[str, Any]:
    """Answers, and the score of a text, by the weights of `model`, with requests that arrive between steps."""
    engine, group = made
    if hasattr(model, "peft_config"):
        for name in ("opener", "closer"):
            engine.load(name, get_peft_model_state_dict(model, adapter_name=name).items(), 1)
    else:
        engine.load("team", model.state_dict().items(), 1)
    answers: dict[int, Any] = {}
    with engine.rollout("test"):
        policy = "opener" if hasattr(model, "peft_config") else "team"
        (score,) = engine.score(policy, Prompt([], tuple(range(3, 40))))
        if group is None:
            play(engine, answers)
        else:
            with group.rollout():
                if group.is_leader:
                    play(engine, answers)
    return {
        "score": score.logprobs,
        "answers": {ticket: [(c.ids, c.logprobs) for c in sampled.completions] for ticket, sampled in answers.items()},
    }


def play(engine: Any, answers: dict[int, Any]) -> None:
    todo = [(ticket, agent, prompt) for ticket, prompt in enumerate(PROMPTS * 2) for agent in [[*TEAM][ticket % 2]]]
    steps = 0
    while len(answers) < len(PROMPTS * 2):
        if todo and steps % 3 == 0:
            ticket, agent, prompt = todo.pop()
            messages = [{"role": "user", "content": prompt}]
            engine.submit(ticket, Request(agent=agent, prompt=Prompt(messages), num_candidates=NUM_CANDIDATES))
        if engine.num_in_flight:
            answers.update(engine.step())
        steps += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
