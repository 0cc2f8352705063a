"""Trainings that run twice in a child process, on the CPU and on the simulated accelerator: `MATRIX` names them.

    python on_device.py trainings FOLDER CASE...

writes a line of JSON for each case (`Report`) into FOLDER/reports.jsonl.
"""

from __future__ import annotations

import importlib
import json
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch.nn.attention import SDPBackend, sdpa_kernel

import short_runs
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer, Policy
from pettingllms_trl.testing import byte_tokenizer, save_tiny_model
from pettingllms_trl.update.packing import cost
from short_runs import adapter
from third_party import Relay
from watched_device import Wait, WatchedDevice


Weights = dict[str, torch.Tensor]
SHORT = {
    **short_runs.SHORT,
    "per_device_train_batch_size": 4,
    "num_generations": 2,
    "max_completion_length": 6,
    "max_steps": 2,
    "learning_rate": 0.1,
    "optim": "sgd",  # an optimizer that divides by gradients makes much of their last bit
}


@dataclass(frozen=True)
class Case:
    """A training.

    Args:
        env: Of the instances.
        policies: A layout, or what makes policies of a model's folder.
        options: Of `MultiAgentGRPOConfig`.
        dtype: Of the weights.
        run: Trains, from the trainer and what makes another one of the same case.
        model: Saves or makes a model, in a folder.
        more: Further arguments of the trainer, or what makes them in a folder.
        has_adapters: Whether a policy is an adapter.
        most: The largest difference of a weight from the CPU's; `None`: whatever it is, it is finite.
    """

    env: Callable[[], Any] = Relay
    policies: str | Callable[[str], Mapping[str, Any]] = "lora"
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    run: Callable[[MultiAgentGRPOTrainer, Callable[[], MultiAgentGRPOTrainer]], MultiAgentGRPOTrainer] | None = None
    model: Callable[[Path], Any] | None = None
    more: Mapping[str, Any] | Callable[[Path], Mapping[str, Any]] = field(default_factory=dict)
    most: float | None = 0.0
    has_adapters: bool = True


@dataclass
class Report:
    """What a case has shown.

    Args:
        difference: The largest of a weight from the CPU's.
        moved: How far a weight moved.
        is_finite: Whether all weights and logged losses are.
        waits: Kind, place and number, from `train()` on.
        phases: For each stretch of the training, such as from the begin of a forward pass to its end (`pass to
            forward`), how often the host waited in our files and in TRL's, each time.
        autocast: Names of operations that ran under autocast, and types of their results.
        error: The error that ended it.
    """

    case: str
    difference: float = 0.0
    moved: float = 0.0
    is_finite: bool = False
    waits: list[tuple[str, str, int]] = field(default_factory=list)
    phases: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    autocast: list[tuple[str, str]] = field(default_factory=list)
    error: str | None = None


def mixture(model: str) -> Mapping[str, Any]:
    return {"opener": Policy(model=model), "closer": "closer"}


def resumed(trainer: MultiAgentGRPOTrainer, again: Callable[[], MultiAgentGRPOTrainer]) -> MultiAgentGRPOTrainer:
    """Save after each step, and take the second once more from the checkpoint of the first."""
    trainer.train()
    other = again()
    other.train(resume_from_checkpoint=str(Path(trainer.args.output_dir) / "checkpoint-1"))
    for one, two in zip(weights_of(trainer).values(), weights_of(other).values(), strict=True):
        assert torch.equal(one, two), "a resumed run differs"
    return other


SAVED = {"save_strategy": "steps", "save_steps": 1}
MATRIX: dict[str, Case] = {"L2": Case()}


def weights_of(trainer: MultiAgentGRPOTrainer) -> Weights:
    return {name: p.detach().cpu().float().clone() for name, p in trainer.model.named_parameters()}


def trainer_of(case: Case, folder: Path, *, on_cpu: bool) -> MultiAgentGRPOTrainer:
    path = folder / "model"
    if case.model is not None:
        model = case.model(path)
    else:
        model = str(path) if path.exists() else save_tiny_model(path, byte_tokenizer(), initializer_range=0.1)
    policies = case.policies(model) if callable(case.policies) else case.policies
    own = case.more(folder) if callable(case.more) else case.more
    more = {**({"peft_config": adapter()} if case.has_adapters else {}), **own}
    init = (
        {"model_init_kwargs": {"attn_implementation": "eager", "dtype": case.dtype}} if isinstance(model, str) else {}
    )
    args = MultiAgentGRPOConfig(
        str(folder / ("cpu" if on_cpu else "device")), **{**SHORT, **init, **case.options, "use_cpu": on_cpu}
    )
    more.setdefault("train_dataset", Dataset.from_dict({"seed": range(16)}))
    return MultiAgentGRPOTrainer(model, env=case.env, args=args, policies=policies, **more)


