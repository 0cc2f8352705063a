"""Puts a run's memory and speed together, and says what does not fit. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pettingllms_trl.estimate import memory, speed
from pettingllms_trl.estimate.runs import ModelPlan, RunPlan


HEADROOM = 0.1
"""Share of a GPU's memory for CUDA's context, NCCL and a fragmented allocator: assumed."""
_OPTIMIZER: Mapping[memory.Sharding, str] = {
    "ddp": "optimizer states",
    "fsdp2": "optimizer states",
    "zero2": "optimizer states, float32 weights",  # DeepSpeed's optimizer has them; a pass has them in bfloat16
    "zero3": "optimizer states, float32 weights",
}
SERVER_UTILIZATION = 0.9
"""Share of its GPU that a server takes, as `vllm serve` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """An engine's memory for a model.

    Args:
        budget: Bytes that it may take on each GPU.
        weights: Of them, weights and adapters.
        cache: What is left for keys and values; negative if not even the weights fit.
        tokens: How many tokens that cache holds.
        needed: Tokens of the longest sequence, without which the engine does not start.
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
        state: What stays for the whole run.
        update: Bytes in an update, by what they are for.
        rollout: Bytes in a rollout.
        sampled_rate: Tokens that are sampled a second by all GPUs, while all sequences are in play. At most that with
            transformers' `generate`.
        update_rate: Tokens a second that go through the update on all GPUs, prompts included.
        network: Seconds for gradients (DDP: an update; ZeRO-3 and FSDP2: a pass).
        problems: What does not fit, and what to change, if `advise` made it.
        notes: What fits and may not be meant.
    """

    plan: RunPlan
    state: memory.TrainingState
    update: Mapping[str, float]
    rollout: Mapping[str, float]
    engines: tuple[EnginePlan, ...]
    sampled_rate: float
    update_rate: float
    network: float
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def peak(self) -> float:
        """The larger of both phases."""
        return max(sum(self.update.values()), sum(self.rollout.values()))

    @property
    def trained_rate(self) -> float:
        """Completion tokens sampled and trained a second, with `PROMPT` and `COMPLETION` tokens, prompts shared."""
        tokens = 1 + speed.PROMPT / (speed.COMPLETION * (1 if self.plan.image_tokens else self.plan.num_candidates))
        return 1 / (1 / self.sampled_rate + tokens / self.update_rate)


