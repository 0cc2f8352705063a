"""What GPUs hold and how long they take, from a step that was simulated on one, and what does not fit. Pure.

The step says what one process holds and runs. Sharding, an engine's share and the network are added by arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pettingllms_trl.engines.kinds import EngineOptions, Place
from pettingllms_trl.estimate import memory, speed
from pettingllms_trl.estimate.gpus import Gpu
from pettingllms_trl.estimate.step import Measured


HEADROOM = 0.1
"""Share of a GPU's memory for CUDA's context, NCCL and a fragmented allocator: assumed."""
SERVER_UTILIZATION = 0.9
"""Share of its GPU that a server takes, as `vllm serve` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Policies that share a model of what samples.

    Args:
        parameters: Of the model and its adapters.
        kv_values: Numbers that the KV cache holds for a token.
        context: Longest sequence that the model was made for.
        servers: Replicas elsewhere that all processes share, a GPU each; 0: it is in the processes.
    """

    name: str
    parameters: int
    kv_values: int
    context: int
    servers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run, as far as memory and speed depend on it beyond its step.

    Args:
        num_gpus: Trainer processes, one for each GPU; servers are on others.
        width: Bytes of a trained weight that optimizers change under FSDP2, and 2 or 4 in a pass (`pass_width`).
        models: Of what samples.
        sampler: What samples, unless a model is on a server.
        engine: The options of its kind of engine, of which the next four are values.
        utilization: Share of a GPU's memory that engines take.
        sleeps: Whether they give it back during the update.
        tensor_parallel: Trainer processes that an engine of theirs is divided over; a divisor of their number.
        max_length: Longest sequence that an engine is to hold; `None`: the model's context.
        sequences: Most in play on each process, or on each group that an engine is divided over.
        generation_batch: Sequences of a generation of all processes for a decision of each agent, and `mini_batch`
            those of an optimizer step, of `num_passes` on each process.
        agents: Agents with weights here, with `turns` decisions each: in conversations several, else 1.
        max_steps: Optimizer steps of the run; 0 if epochs decide.
    """

    gpu: Gpu
    num_gpus: int
    sharding: memory.Sharding
    width: int
    pass_width: int
    models: tuple[Sampled, ...]
    sampler: Place
    engine: EngineOptions
    utilization: float
    sleeps: bool
    tensor_parallel: int
    max_length: int | None
    sequences: int
    generation_batch: int
    mini_batch: int
    num_passes: int
    num_iterations: int
    num_candidates: int
    agents: int
    prompt: int
    completion: int
    turns: int = 1
    max_steps: int = 0

    @property
    def num_updates(self) -> float:
        """Optimizer steps for each generation; below 1 if one waits for several."""
        return self.generation_batch * self.num_iterations / self.mini_batch

    def limit(self, model: Sampled) -> int:
        """Most tokens of a sequence of what samples; of a server `max_length` is all that is known."""
        by_engine = self.sampler != "generate" or model.servers
        return (by_engine and self.max_length) or model.context


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """An engine's memory for a model, in bytes on each GPU.

    Args:
        budget: What it may take, and of it `weights`, and `cache` for keys and values.
        tokens: That the cache holds.
        needed: Tokens of the longest sequence, without which the engine does not start.
    """

    model: Sampled
    budget: float
    weights: float
    cache: float
    tokens: int
    needed: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """
    Args:
        memory: Bytes on each GPU of the trainer, at the peak of each phase.
        seconds: Of each phase, of a generation with `turns` decisions of each agent in an instance, and of an
            optimizer step; `network` is of one. A rollout of an engine has what `speed.py` assumes.
        problems: What does not fit.
    """

    run: Run
    step: Measured
    state: memory.TrainingState
    engines: tuple[EnginePlan, ...]
    memory: Mapping[str, float]
    seconds: Mapping[str, float]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def of_generation(self) -> float:
        """Seconds of a generation and its updates."""
        once = self.seconds["rollout"] + self.seconds["scoring"]
        update = sum(self.seconds[name] for name in ("backward", "optimizer step", "network"))
        return once + self.run.num_updates * update

    @property
    def trained_rate(self) -> float:
        """Completion tokens sampled and trained a second by all GPUs."""
        run = self.run
        return run.generation_batch * run.agents * run.turns * run.completion / self.of_generation


