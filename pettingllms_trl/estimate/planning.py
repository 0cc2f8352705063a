"""Puts a run's memory and speed together, and says what does not fit. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from pettingllms_trl.estimate.activations import PassBytes
from pettingllms_trl.estimate.gpus import Gpu
from pettingllms_trl.estimate.memory import (
    SHARDINGS,
    Sharding,
    TrainingState,
    Weights,
    all_reduced,
    blocks_of_cache,
    gathered_in_a_pass,
    logits_bytes,
    training_state,
    whole_weights,
)
from pettingllms_trl.estimate.shapes import Shape
from pettingllms_trl.estimate.speed import (
    BETWEEN,
    COMPLETION,
    CONTEXT,
    INSIDE,
    MAX_SEQUENCES,
    PER_NODE,
    PROMPT,
    decoding_step,
    update_rate,
)


Sampler: TypeAlias = Literal["generate", "colocate", "server"]

NO_PASS = PassBytes(0, 0)
"""Of a model of which nothing is trained."""
HEADROOM = 0.1
"""Share of a GPU's memory for CUDA's context, NCCL and a fragmented allocator: assumed."""
ENGINE_OVERHEAD = 1.5e9
"""Bytes that vLLM takes of its share beside weights and cache: CUDA graphs, a batch of 4,096 tokens. Assumed."""
_OPTIMIZER: Mapping[Sharding, str] = {
    "ddp": "optimizer states",
    "fsdp2": "optimizer states",
    "zero2": "optimizer states, float32 weights",  # DeepSpeed's optimizer has them; a pass has them in bfloat16
    "zero3": "optimizer states, float32 weights",
}
SERVER_UTILIZATION = 0.9
"""Share of its GPU that `vllm serve` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """A model of the run, with the policies that use it.

    Args:
        name: Its id or path.
        shape: Its counts.
        width: Bytes of a weight in the trainer.
        is_trained: Whether its own weights are trained.
        num_adapters: Trained adapters on it.
        num_frozen_adapters: Frozen ones.
        num_references: Frozen copies of it for KL terms.
        update: What a pass of the update takes through its layers; 0 if nothing of it is trained.
        on_server: Whether a server samples for it.
    """

    name: str
    shape: Shape
    width: int
    is_trained: bool
    num_adapters: int = 0
    num_frozen_adapters: int = 0
    num_references: int = 0
    update: PassBytes = NO_PASS
    on_server: bool = False

    def weights(self) -> tuple[Weights, ...]:
        """What a trainer process holds of it; adapters are in float32."""
        shape = self.shape
        return (
            Weights(parameters=shape.parameters, width=self.width, is_trained=self.is_trained),
            Weights(parameters=shape.parameters * self.num_references, width=self.width, is_trained=False),
            Weights(parameters=shape.adapter * self.num_adapters, width=4, is_trained=True),
            Weights(parameters=shape.adapter * self.num_frozen_adapters, width=4, is_trained=False),
        )

    @property
    def trained(self) -> int:
        """Trained parameters."""
        return sum(each.parameters for each in self.weights() if each.is_trained)

    def sampling_weights(self, width: int) -> float:
        """Bytes of an engine's weights: the model and all adapters."""
        adapters = (self.num_adapters + self.num_frozen_adapters) * self.shape.adapter
        return float(width * (self.shape.parameters + adapters))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What a run is, as far as memory and speed depend on it.

    Args:
        gpu: Which GPU, all alike.
        num_gpus: Trainer processes, one for each GPU; servers are on others.
        sharding: How weights, gradients and optimizer states are divided over them.
        moments: Numbers that the optimizer keeps for each parameter.
        models: The models.
        sampler: What samples, unless a model is on a server.
        utilization: `vllm_gpu_memory_utilization`.
        sleeps: Whether vLLM gives its memory back during the update.
        tensor_parallel: Trainer processes that an engine of theirs is divided over; a divisor of their number.
        max_model_length: Longest sequence that vLLM is to hold; `None`: the model's context.
        num_candidates: K.
        sequences: Most sequences in play on each process, or on each group that an engine is divided over.
        prompt, completion: Tokens of a prompt, and most of a completion.
        rows: Sequences of a pass of the update.
        sampling_width: Bytes of a number in sampling: 2 with `bf16` or `fp16`, else 4.
    """

    gpu: Gpu
    num_gpus: int
    sharding: Sharding
    moments: int
    models: tuple[ModelPlan, ...]
    sampler: Sampler
    utilization: float
    sleeps: bool
    tensor_parallel: int
    max_model_length: int | None
    num_candidates: int
    sequences: int
    prompt: int
    completion: int
    rows: int
    sampling_width: int

    @property
    def num_players(self) -> int:
        """Processes, or groups of them, that play instances of their own."""
        return self.num_gpus // self.tensor_parallel

    def limit(self, model: ModelPlan) -> int:
        """Most tokens of a sequence that vLLM takes."""
        return self.max_model_length or model.shape.context

    def longest(self, model: ModelPlan) -> int:
        """Most tokens of a sequence of a model."""
        return min(self.prompt + self.completion, model.shape.context)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """vLLM's memory for a model.

    Args:
        model: The model.
        budget: Bytes that vLLM may take on each GPU.
        weights: Of them, weights and adapters.
        cache: What is left for keys and values; negative if not even the weights fit.
        tokens: How many tokens that cache holds.
        needed: Tokens of the longest sequence, without which vLLM does not start.
    """

    model: ModelPlan
    budget: float
    weights: float
    cache: float
    tokens: int
    needed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Memory in bytes on each of the trainer's GPUs, and speed.

    Args:
        plan: Of which run.
        state: What stays for the whole run.
        update: Bytes in an update, by what they are for.
        rollout: Bytes in a rollout.
        engines: The engines, those on servers included.
        sampled_rate: Tokens that are sampled a second by all GPUs, while all sequences are in play. At most that with
            transformers' `generate`.
        update_rate: Tokens a second that go through the update on all GPUs, prompts included.
        network: Seconds for gradients (DDP: an update; ZeRO-3 and FSDP2: a pass).
        problems: What does not fit, and what to change.
    """

    plan: RunPlan
    state: TrainingState
    update: Mapping[str, float]
    rollout: Mapping[str, float]
    engines: tuple[EnginePlan, ...]
    sampled_rate: float
    update_rate: float
    network: float
    problems: tuple[str, ...]

    @property
    def peak(self) -> float:
        """The larger of both phases."""
        return max(sum(self.update.values()), sum(self.rollout.values()))

    @property
    def trained_rate(self) -> float:
        """Completion tokens that are sampled and trained a second, with `PROMPT` and `COMPLETION` tokens."""
        tokens = 1 + PROMPT / (COMPLETION * self.plan.num_candidates)
        return 1 / (1 / self.sampled_rate + tokens / self.update_rate)