def trained(case: Case, folder: Path, device: WatchedDevice, *, on_cpu: bool) -> tuple[Weights, Weights, Any]:
    """The weights after a training and before it, and the trainer, which has marks of its phases."""

    def make() -> MultiAgentGRPOTrainer:
        return trainer_of(case, folder, on_cpu=on_cpu)

    torch.manual_seed(0)
    trainer = make()
    start = weights_of(trainer)
    trainer.marks = marks_of(trainer, device)
    device.waits.clear()
    device.autocast_results.clear()
    with sdpa_kernel(SDPBackend.MATH):  # as on the device, which has no other
        if case.run is None:
            trainer.train()
        else:
            trainer = case.run(trainer, make)
    trainer.waits = list(device.waits)
    return weights_of(trainer), start, trainer


def marks_of(trainer: MultiAgentGRPOTrainer, device: WatchedDevice) -> list[tuple[str, int]]:
    """Names of moments, and how often the host had waited by then; filled while the trainer trains."""
    marks: list[tuple[str, int]] = []

    def mark(owner: Any, name: str, before: str | None, after: str) -> None:
        method = getattr(owner, name)

        def marked(*args: Any, **kwargs: Any) -> Any:
            if before is not None:
                marks.append((before, len(device.waits)))
            result = method(*args, **kwargs)
            marks.append((after, len(device.waits)))
            return result

        setattr(owner, name, marked)

    mark(trainer, "_generate_single_turn", "sample", "sampled")
    mark(trainer, "prepare_generation", "generation", "prepared")
    mark(trainer, "_compute_loss", "pass", "forward")
    mark(trainer.scorer, "_packed", "score", "scored")
    mark(trainer.accelerator, "backward", None, "backward")
    mark(trainer, "_get_grad_norm", None, "step")
    return marks


def phases_of(marks: list[tuple[str, int]], waits: Sequence[Wait]) -> dict[str, list[tuple[int, int]]]:
    phases: dict[str, list[tuple[int, int]]] = {}
    for (one, start), (two, end) in pairwise(marks):
        places = [wait.place for wait in waits[start:end]]
        ours, of_trl = sum("pettingllms_" in each for each in places), sum(each.startswith("trl/") for each in places)
        phases.setdefault(f"{one} to {two}", []).append((ours, of_trl))
    return phases


def check(name: str, folder: Path, device: WatchedDevice) -> Report:
    """Train a case on both, and compare."""
    case = MATRIX[name] if name in MATRIX else importlib.import_module("slow_trainings").SLOW[name]
    report = Report(name)
    try:
        expected, _, _ = trained(case, folder, device, on_cpu=True)
        found, start, trainer = trained(case, folder, device, on_cpu=False)
        report.autocast = sorted((name, str(dtype)) for name, dtype in device.autocast_results)
        report.phases = phases_of(getattr(trainer, "marks", []), trainer.waits)
        report.waits = [(wait.kind, wait.place, number) for wait, number in Counter(trainer.waits).items()]
        assert {each.device.type for each in trainer.model.parameters()} == {"mlu"}
        report.difference = max(float((found[each] - expected[each]).abs().max()) for each in expected)
        report.moved = max(float((found[each] - start[each]).abs().max()) for each in start)
        losses = torch.tensor([each["loss"] for each in trainer.state.log_history if "loss" in each])
        report.is_finite = all(bool(each.isfinite().all()) for each in (losses, *found.values()))
    except Exception:  # noqa: BLE001  # reported
        report.error = traceback.format_exc()
    return report


def main(device: WatchedDevice, folder: str, *names: str) -> None:
    warnings.simplefilter("ignore")
    cost.TOKEN_PRICES = {"cpu": 8.0, "cuda": 8.0}  # the layout is to be the same on both
    with (Path(folder) / "reports.jsonl").open("a") as file:
        for name in names:
            (Path(folder) / name).mkdir()
            file.write(json.dumps(asdict(check(name, Path(folder) / name, device))) + "\n")
            file.flush()