def estimate(run: Run, step: Measured) -> Estimate:
    """Memory and speed of a run, and what does not fit."""
    state, engines = _state(run, step, run.sharding), tuple(_engines(run))
    held = _held(run, step, state, engines)
    seconds = {name: phase.work.seconds for name, phase in step.phases.items()}
    # The step samples the last turn, with `generate`.
    seconds["rollout"] = run.turns * seconds["rollout"] if run.sampler == "generate" else _sampling(run, engines)
    seconds["network"] = _network(run, step.held)
    problems = [*_too_large(run, step, held, engines), *_too_long(run, engines), *_too_short(engines, run)]
    return Estimate(run, step, state, engines, held, seconds, tuple(problems))


def _state(run: Run, step: Measured, sharding: memory.Sharding, num_gpus: int | None = None) -> memory.TrainingState:
    trained = [part for part in step.held if part.is_trained]
    moments = round(step.optimizer / sum(part.parameters * part.width for part in trained))
    is_wider = sharding == "fsdp2"
    held = [
        replace(part, width=max(run.width, part.width)) if part.is_trained and is_wider else part for part in step.held
    ]
    return memory.training_state(held, sharding, num_gpus or run.num_gpus, moments=moments)


def _held(run: Run, step: Measured, state: memory.TrainingState, engines: Sequence[EnginePlan]) -> dict[str, float]:
    """The peak of each phase: what was measured, with the state of this sharding in the place of one process's own."""
    alone = _state(run, step, "ddp", 1)
    engine = sum(each.budget for each in engines if not each.model.servers)
    found = {}
    for name, phase in step.phases.items():
        peak = phase.peak or (alone.total - alone.gradients if name == "rollout" else 0)  # where an engine samples
        if not peak:
            continue
        with_gradients = name in ("backward", "optimizer step")
        sizes = [each.total - (0 if with_gradients else each.gradients) for each in (state, alone)]
        if name in ("creation", "references"):
            sizes = [state.weights, alone.weights]
        found[name] = peak + sizes[0] - sizes[1] + HEADROOM * run.gpu.memory
        if name != "creation" and not (run.sleeps and name != "rollout"):
            found[name] += engine
    whole = memory.whole_weights(step.held, run.sharding, width=run.pass_width)
    if run.num_gpus > 1 and run.sampler == "generate":
        found["rollout"] += whole
    return found


def _engines(run: Run) -> list[EnginePlan]:
    here = sum(model.parameters for model in run.models if not model.servers)
    found = []
    for model in run.models:
        if run.sampler == "generate" and not model.servers:
            continue
        parallel = 1 if model.servers else run.tensor_parallel
        budget = run.gpu.memory * (SERVER_UTILIZATION if model.servers else run.utilization * model.parameters / here)
        weights = run.pass_width * model.parameters / parallel
        cache = budget - weights - run.engine.overhead
        tokens = memory.blocks_of_cache(cache * parallel, model.kv_values * run.pass_width)
        found.append(
            EnginePlan(
                model=model, budget=budget, weights=weights, cache=cache, tokens=tokens, needed=run.limit(model)
            )
        )
    return found


