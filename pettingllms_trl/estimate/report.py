"""The text of an estimate."""

from __future__ import annotations

from pettingllms_trl.estimate.planning import Estimate
from pettingllms_trl.estimate.runs import ModelPlan, RunPlan
from pettingllms_trl.estimate.speed import COMPLETION, PROMPT


def report(found: Estimate) -> str:
    """Memory by phase, then speed, as lines for a terminal."""
    plan = found.plan
    of_several = f"group of {plan.tensor_parallel} processes" if plan.tensor_parallel > 1 else ""
    lines = [
        f"Computed, not measured: {plan.num_gpus} x {plan.gpu.name} of {_gb(plan.gpu.memory)} GB, {plan.sharding}.",
        *(["For 1 GPU; give --num_gpus (and --sharding) for several."] if plan.num_gpus == 1 else []),
        *(_model_line(model) for model in plan.models),
        "",
        f"{'GB on each GPU of the trainer':<38}{'update':>9}{'rollout':>9}",
    ]
    for name in dict.fromkeys((*found.update, *found.rollout)):
        sizes = found.update.get(name, 0.0), found.rollout.get(name, 0.0)
        if any(sizes):
            lines.append(f"  {name:<36}{_gb(sizes[0]):>9}{_gb(sizes[1]):>9}")
    totals = sum(found.update.values()), sum(found.rollout.values())
    lines.append(f"  {'together':<36}{_gb(totals[0]):>9}{_gb(totals[1]):>9}")
    lines += [
        "",
        _batches(plan),
        f"A pass of the update: {plan.rows} sequences of {_longest(plan)} tokens at most.",
        f"A rollout: {plan.sequences} sequences in play on each {of_several or 'process'} at most.",
    ]
    for engine in found.engines:
        here = f"over each {of_several}" if of_several else "in each process"
        where = (
            "on a server (a GPU of its own; speeds are as if each process had one)" if engine.model.on_server else here
        )
        lines.append(
            f"{plan.engine.name} {where}, {engine.model.name}: {_gb(engine.weights)} GB of weights, "
            f"{_gb(max(engine.cache, 0))} GB of KV cache for {engine.tokens:,} tokens."
        )
    if sum(engine.model.on_server for engine in found.engines) > 1:
        lines.append("Each of these models needs a server of its own, which vllm_server_urls names by policy.")
    lines += found.notes
    if found.problems:
        return "\n".join(lines)
    most = "at most " if plan.sampler == "generate" else ""
    lines += [
        "",
        f"Tokens a second, all GPUs ({PROMPT} tokens a prompt, {COMPLETION} a completion; without the network; see "
        "docs/gpus.md for what is assumed):",
        f"  sampled, while all sequences are in play{most + format(found.sampled_rate, ',.0f'):>20}",
        f"  through the update, prompts included    {found.update_rate:>20,.0f}",
        f"  sampled and trained, one after the other{most + format(found.trained_rate, ',.0f'):>20}",
    ]
    if plan.max_steps:
        rollouts = plan.max_steps / plan.num_updates
        tokens = rollouts * plan.generation_batch * COMPLETION
        lines.append(
            f"max_steps {plan.max_steps:,}: {rollouts:,.0f} rollouts; for each decision of an episode "
            f"{tokens / 1e6:,.1f} M completion tokens, {tokens / found.trained_rate / 3600:.2g} hours "
            "or more (two agents that both act in each of num_turns 4 decide 8 times at most)."
        )
    if found.network:
        what = "an update's gradients" if plan.sharding in ("ddp", "zero2") else "a pass's weights and gradients"
        lines.append(f"  the network: {found.network:.2g} s for {what}")
    return "\n".join(lines)


def _gb(size: float) -> str:
    """Gigabytes of 1e9 bytes, with more digits where there is little."""
    return f"{size / 1e9:.1f}" if size >= 1e8 or size == 0 else f"{size / 1e9:.2g}"


def _batches(plan: RunPlan) -> str:
    """The sizes that change with the number of GPUs, by the options that they follow from."""
    several = f" x {plan.num_iterations} (num_iterations)" if plan.num_iterations > 1 else ""
    return (
        f"Mini-batch: {plan.rows} (per_device_train_batch_size) x {plan.accumulation} (gradient_accumulation_steps) x "
        f"{plan.num_gpus} GPU{'s' * (plan.num_gpus > 1)} = {plan.mini_batch} sequences.\n"
        f"Updates for each rollout: {plan.generation_batch} (generation_batch_size){several} / {plan.mini_batch} = "
        f"{plan.num_updates:.3g}."
    )


def _longest(plan: RunPlan) -> str:
    longest = max(plan.longest(model) for model in plan.models if model.trained)
    prompt = min(plan.prompt, longest)
    return f"{prompt:,} + {longest - prompt:,}"


def _model_line(model: ModelPlan) -> str:
    policies = []
    if model.is_trained:
        policies.append("all trained")
    if model.num_adapters:
        policies.append(f"{model.num_adapters} adapters of {model.shape.adapter / 1e6:.1f} M trained")
    if model.num_references:
        policies.append(f"{model.num_references} frozen copies for KL terms")
    if not model.trained:
        policies.append("frozen")
    return f"{model.name}: {model.shape.parameters:,} parameters, {', '.join(policies)}."