def estimate(plan: RunPlan) -> Estimate:
    """Memory and speed of a run."""
    found = _without_remedies(plan)
    if not found.problems or found.peak <= plan.gpu.memory:
        return found
    return replace(found, problems=(*found.problems, _remedies(plan)))


def _without_remedies(plan: RunPlan) -> Estimate:
    state = training_state(
        [each for model in plan.models for each in model.weights()],
        plan.sharding,
        plan.num_gpus,
        moments=plan.moments,
    )
    engines = tuple(_engines(plan))
    stays = {
        "weights": state.weights,
        "gradients": state.gradients,
        _OPTIMIZER[plan.sharding]: state.optimizer,
        "buckets of DDP": state.buckets,
        "CUDA, NCCL, fragments (assumed)": HEADROOM * plan.gpu.memory,
    }
    here = [engine for engine in engines if not engine.model.on_server]
    in_update = stays | _of_pass(plan)
    in_rollout = stays | _of_sampling(plan, engines)
    if here:
        kept = 0.0 if plan.sleeps else 1.0
        in_update |= {name: size * kept for name, size in _of_engines(here).items()}
        in_rollout |= _of_engines(here)
    return Estimate(
        plan=plan,
        state=state,
        update=in_update,
        rollout=in_rollout,
        engines=engines,
        sampled_rate=_sampled_rate(plan, engines),
        update_rate=plan.num_gpus * update_rate(plan.gpu, max(m.shape.parameters for m in _trained(plan))),
        network=_network(plan),
        problems=(*_too_large(plan, in_update, in_rollout), *_too_long(plan, engines), *_too_short(plan, engines)),
    )


def _trained(plan: RunPlan) -> list[ModelPlan]:
    return [model for model in plan.models if model.trained]


def _of_pass(plan: RunPlan) -> dict[str, float]:
    """Of the policy whose pass takes most: the others have none at that time."""
    found = 0.0
    for model in _trained(plan):
        logits = logits_bytes(
            plan.rows * plan.completion,
            model.shape.hidden,
            model.shape.vocabulary,
            width=plan.sampling_width,
            trained_head=model.shape.head if model.is_trained else 0,
        )
        found = max(found, model.update.peak, model.update.kept + logits)
    return {"activations and logits": found}


