"""Faults that are planted in a training on the simulated accelerator, in a child process, and what it says of them.

    python on_device.py faults FOLDER

writes FOLDER/found.json: for each fault the error that ended the training, or the waits of the host in this file.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from pettingllms_trl.checkpoints.checkpointer import Checkpointer
from pettingllms_trl.engines import transformers as engine
from pettingllms_trl.engines.prefix_cache import PrefixCache
from pettingllms_trl.policies.references import MovingReferences
from pettingllms_trl.update import builder, packed_logprobs
from pettingllms_trl.update.packing.pack import Packed
from pettingllms_trl.update.step_guard import StepGuard
from trainings import SAVED, Case, trainer_of
from watched_device import WatchedDevice


CASE = Case(
    policies="shared",
    has_adapters=False,
    options={
        **SAVED,
        "history": "conversation",
        "beta": 0.1,
        "sync_ref_model": True,
        "ref_model_sync_steps": 1,
        "steps_per_generation": 2,
        "max_steps": 1,
    },
)


def around(target: Any, name: str, fault: Callable[..., Any]) -> Callable[[Any], Any]:
    """A fault in the place of a function, which it is given before the arguments."""
    own = getattr(target, name)
    return lambda trainer: patch.object(target, name, lambda *args, **kwargs: fault(own, *args, **kwargs))


def layout_left(pack: Any, *args: Any, **kwargs: Any) -> Any:
    packed = pack(*args, **kwargs)
    return replace(packed, layout=replace(packed.layout, rows=packed.layout.rows.to("cpu", non_blocking=True)))


def mask_left(select_rows: Any, *args: Any, **kwargs: Any) -> Any:
    piece = select_rows(*args, **kwargs)
    return {**piece, "completion_mask": piece["host_completion_mask"]}


def cache_left(read_once: Any, *args: Any, **kwargs: Any) -> Any:
    cache = read_once(*args, **kwargs)
    for layer in cache.layers if cache is not None else ():
        layer.keys = layer.keys.to("cpu", non_blocking=True)
    return cache


def wait_for_the_cache(assembled: Any, *args: Any) -> Any:
    cache = assembled(*args)
    assert not any(bool(layer.keys.isnan().any()) for layer in cache.layers if layer.keys is not None)
    return cache


def wait_for_the_weights(call: Any, sampler: Any, requests: Any) -> Any:
    sampler.total = float(next(sampler._team.model.parameters()).sum())
    return call(sampler, requests)


def wait_for_a_value(of_completions: Any, packed: Any, values: torch.Tensor) -> Any:
    assert values.sum().item() <= 0 or True
    return of_completions(packed, values)


def wait_for_the_loss(add: Any, guard: Any, loss: torch.Tensor, batch: Any) -> None:
    guard.last = loss.item()
    add(guard, loss, batch)


def wait_for_the_reference(move: Any, references: Any) -> None:
    move(references)
    references.sizes = [p.abs().max().tolist() for own in references._references.values() for p in own.parameters()]


def wait_for_advantages(save_state: Any, checkpointer: Any, folder: Path, *, generation: Any, **more: Any) -> None:
    checkpointer.kept = generation[0][0]["advantages"].cpu()
    save_state(checkpointer, folder, generation=generation, **more)


@contextmanager
def reference_left(trainer: Any) -> Any:
    for reference in trainer.references._references.values():
        reference.to("cpu")
    yield


RAISES: dict[str, Callable[[Any], Any]] = {
    "update: the layout of a packed row": around(packed_logprobs, "pack", layout_left),
    "update: columns of a batch": around(builder, "send_to_device", lambda send, tensors, *_, **options: tensors),
    "update: a mask": around(builder, "select_rows", mask_left),
    "engine: keys of what was read": around(engine, "read_once", cache_left),
    "references: one of them": reference_left,
    "checkpointer: the batches of a generation": around(
        torch, "load", lambda load, *args, **options: load(*args, **{**options, "map_location": "cpu"})
    ),
}
"""What was left on the CPU, or not moved."""
WAITS: dict[str, Callable[[Any], Any]] = {
    "update: an item of a packed row": around(Packed, "of_completions", wait_for_a_value),
    "update: the loss of a pass": around(StepGuard, "add", wait_for_the_loss),
    "engine: an item of the weights": around(engine.LocalSampler, "__call__", wait_for_the_weights),
    "engine: whether keys are numbers": around(PrefixCache, "_assembled", wait_for_the_cache),
    "references: a list": around(MovingReferences, "move", wait_for_the_reference),
    "checkpointer: a copy to the host": around(Checkpointer, "save_state", wait_for_advantages),
}
"""What the host waits for."""
NONE = "no fault"


def found(name: str, folder: Path, device: WatchedDevice) -> dict[str, Any]:
    """Train one step, or go on with another one inside of a generation."""
    resumes = name.startswith("checkpointer: the batches")
    case = replace(CASE, options={**CASE.options, "max_steps": 2 if resumes else 1})
    trainer = trainer_of(case, folder, on_cpu=False)
    fault = {**RAISES, **WAITS, NONE: lambda trainer: nullcontext()}[name]
    device.waits.clear()
    error = None
    with ExitStack() as planted:
        planted.enter_context(fault(trainer))
        try:
            trainer.train(resume_from_checkpoint=True if resumes else None)
        except RuntimeError as raised:
            error = str(raised)
    return {"error": error, "waits": [[w.kind, w.place] for w in device.waits if Path(__file__).name in w.place]}


def main(device: WatchedDevice, folder: str) -> None:
    warnings.simplefilter("ignore")
    names = [NONE, *RAISES, *WAITS]  # the first leaves the checkpoint from which one goes on
    reports = {name: found(name, Path(folder), device) for name in names}
    (Path(folder) / "found.json").write_text(json.dumps(reports))
