"""Estimates several configurations in child processes: `python on_device.py estimates FILE`.

FILE has the arguments of each by its name, and is given what came of it. Each runs in a process of its own: trainers
that are still alive would count in the peaks of the next. `once` after FILE: of those whose steps take the same, one.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from children import in_child
from transformers import AutoConfig, AutoModelForCausalLM

from pettingllms_trl.cli import arguments, estimate
from pettingllms_trl.cli.datasets import makers
from pettingllms_trl.estimate.report import report
from pettingllms_trl.estimate.simulated_shapes import Work
from pettingllms_trl.estimate.stand_ins import put_on_device
from pettingllms_trl.policies.routing import route
from pettingllms_trl.rollout.env_checks import agents_of, make_envs
from pettingllms_trl.rollout.prompts import agents_with_history


COURSE = {
    "output_dir", "max_steps", "learning_rate", "lr_scheduler_type", "eval_strategy", "eval_steps", "do_eval",
    "num_generations_eval", "save_strategy", "save_steps", "save_total_limit", "log_completions",
    "num_completions_to_print", "chat_template_kwargs", "audit", "reward_parts", "crash_reward", "env_timeout",
    "num_threads", "max_resamples", "max_generated_tokens", "branch_at", "choose", "num_continuations",
}  # fmt: skip
"""Settings on which a step with made-up prompts and replies does not depend."""


def step_of(argv: list[str]) -> str:
    """Equal for runs whose steps take the same: they differ in their environments and in the settings above."""
    try:
        given, data, args, config = arguments.parse(argv, estimate.KINDS, prog="estimate", description="")
        arguments.import_packages(given.imports)
        estimate._rows_that_are_here(given, data)
        envs = {name: [env] for name, env in make_envs(makers(given)).items()}
        routing = route(given.policies, agents_of(envs), model=config.model_name_or_path)
    except (ValueError, TypeError, OSError, ImportError):
        return repr(argv)  # whose estimate says it
    set_to = {each.name: getattr(own, each.name) for own in (args, config) for each in fields(own)}
    names = [policy.name for policy in routing.policies]
    policies = [(each.adapter is None, each.model, each.api, each.trainable, each.beta) for each in routing.policies]
    talks = agents_with_history(args.history, [*routing.of_agent])
    return repr(
        (
            sorted((name, repr(value)) for name, value in set_to.items() if name not in COURSE),
            [names.index(name) for name in routing.of_agent.values()],
            policies,
            given.env_kwargs.get("num_turns") if talks else 1,
        )
    )


def outcome(device: Any, argv: list[str], folder: Path) -> dict[str, Any]:
    kept: list[Any] = []

    def kept_report(found: Any) -> str:
        kept.append(found)
        return report(found)

    try:
        with mock.patch.object(estimate, "report", kept_report):
            estimate.main(device, str(folder / "one.json"), *argv)
    except Exception:  # noqa: BLE001  # reported
        return {"problems": [traceback.format_exc()]}
    found: dict[str, Any] = json.loads((folder / "one.json").read_text("utf-8"))
    for each in kept:
        found |= {
            "memory": dict(each.memory),
            "seconds": dict(each.seconds),
            "state": asdict(each.state),
            "rate": each.trained_rate,
            "work": {name: asdict(phase.work) for name, phase in each.step.phases.items()},
            "held": [asdict(part) for part in each.step.held],
            "run": {
                name: getattr(each.run, name) for name in ("sampler", "sequences", "tensor_parallel", "pass_width")
            },
            "tokens": [engine.tokens for engine in each.engines],
        }
    return found


def operations(device: Any, folder: Path) -> float:
    """Of a forward and backward pass of 2 rows of 50 tokens."""
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    put_on_device(model, device)
    before = device.since(Work())
    ids = torch.zeros((2, 50), dtype=torch.long).to("mlu")
    model(input_ids=ids, use_cache=False).logits.sum().backward()
    return float(device.since(before).flops)


def main(device: Any, file: str, *once: str) -> None:
    path = Path(file)
    cases = json.loads(path.read_text("utf-8"))
    steps = {name: step_of(argv) if once else name for name, argv in cases.items()}
    any_of = {step: name for name, step in steps.items()}
    of_steps = {step: in_child(outcome, device, cases[name], path.parent) for step, name in any_of.items()}
    found: dict[str, Any] = {name: of_steps[step] for name, step in steps.items()}
    found["operations"] = {name: operations(device, path.parent / name) for name in ("qwen", "llama")}
    path.write_text(json.dumps(found), "utf-8")
