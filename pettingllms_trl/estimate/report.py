"""The text of an estimate."""

from __future__ import annotations

from pettingllms_trl.estimate.planning import Estimate, Run
from pettingllms_trl.estimate.stand_ins import UNCHECKED


def report(found: Estimate) -> str:
    """What a step takes in each phase, then speed, as lines for a terminal."""
    run, step = found.run, found.step
    times = "a decision" if run.turns == 1 else f"{run.turns} decisions"
    lines = [
        f"Run on a simulated GPU, none measured: {run.num_gpus} x {run.gpu.name} of {_gb(run.gpu.memory)} GB, "
        f"{run.sharding}.",
        *(["For 1 GPU; give --num_gpus (and --sharding) for several."] if run.num_gpus == 1 else []),
        f"{run.agents} agents, {run.generation_batch // run.num_candidates} instances x {run.num_candidates} "
        f"candidates of {times} of each; prompts of {run.prompt:,} tokens, replies of {run.completion:,}.",
        *step.notes,
        "",
        f"{'':<16}{'GB':>9}{'TFLOP':>11}{'operations':>13}{'waits':>8}{'seconds':>10}",
    ]
    for name, size in found.memory.items():
        work = step.phases[name].work
        lines.append(
            f"{name:<16}{_gb(size):>9}{work.flops / 1e12:>11,.1f}{work.operations:>13,.0f}{work.waits:>8,.0f}"
            f"{found.seconds[name]:>10.3g}"
        )
    lines += ["GB are each GPU's at the peak of a phase, and of them:", *_held(found), "", _batches(run)]
    lines += [_engine(found, place) for place in range(len(found.engines))]
    if sum(bool(engine.model.servers) for engine in found.engines) > 1:
        lines.append("Each of these models needs servers of its own, which vllm_server_urls names by policy.")
    lines += [f"Not checked: {'; '.join(UNCHECKED)}.", *found.notes]
    if found.problems:
        return "\n".join(lines)
    if run.sampler != "generate":
        lines.append(f"{run.engine.name} samples for {found.seconds['rollout']:.3g} s, as `speed.py` assumes.")
    if run.num_gpus > 1:
        lines.append(f"The network: {found.seconds['network']:.2g} s for an optimizer step's weights and gradients.")
    lines.append(
        f"A generation and its updates: {found.of_generation:,.3g} s, {found.trained_rate:,.0f} tokens of replies "
        "sampled and trained a second by all GPUs (docs/gpus.md says what is assumed)."
    )
    if run.max_steps:
        generations = run.max_steps / run.num_updates
        lines.append(
            f"max_steps {run.max_steps:,}: {generations:,.0f} generations, "
            f"{generations * found.of_generation / 3600:.2g} hours with {times} of each agent in an episode."
        )
    return "\n".join(lines)


def _gb(size: float) -> str:
    """Gigabytes of 1e9 bytes, with more digits where there is little."""
    return f"{size / 1e9:.1f}" if size >= 1e8 or size == 0 else f"{size / 1e9:.2g}"


def _held(found: Estimate) -> list[str]:
    """What stays in all phases, or in those that its name says."""
    run, references = found.run, [part for part in found.step.held if part.is_reference]
    engine = sum(each.budget for each in found.engines if not each.model.servers)
    sizes = {
        "weights": found.state.weights,
        "of them references": sum(part.parameters * part.width for part in references),
        "gradients, in the update": found.state.gradients,
        "optimizer states": found.state.optimizer,
        "buckets of DDP": found.state.buckets,
        f"{run.engine.name}{', in the rollout' if run.sleeps else ''}": engine,
        "CUDA, NCCL, fragments (10%, assumed)": run.gpu.memory / 10,
    }
    return [f"  {name:<38}{_gb(size):>9}" for name, size in sizes.items() if size]


def _engine(found: Estimate, place: int) -> str:
    run, engine = found.run, found.engines[place]
    here = f"over {run.tensor_parallel} processes" if run.tensor_parallel > 1 else "in each process"
    where = f"on servers ({engine.model.servers}, a GPU each)" if engine.model.servers else here
    return (
        f"{run.engine.name} {where}, {engine.model.name}: {_gb(engine.weights)} GB of weights, "
        f"{_gb(max(engine.cache, 0))} GB of KV cache for {engine.tokens:,} tokens."
    )


def _batches(run: Run) -> str:
    """The sizes that change with the number of GPUs."""
    several = f" x {run.num_iterations} (num_iterations)" if run.num_iterations > 1 else ""
    return (
        f"A rollout: {run.sequences} sequences in play on each "
        f"{'process' if run.tensor_parallel == 1 else f'group of {run.tensor_parallel} processes'} at most. Optimizer "
        f"steps for each: {run.generation_batch} (generation_batch_size){several} / {run.mini_batch} "
        f"(per_device_train_batch_size x gradient_accumulation_steps x GPUs) = {run.num_updates:.3g}."
    )