def _sampling(run: Run, engines: Sequence[EnginePlan]) -> float:
    """Seconds in which engines sample the decisions of each agent. What the GPUs of one send each other is left out.

    Models on one GPU take their decoding steps one after another, each for its share of the agents.
    """
    length, players = run.prompt + run.turns * run.completion, run.num_gpus / run.tensor_parallel
    seconds = 0.0
    for engine in engines:
        parallel, replicas = (1, engine.model.servers) if engine.model.servers else (run.tensor_parallel, players)
        each = run.generation_batch * run.agents * run.turns / len(engines) / replicas
        in_play = run.sequences * players / replicas
        at_once = min(in_play, each, speed.MAX_SEQUENCES, max(engine.tokens // length, 1))
        step = speed.decoding_step(
            run.gpu,
            engine.model.parameters / parallel,
            engine.model.kv_values * run.pass_width / parallel,
            sequences=at_once,
            context=run.prompt + run.turns * run.completion / 2,
        )
        read = 2 * engine.model.parameters * run.prompt / run.num_candidates / parallel
        seconds += each * (run.completion * step / at_once + read / (speed.PRODUCTS * run.gpu.flops))
    return seconds


def _network(run: Run, held: Sequence[memory.Weights]) -> float:
    """Seconds of an optimizer step in which gradients, or sharded weights in each pass, are sent."""
    if run.num_gpus == 1:
        return 0.0
    link = speed.INSIDE if run.num_gpus <= speed.PER_NODE else speed.BETWEEN
    trained = sum(part.parameters for part in held if part.is_trained)
    if run.sharding in ("ddp", "zero2"):
        return memory.all_reduced(trained, run.num_gpus) / link
    parameters = sum(part.parameters for part in held if not part.is_reference)
    return run.num_passes * memory.gathered_in_a_pass(parameters, trained, run.num_gpus) / link


def _too_large(run: Run, step: Measured, held: Mapping[str, float], engines: Sequence[EnginePlan]) -> list[str]:
    largest = max(held, key=lambda each: held[each])
    if held[largest] <= run.gpu.memory:
        return []
    size, whole = held[largest] / 1e9, run.gpu.memory / 1e9
    said = f"{largest} takes {size:.1f} GB on each GPU; {run.gpu.name} has {whole:.0f}."
    return [said, _remedy(run, step, engines, largest)]


def _remedy(run: Run, step: Measured, engines: Sequence[EnginePlan], largest: str) -> str:
    """Shardings on these GPUs or on eight with which all phases fit, or what takes less."""
    several = run.num_gpus if run.num_gpus > 1 else speed.PER_NODE
    fits = []
    for sharding in memory.SHARDINGS:
        changed = replace(run, sharding=sharding, num_gpus=several)
        held = _held(changed, step, _state(changed, step, sharding), engines)
        if max(held.values()) <= run.gpu.memory:
            fits.append(sharding)
    if fits:
        return f"It fits on {several} GPUs with {' or '.join(f'{each}.yaml (--sharding {each})' for each in fits)}."
    share = f"a smaller {run.engine.memory_share}, " if run.sampler == "colocate" else ""
    rows = "max_envs" if largest == "rollout" else "per_device_train_batch_size"
    whole = "" if any(not part.is_trained | part.is_reference for part in step.held) else "adapters (policies: lora), "
    return f"Take {share}a smaller {rows} or max_completion_length, {whole}or a smaller model."


def _too_long(run: Run, engines: Sequence[EnginePlan]) -> list[str]:
    """Lengths that an engine refuses when it starts."""
    return [
        f"{run.engine.max_length} is {run.max_length:,}, but {engine.model.name} takes {engine.model.context:,} "
        f"tokens at most; {run.engine.name} does not start."
        for engine in engines
        if run.max_length is not None and run.max_length > engine.model.context and not engine.model.servers
    ]


def _too_short(engines: Sequence[EnginePlan], run: Run) -> list[str]:
    """What an engine refuses when it starts: a cache that does not hold one sequence of the longest allowed length."""
    more, length = f" (on a server of one GPU; more: {run.engine.server_processes})", run.prompt + run.completion
    return [
        f"{run.engine.name}'s KV cache for {engine.model.name} has {max(engine.cache, 0) / 1e9:.1f} GB, which hold "
        f"{engine.tokens:,} tokens; it does not start with less than one sequence of {engine.needed:,}"
        f"{more * bool(engine.model.servers)}. Set "
        + (f"{run.engine.max_length} ({length:,} here), or " if engine.tokens >= length else "")
        + f"a larger {run.engine.memory_share} or {run.engine.processes}."
        for engine in engines
        if engine.tokens < engine.needed
    ]