def _of_sampling(plan: RunPlan, engines: Sequence[EnginePlan]) -> dict[str, float]:
    if plan.sampler == "generate":
        cache = max(plan.sequences * plan.longest(m) * m.shape.kv_values * plan.sampling_width for m in plan.models)
        logits = max(2 * 4 * plan.sequences * model.shape.vocabulary for model in plan.models)
        held = [each for model in plan.models for each in model.weights()]
        whole = whole_weights(held, plan.sharding, width=plan.sampling_width) if plan.num_gpus > 1 else 0.0
        return {"weights gathered whole": whole, "logits": float(logits), "KV cache": float(cache)}
    # An engine is given one tensor at a time, of which the largest is the embeddings or the head.
    largest = max(4 * engine.model.shape.head for engine in engines) if plan.sharding in ("zero3", "fsdp2") else 0
    return {"weights gathered, one tensor": float(largest)}


def _of_engines(engines: Sequence[EnginePlan]) -> dict[str, float]:
    weights = sum(engine.weights for engine in engines)
    cache = sum(max(engine.cache, 0.0) for engine in engines)
    budget = sum(engine.budget for engine in engines)
    return {"vLLM: weights": weights, "vLLM: KV cache": cache, "vLLM: other": max(budget - weights - cache, 0.0)}


def _engines(plan: RunPlan) -> list[EnginePlan]:
    here = [model.shape.parameters for model in plan.models if not model.on_server]
    found = []
    for model in plan.models:
        if plan.sampler == "generate" and not model.on_server:
            continue
        share = SERVER_UTILIZATION if model.on_server else plan.utilization * model.shape.parameters / sum(here)
        parallel = 1 if model.on_server else plan.tensor_parallel
        budget = share * plan.gpu.memory
        weights = model.sampling_weights(plan.sampling_width) / parallel
        cache = budget - weights - ENGINE_OVERHEAD
        token_bytes = model.shape.kv_values * plan.sampling_width
        found.append(
            EnginePlan(
                model=model,
                budget=budget,
                weights=weights,
                cache=cache,
                tokens=blocks_of_cache(cache * parallel, token_bytes),
                needed=plan.limit(model),
            )
        )
    return found