def estimate(plan: RunPlan) -> Estimate:
    """Memory and speed of a run, and what does not fit; `remedies.advise` adds what to change."""
    state = memory.training_state(
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
        of_engines = _of_engines(plan.engine.name, here)
        in_update |= {name: size * kept for name, size in of_engines.items()}
        in_rollout |= of_engines
    return Estimate(
        plan=plan,
        state=state,
        update=in_update,
        rollout=in_rollout,
        engines=engines,
        sampled_rate=_sampled_rate(plan, engines),
        update_rate=plan.num_gpus
        * speed.update_rate(plan.gpu, max(_read_by_a_token(plan, m) for m in _trained(plan))),
        network=_network(plan),
        problems=(*_too_large(plan, in_update, in_rollout), *_too_long(plan, engines), *_too_short(plan, engines)),
    )


def _trained(plan: RunPlan) -> list[ModelPlan]:
    return [model for model in plan.models if model.trained]


def _read_by_a_token(plan: RunPlan, model: ModelPlan) -> float:
    """Parameters that a token of the update goes through on average; of the vision tower its patches do."""
    patches = plan.image_tokens * model.shape.patches / (speed.PROMPT + speed.COMPLETION)
    return model.shape.parameters - model.shape.vision + model.shape.vision * patches


def _of_pass(plan: RunPlan) -> dict[str, float]:
    """Of the policy whose pass takes most: the others have none at that time."""
    found = 0.0
    for model in _trained(plan):
        longest = plan.longest(model)
        update = model.passes(plan.rows, longest, plan.is_sharded)
        logits = memory.logits_bytes(
            plan.rows * max(longest - plan.prompt, 0),
            model.shape.hidden,
            model.shape.vocabulary,
            width=plan.sampling_width,
            trained_head=model.shape.head if model.is_trained else 0,
        )
        found = max(found, update.peak, update.kept + logits)
    return {"activations and logits": found}


def _of_sampling(plan: RunPlan, engines: Sequence[EnginePlan]) -> dict[str, float]:
    if plan.sampler == "generate":
        cache = max(plan.sequences * plan.longest(m) * m.shape.kv_values * plan.sampling_width for m in plan.models)
        logits = max(2 * 4 * plan.sequences * model.shape.vocabulary for model in plan.models)
        held = [each for model in plan.models for each in model.weights()]
        whole = memory.whole_weights(held, plan.sharding, width=plan.sampling_width) if plan.num_gpus > 1 else 0.0
        return {"weights gathered whole": whole, "logits": float(logits), "KV cache": float(cache)}
    # An engine is given one tensor at a time, of which the largest is the embeddings or the head.
    largest = max(4 * engine.model.shape.head for engine in engines) if plan.sharding in ("zero3", "fsdp2") else 0
    return {"weights gathered, one tensor": float(largest)}


def _of_engines(name: str, engines: Sequence[EnginePlan]) -> dict[str, float]:
    weights = sum(engine.weights for engine in engines)
    cache = sum(max(engine.cache, 0.0) for engine in engines)
    budget = sum(engine.budget for engine in engines)
    other = max(budget - weights - cache, 0.0)
    return {f"{name}: weights": weights, f"{name}: KV cache": cache, f"{name}: other": other}


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
        cache = budget - weights - plan.engine.overhead
        token_bytes = model.shape.kv_values * plan.sampling_width
        found.append(
            EnginePlan(
                model=model,
                budget=budget,
                weights=weights,
                cache=cache,
                tokens=memory.blocks_of_cache(cache * parallel, token_bytes),
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
        in_play = min(in_play, max(engine.tokens // (speed.PROMPT + speed.COMPLETION), 1) * len(engines))
    each = min(max(in_play // len(plan.models), 1), speed.MAX_SEQUENCES)
    seconds = sum(
        speed.decoding_step(
            plan.gpu,
            (model.shape.parameters - model.shape.vision) / plan.tensor_parallel,
            model.shape.kv_values * plan.sampling_width / plan.tensor_parallel,
            sequences=each,
            context=speed.CONTEXT,
        )
        for model in plan.models
    )
    return plan.num_players * each * len(plan.models) / seconds


def _network(plan: RunPlan) -> float:
    if plan.num_gpus == 1:
        return 0.0
    link = speed.INSIDE if plan.num_gpus <= speed.PER_NODE else speed.BETWEEN
    if plan.sharding in ("ddp", "zero2"):
        return memory.all_reduced(sum(model.trained for model in plan.models), plan.num_gpus) / link
    largest = max(_trained(plan), key=lambda model: model.shape.parameters)
    return memory.gathered_in_a_pass(largest.shape.parameters, largest.trained, plan.num_gpus) / link


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
    """Lengths that an engine refuses when it starts, or what samples when it is given a prompt."""
    here = [engine.model for engine in engines if not engine.model.on_server]
    found = [
        f"{plan.engine.max_length} is {plan.max_model_length:,}, but {model.name} takes {model.shape.context:,} "
        f"tokens at most; {plan.engine.name} does not start."
        for model in here
        if plan.max_model_length is not None and plan.max_model_length > model.shape.context
    ]
    found += [
        f"a prompt of {plan.prompt:,} tokens leaves {model.name} no room for a completion: both together are "
        f"{plan.limit(model):,} tokens at most."
        for model in plan.models
        if plan.prompt >= plan.limit(model)
    ]
    found += [
        f"a prompt of {plan.prompt:,} tokens does not hold {plan.image_tokens:,} of images; prompt_tokens counts both."
    ] * (plan.image_tokens > plan.prompt)
    return found


def _too_short(plan: RunPlan, engines: Sequence[EnginePlan]) -> list[str]:
    """What an engine refuses when it starts: a cache that does not hold one sequence of the longest allowed length."""
    more = f" (on a server of one GPU; more: {plan.engine.server_processes})"
    return [
        f"{plan.engine.name}'s KV cache for {engine.model.name} has {max(engine.cache, 0) / 1e9:.1f} GB, which hold "
        f"{engine.tokens:,} tokens; it does not start with less than one sequence of {engine.needed:,}"
        f"{more * engine.model.on_server}."
        for engine in engines
        if engine.tokens < engine.needed
    ]
