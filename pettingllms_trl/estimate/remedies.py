"""What to change in a run that does not fit: each proposal is a changed run that was estimated, and fits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from pettingllms_trl.estimate.activations import PassBytes
from pettingllms_trl.estimate.memory import SHARDINGS
from pettingllms_trl.estimate.planning import Estimate, estimate
from pettingllms_trl.estimate.runs import RunPlan


Change: TypeAlias = tuple[str, RunPlan]
"""What to set, and the run with it."""

SIZES = (1, 2, 4, 8)
"""GPUs that an engine is tried on."""
MORE_GPUS = (8, 16, 32)
ABOUT = 0.9
"""Share of the highest speed from which on another is about as fast."""


def advise(plan: RunPlan) -> Estimate:
    """The estimate of a run, with what to change where it does not fit, and where an engine cuts completions."""
    found = estimate(plan)
    if found.problems:
        return replace(found, problems=(*found.problems, _remedies(plan)), notes=tuple(_cut(plan, may_grow=False)))
    return replace(found, notes=tuple(_cut(plan, may_grow=True)))


def _fits(plan: RunPlan) -> bool:
    """Whether a run fits. To measure a pass takes seconds, so a run that does not fit without one is not measured."""
    bare = replace(plan, models=tuple(replace(model, passes=lambda *_: PassBytes(0, 0)) for model in plan.models))
    return not estimate(bare).problems and not estimate(plan).problems


def _remedies(plan: RunPlan) -> str:
    """The changes that make a run fit: of one option, else of two, else other GPUs or shorter completions."""
    fits = _on_these_gpus(plan) or _fastest(_sharded_engines(plan))
    fits = fits or [*_on_servers(plan), *_on_more_gpus(plan), *_shorter_completions(plan)]
    if not fits and plan.sampler == "colocate" and plan.engine.max_length:
        fits = _shorter_sequences(plan)
    if fits:
        return f"It fits with {', or '.join(fits)}."
    adapters = "adapters (policies: lora), " if any(model.is_trained for model in plan.models) else ""
    return (
        f"Nothing that was tried makes it fit: use shorter prompts and completions, {adapters}a smaller model, or "
        "more GPUs."
    )


def _on_these_gpus(plan: RunPlan) -> list[str]:
    """Changes of one option that leave what is sampled as it is."""
    return [
        *_other_shardings(plan),
        *_fewer_rows(plan),
        *_fewer_envs(plan),
        *_sleeping(plan),
        *_other_shares(plan),
        *_whole_sequences(plan),
        *_fastest(_divided_engines(plan)),
    ]


def _first(changes: Iterable[Change]) -> list[str]:
    return next(([what] for what, changed in changes if _fits(changed)), [])


def _fastest(changes: Iterable[Change]) -> list[str]:
    """The change that fits with most tokens sampled and trained a second, or an earlier one that is about as fast.

    Engines over fewer GPUs come first, since what the GPUs of an engine send each other is not counted.
    """
    rates = {what: estimate(changed).trained_rate for what, changed in changes if _fits(changed)}
    return [what for what, rate in rates.items() if rate >= ABOUT * max(rates.values())][:1]


def _most(values: Sequence[int], change: Callable[[int], RunPlan]) -> int | None:
    """The largest of ascending values with which a run fits, where smaller ones take less."""
    place = bisect_left(values, True, key=lambda value: not _fits(change(value)))
    return values[place - 1] if place else None


def _eighths(low: int, high: int) -> list[int]:
    """Seven values between, and the higher end."""
    return [low + (high - low) * part // 8 for part in range(1, 9) if (high - low) * part >= 8]


# ---- One option -----------------------------------------------------------------------------------------------------


def _other_shardings(plan: RunPlan) -> list[str]:
    if plan.num_gpus == 1:
        return []
    return [
        f"examples/accelerate_configs/{sharding}.yaml (--sharding {sharding})"
        for sharding in SHARDINGS
        if sharding != plan.sharding and _fits(replace(plan, sharding=sharding))
    ]


def _fewer_rows(plan: RunPlan) -> list[str]:
    """A divisor, so that passes and updates are of as many sequences together."""

    def change(rows: int) -> RunPlan:
        return replace(plan, rows=rows, accumulation=plan.accumulation * plan.rows // rows)

    rows = _most([number for number in range(1, plan.rows) if plan.rows % number == 0], change)
    if rows is None:
        return []
    same = f"gradient_accumulation_steps: {change(rows).accumulation} for the same mini-batch"
    return [f"per_device_train_batch_size: {rows} ({same})"]


def _fewer_envs(plan: RunPlan) -> list[str]:
    if plan.sampler != "generate":
        return []
    in_play = plan.sequences if plan.is_parallel else plan.sequences // plan.num_candidates
    most = _most(range(1, in_play), lambda number: replace(plan, max_envs=number))
    return [] if most is None else [f"max_envs: {most}"]


def _sleeping(plan: RunPlan) -> list[str]:
    if plan.sampler != "colocate" or not plan.engine.sleeps or plan.sleeps or len(plan.models) > 1:
        return []
    return _first([(f"{plan.engine.sleeps}: true", replace(plan, sleeps=True))])


def _other_shares(plan: RunPlan) -> list[str]:
    """The next smaller share of a GPU for engines, else the next larger one."""
    option = plan.engine.memory_share
    if plan.sampler != "colocate" or not option:
        return []
    present = round(100 * plan.utilization)
    shares = [*range(present - 1, 0, -1), *range(present + 1, 100)]
    return _first((f"{option}: {n / 100:.2f}", replace(plan, utilization=n / 100)) for n in shares)


def _whole_sequences(plan: RunPlan) -> list[str]:
    """The length at which an engine cuts nothing, where another is set."""
    if plan.sampler == "generate" or not plan.engine.max_length:
        return []
    longest = _uncut(plan)
    return _first([(_length(plan, longest), replace(plan, max_model_length=longest))])


def _shorter_sequences(plan: RunPlan) -> list[str]:
    """A length at which an engine cuts completions."""
    most = _most(_eighths(plan.prompt, _uncut(plan)), lambda length: replace(plan, max_model_length=length))
    return [] if most is None else [_length(plan, most)]


def _shorter_completions(plan: RunPlan) -> list[str]:
    lengths = _eighths(0, plan.completion)[:-1]
    most = _most(lengths, lambda length: replace(plan, completion=length))
    return [] if most is None else [f"max_completion_length: {most}"]


def _uncut(plan: RunPlan) -> int:
    return min(plan.prompt + plan.completion, *(model.shape.context for model in plan.models))


def _length(plan: RunPlan, length: int) -> str:
    on_server = f" ({plan.engine.server_max_length} {length})" if plan.sampler == "server" else ""
    return f"{plan.engine.max_length}: {length}{on_server}"


# ---- Engines over several GPUs, and other GPUs ----------------------------------------------------------------------


def _divided_engines(plan: RunPlan) -> list[Change]:
    if plan.sampler != "colocate" or plan.num_gpus == 1 or not plan.engine.processes:
        return []
    return [
        (f"{plan.engine.processes}: {size}", replace(plan, tensor_parallel=size))
        for size in SIZES
        if size != plan.tensor_parallel and plan.num_gpus % size == 0
    ]


def _sharded_engines(plan: RunPlan) -> list[Change]:
    return [
        (f"{what} and zero3.yaml (--sharding zero3)", replace(changed, sharding="zero3"))
        for what, changed in _divided_engines(plan)
    ]


def _on_servers(plan: RunPlan) -> list[str]:
    if plan.sampler == "server" or not plan.engine.on_servers:
        return []
    served = tuple(replace(model, on_server=True) for model in plan.models)
    return _first([(f"{plan.engine.on_servers}, on other GPUs", replace(plan, sampler="server", models=served))])


def _on_more_gpus(plan: RunPlan) -> list[str]:
    """The smallest number of GPUs on which the run fits under ZeRO-3, with the fastest tensor-parallel size.

    The sequences of a rollout stay as many as they are, and those of an update where the accumulation steps can be
    divided: options that are left out would grow with the number of GPUs.
    """
    for number in (number for number in MORE_GPUS if number > plan.num_gpus):
        if plan.generation_batch % (number * plan.rows):
            continue  # TRL refuses it
        accumulation = max(plan.accumulation * plan.num_gpus // number, 1)
        more = replace(plan, num_gpus=number, sharding="zero3", accumulation=accumulation)
        options = (
            f"--num_gpus {number} --sharding zero3 --generation_batch_size {plan.generation_batch} "
            f"--gradient_accumulation_steps {accumulation}"
        )
        alone = (f"{number} GPUs with zero3.yaml ({options})", more)
        divided = [
            (f"{number} GPUs with zero3.yaml and {what} ({options})", changed)
            for what, changed in _divided_engines(more)
        ]
        if fits := _fastest([alone, *divided]):
            return fits
    return []


# ---- What is cut ----------------------------------------------------------------------------------------------------


def _cut(plan: RunPlan, *, may_grow: bool) -> list[str]:
    """A line for each model whose longest completions are cut, with the lengths at which it does not.

    `may_grow`: whether to try longer sequences in engines.
    """
    found = []
    for model in plan.models:
        limit = plan.limit(model)
        room = limit - plan.prompt
        if not 0 < room < plan.completion:
            continue
        by = plan.engine.max_length if limit == plan.max_model_length else f"{model.name}'s context"
        cures = [f"max_completion_length: {room}", *(_longer(plan, limit) if may_grow else [])]
        found.append(
            f"After a prompt of {plan.prompt:,} tokens a completion is cut at {room:,}, where {limit:,} are reached "
            f"({by}). Set {', or '.join(cures)}."
        )
    return list(dict.fromkeys(found))


def _longer(plan: RunPlan, limit: int) -> list[str]:
    """A longer sequence that fits, and the completions that it leaves room for."""
    whole = _uncut(plan)
    most = _most(_eighths(limit, whole), lambda length: replace(plan, max_model_length=length))
    if most is None:
        return []
    shorter = f" with max_completion_length: {most - plan.prompt}" if most - plan.prompt < plan.completion else ""
    return [f"{_length(plan, most)}{shorter}"]