def _sampled_rate(plan: RunPlan, engines: Sequence[EnginePlan]) -> float:
    """Several models on one GPU take their decoding steps one after another, each with its share of the sequences.

    What GPUs of a divided engine send each other in each layer is left out.
    """
    in_play = plan.sequences
    for engine in engines:
        in_play = min(in_play, max(engine.tokens // (PROMPT + COMPLETION), 1) * len(engines))
    each = min(max(in_play // len(plan.models), 1), MAX_SEQUENCES)
    seconds = sum(
        decoding_step(
            plan.gpu,
            model.shape.parameters / plan.tensor_parallel,
            model.shape.kv_values * plan.sampling_width / plan.tensor_parallel,
            sequences=each,
            context=CONTEXT,
        )
        for model in plan.models
    )
    return plan.num_players * each * len(plan.models) / seconds


def _network(plan: RunPlan) -> float:
    if plan.num_gpus == 1:
        return 0.0
    link = INSIDE if plan.num_gpus <= PER_NODE else BETWEEN
    if plan.sharding in ("ddp", "zero2"):
        return all_reduced(sum(model.trained for model in plan.models), plan.num_gpus) / link
    largest = max(_trained(plan), key=lambda model: model.shape.parameters)
    return gathered_in_a_pass(largest.shape.parameters, largest.trained, plan.num_gpus) / link


def _too_large(plan: RunPlan, update: Mapping[str, float], rollout: Mapping[str, float]) -> list[str]:
    found = []
    for phase, parts in (("an update", update), ("a rollout", rollout)):
        if (total := sum(parts.values())) > plan.gpu.memory:
            largest = max(parts, key=lambda name: parts[name])
            found.append(
                f"{phase} takes {total / 1e9:.1f} GB on each GPU, of which {largest} {parts[largest] / 1e9:.1f}; "
                f"{plan.gpu.name} has {plan.gpu.memory / 1e9:.0f}."
            )
    return found


def _too_long(plan: RunPlan, engines: Sequence[EnginePlan]) -> list[str]:
    """Lengths that vLLM refuses when it starts, or when it is given a prompt."""
    found = []
    for model in (engine.model for engine in engines if not engine.model.on_server):
        if plan.limit(model) > model.shape.context:
            found.append(
                f"vllm_max_model_length is {plan.max_model_length:,}, but {model.name} takes {model.shape.context:,} "
                "tokens at most; vLLM does not start. Set no more."
            )
        if plan.prompt >= plan.limit(model):
            found.append(
                f"a prompt of {plan.prompt:,} tokens leaves {model.name} no room for a completion: both together are "
                f"{plan.limit(model):,} tokens at most. Set vllm_max_model_length to more than the longest prompt."
            )
    return found


def _too_short(plan: RunPlan, engines: Sequence[EnginePlan]) -> list[str]:
    """What vLLM refuses when it starts: a cache that does not hold one sequence of the longest allowed length."""
    found = []
    for engine in engines:
        if engine.tokens >= engine.needed:
            continue
        token_bytes = engine.model.shape.kv_values * plan.sampling_width
        parallel = 1 if engine.model.on_server else plan.tensor_parallel
        cache = engine.needed * token_bytes / parallel
        missing = (engine.weights + ENGINE_OVERHEAD + cache - engine.budget) / plan.gpu.memory
        shorter = plan.longest(engine.model)
        cures = []
        if engine.tokens >= shorter:
            cures.append(f"vllm_max_model_length: {shorter}, the longest sequence of this run")
        if not engine.model.on_server and plan.utilization + missing < 1:
            cures.append(f"vllm_gpu_memory_utilization: {plan.utilization + missing + 0.01:.2f}")
        cures.append(
            "more GPUs for the engine (vllm serve --tensor-parallel-size)"
            if engine.model.on_server
            else f"vllm_tensor_parallel_size: {2 * parallel}, on as many GPUs or more"
        )
        found.append(
            f"vLLM's KV cache for {engine.model.name} has {max(engine.cache, 0) / 1e9:.1f} GB, which hold "
            f"{engine.tokens:,} tokens; it does not start with less than one sequence of {engine.needed:,}. Set "
            f"{', or '.join(cures)}."
        )
    return found


def _remedies(plan: RunPlan) -> str:
    """Each single change that makes the run fit, by trying it."""
    changes: list[tuple[str, RunPlan]] = []
    if plan.num_gpus > 1:
        changes += [
            (f"examples/accelerate_configs/{sharding}.yaml (--sharding {sharding})", replace(plan, sharding=sharding))
            for sharding in SHARDINGS
            if sharding != plan.sharding
        ]
    if plan.rows > 1:
        models = tuple(replace(m, update=m.update.of_rows(1, plan.rows)) for m in plan.models)
        changes.append(("a smaller per_device_train_batch_size", replace(plan, rows=1, models=models)))
    if plan.sampler == "generate":
        fewer = replace(plan, sequences=plan.num_candidates)
        changes.append(("a smaller max_envs", fewer))
    if plan.sampler == "colocate" and not plan.sleeps and len(plan.models) == 1:
        changes.append(("vllm_enable_sleep_mode: true", replace(plan, sleeps=True)))
    if plan.sampler == "colocate":
        changes += _other_engines(plan)
    if plan.sampler != "server":
        served = tuple(replace(model, on_server=True) for model in plan.models)
        changes.append(("vllm_mode: server, on other GPUs", replace(plan, sampler="server", models=served)))
    changes += [
        (
            f"{number} GPUs with zero3.yaml (--num_gpus {number} --sharding zero3)",
            replace(
                plan,
                num_gpus=number,
                sharding="zero3",
                sequences=max(plan.sequences * plan.num_gpus // number, plan.num_candidates),
            ),
        )
        for number in (8, 16, 32)
        if number > plan.num_gpus
    ][:1]
    fits = [what for what, changed in changes if not _without_remedies(changed).problems]
    if not fits:
        adapters = "adapters (policies: lora), " if any(model.is_trained for model in plan.models) else ""
        return (
            f"Nothing that was tried makes it fit: use shorter completions, {adapters}a smaller model, or more GPUs."
        )
    return f"It fits with {', or '.join(fits)}."


def _other_engines(plan: RunPlan) -> list[tuple[str, RunPlan]]:
    """A smaller share of the memory for engines, and engines over more GPUs, with weights sharded in the update."""
    found = []
    excess = (_without_remedies(plan).peak - plan.gpu.memory) / plan.gpu.memory
    smaller = round(plan.utilization - excess - 0.01, 2)
    if not plan.sleeps and 0 < smaller < plan.utilization:
        found.append((f"vllm_gpu_memory_utilization: {smaller:.2f}", replace(plan, utilization=smaller)))
    for size in (2, 4, 8):
        if size <= plan.tensor_parallel or plan.num_gpus % size:
            continue
        option = f"vllm_tensor_parallel_size: {size}"
        divided = replace(plan, tensor_parallel=size, sequences=plan.sequences * size // plan.tensor_parallel)
        found.append((option, divided))
        if plan.sharding not in ("zero3", "fsdp2"):
            found.append((f"{option} and zero3.yaml (--sharding zero3)", replace(divided, sharding="zero3")))
        if not _without_remedies(found[-1][1]).problems:  # fewer GPUs for an engine are more engines
            break
    return found
