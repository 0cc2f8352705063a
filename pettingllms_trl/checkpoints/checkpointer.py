"""`Checkpointer`: atomic checkpoints, exact resumption, and a checkpoint when a signal stops the run.

| event                            | what the run does                                                                |
|----------------------------------|----------------------------------------------------------------------------------|
| `kill -9`, full disk, power cut  | older checkpoints stay intact; `train(resume_from_checkpoint=True)` continues    |
| a checkpoint is damaged on disk  | the error names it, and the next older one is used                               |
| SIGTERM, or Ctrl-C               | finishes the step, saves, returns from `train()`; a second signal kills          |
| weights not finite               | raises an error instead of saving them                                           |

A resumed run equals an uninterrupted one bit for bit (on CPU), even if the checkpoint lies inside a generation.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Self

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import TrainerControl, TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from pettingllms_envs.observations import Image
from pettingllms_trl.checkpoints import atomic
from pettingllms_trl.checkpoints.configuration import (
    MODEL,
    Difference,
    RunConfiguration,
    differences,
    is_loaded_from,
    refusal,
    warning,
)
from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.policies.optim import numbers
from pettingllms_trl.processes.on_all import on_all, on_main
from pettingllms_trl.records import Stateful


class StopSignals:
    """A context manager that records the first SIGTERM or SIGINT and restores the previous handlers for the second.

    It does nothing outside the main thread, where Python allows no handlers, and for signals that are ignored.

    Args:
        then: What follows the end of the step, for the message.
    """

    GRACE_SECONDS = 1.0
    """Seconds within which a repeated signal is ignored: a launcher may forward one that the whole group received."""

    def __init__(self, then: str = "saves and stops") -> None:
        self._then = then
        self.received: str | None = None
        self._at = -math.inf
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.received is None:
            self.received, self._at = signal.Signals(number).name, time.monotonic()
            # Past Python's buffers, which the signal may have interrupted.
            os.write(2, f"\n{self.received}: ends this step, {self._then}; once more to stop at once\n".encode())
        elif time.monotonic() - self._at > self.GRACE_SECONDS:
            self.__exit__()
            signal.raise_signal(number)


FORMAT = 3
"""Format of a checkpoint's `place_0.pt`; others cannot be read."""
_PACKAGES = ("pettingllms", "trl", "transformers", "peft", "accelerate", "torch")


class Checkpointer:
    """Saves and restores what transformers and TRL do not: the state of a run's parts, and its place in a generation.

    Args:
        configuration: What decides the run; `None`: unknown, so that nothing is compared.
    """

    def __init__(
        self,
        args: MultiAgentGRPOConfig,
        accelerator: Accelerator,
        parts: Mapping[str, Stateful],
        configuration: RunConfiguration | None = None,
    ) -> None:
        self._args, self._accelerator, self._parts = args, accelerator, parts
        self._configuration = configuration or RunConfiguration()
        self._packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
        self._signals: StopSignals | None = None
        self.stopped_by: str | None = None
        self.saved_step: int | None = None
        self.evaluation_is_due = False
        """Whether a signal has ended the run before its last step was evaluated, with which a resumed one begins."""
        self.staging: Path | None = None
        """The folder in which a checkpoint is being written."""

    # ---- A run ----------------------------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[None]:
        """Catch signals during a call of `train()`."""
        self.saved_step, self.stopped_by, self.evaluation_is_due = None, None, False
        then = "stops without saving (save_strategy is no)" if self._args.save_strategy == "no" else "saves and stops"
        with StopSignals(then) as self._signals:
            yield

    def keep_best(self, state: TrainerState, folder: Path, final: Path) -> None:
        """Name the best checkpoint by the folder that it will have, where it is the one that is being written."""
        if state.best_model_checkpoint == str(folder):
            state.best_model_checkpoint = str(final)
            if self._args.should_save:
                state.save_to_json(str(folder / TRAINER_STATE_NAME))

    def stop_on_signal(self, control: TrainerControl, state: TrainerState) -> None:
        """On a signal to any process, end the run after this step on all, with a checkpoint if the run saves any."""
        assert self._signals is not None
        received = gather_object([self._signals.received])
        self.stopped_by = next((signal for signal in received if signal is not None), None)
        if self.stopped_by is not None:
            # An epoch ends with the signal, too, but is evaluated only where it is whole.
            by_epoch = self._args.eval_strategy == "epoch" and self._args.imitate is None
            is_due = control.should_evaluate and (not by_epoch or float(state.epoch or 0.0).is_integer())
            self.evaluation_is_due |= is_due
            control.should_evaluate = False
            is_saved = self.saved_step == state.global_step and not is_due
            control.should_save = self._args.save_strategy != "no" and not is_saved
            control.should_training_stop = True

    def takes_due_evaluation(self) -> bool:
        """Whether an evaluation is due, which the caller then makes."""
        is_due, self.evaluation_is_due = self.evaluation_is_due, False
        return is_due and self._args.eval_strategy != "no"

    def check_resume(self, resume_from_checkpoint: str | bool | None) -> None:
        """Raise `ValueError` where there is no such checkpoint, or where it is another team's; no weights are read."""
        output_dir = Path(self._args.output_dir)
        there = [path.name for path in atomic.checkpoints(output_dir)]
        if resume_from_checkpoint is True and not any(output_dir.glob("checkpoint-*")):  # damaged ones included
            raise self._has_none()
        if isinstance(resume_from_checkpoint, str) and not Path(resume_from_checkpoint, TRAINER_STATE_NAME).is_file():
            raise ValueError(
                f"resume_from_checkpoint is {resume_from_checkpoint!r}; expected the folder of a checkpoint, or True "
                f"for the newest of {output_dir}, which has {', '.join(there) or 'none'}."
            )
        if resume_from_checkpoint and (there or resume_from_checkpoint is not True):
            checkpoint = output_dir / there[-1] if resume_from_checkpoint is True else Path(resume_from_checkpoint)
            with suppress(atomic.CorruptCheckpoint):  # found where the checkpoint is verified
                self._check_team(checkpoint)

    def _check_team(self, checkpoint: Path) -> None:
        refused = refusal(checkpoint, self._differences(checkpoint) or [])
        if refused is not None:
            raise ValueError(refused)

    def _differences(self, checkpoint: Path) -> list[Difference] | None:
        """`None`: the checkpoint does not say how its run was configured."""
        saved = atomic.manifest(checkpoint).get("configuration")
        if saved is None:
            return None
        found = differences(saved, self._configuration)
        return [each for each in found if each.option != MODEL or not is_loaded_from(checkpoint, each.given)]

    def warn_of_differences(self, checkpoint: Path) -> None:
        """Warn where a run goes on from a checkpoint with another configuration, or where that is unknown."""
        if not self._accelerator.is_main_process or not (checkpoint / atomic.MANIFEST).is_file():
            return  # without a manifest `verified` has warned
        found = self._differences(checkpoint)
        message = (
            f"{checkpoint} was saved by an older version of pettingllms, which did not keep the run's configuration; "
            "whether it is that of this run cannot be checked."
            if found is None
            else warning(checkpoint, found)
        )
        if message is not None:
            warnings.warn(message, stacklevel=2)

    def _has_none(self) -> ValueError:
        return ValueError(
            f"resume_from_checkpoint=True, but {self._args.output_dir} has no checkpoint. Set output_dir to that of "
            "the run to go on with, or leave resume_from_checkpoint out to start a new run."
        )

    def verified(self, resume_from_checkpoint: str | bool | None) -> str | None:
        """The verified checkpoint to resume from, the same on all processes; `None` for a new run.

        Raises:
            ValueError: There is no checkpoint, it is not a folder, or it is of another team.
            CorruptCheckpoint: The given checkpoint is damaged.
        """
        if self._args.enable_jit_checkpoint:
            raise ValueError(
                "enable_jit_checkpoint=True writes into the checkpoint's folder itself, where a kill leaves half of "
                "it. Leave it False: SIGTERM saves a whole checkpoint here anyway."
            )
        return on_main(partial(self._verified, resume_from_checkpoint))

    def _verified(self, resume_from_checkpoint: str | bool | None) -> str | None:
        output_dir = Path(self._args.output_dir)
        if resume_from_checkpoint is True:
            newest = atomic.newest(output_dir)
            if newest is None:
                raise self._has_none()
            self._check_team(newest)
            return str(newest)
        self.check_resume(resume_from_checkpoint)
        atomic.sweep(output_dir)
        if not resume_from_checkpoint:
            if present := atomic.checkpoints(output_dir):
                warnings.warn(
                    f"a new training starts beside {present[-1]} of another run, and will replace checkpoints of the "
                    "same steps. To go on with that run: train(resume_from_checkpoint=True); else choose another "
                    "output_dir.",
                    stacklevel=2,
                )
            return None
        try:
            atomic.verify(Path(resume_from_checkpoint))
        except atomic.NoManifest as error:
            warnings.warn(f"{error}. It is used, since it was asked for.", stacklevel=2)
        return resume_from_checkpoint

    # ---- Saving ---------------------------------------------------------------------------------------------------

    @contextmanager
    def staged(self, final: Path, *, step: int) -> Iterator[Path]:
        """A temporary folder into which all processes write a checkpoint; it is renamed once all of it is on disk."""
        about = {"step": step, "packages": self._packages, "configuration": self._configuration.described()}
        with ExitStack() as main:
            own: AbstractContextManager[Path]
            own = atomic.staged(final, about=about) if self._args.should_save else nullcontext(final)
            shared = on_all(partial(main.enter_context, own))[0]
            self.staging = shared.parent
            try:
                yield shared
            finally:
                self.staging = None
            self._accelerator.wait_for_everyone()  # before the main process counts the files
            on_all(main.close)  # until the checkpoint has its final name
        self.saved_step = step

    def save_state(self, folder: Path, *, micro_step: int, generation: Any) -> None:
        """Write the place within a generation and the state of all parts.

        Tensors, numbers, strings and images only, so that it loads with `weights_only=True`.

        Args:
            micro_step: Micro-step within the generation; 0 between generations.
            generation: The generation's batches, if the checkpoint lies inside one.
        """
        state = {
            "format": FORMAT,
            "num_processes": self._accelerator.num_processes,
            "micro_step": micro_step,
            "generation": generation if micro_step else None,
            "evaluation_is_due": self.evaluation_is_due,
            "parts": {name: dict(part.state_dict()) for name, part in self._parts.items()},
        }
        on_all(partial(torch.save, state, folder / f"place_{self._args.process_index}.pt"))

    def check_finite(self, model: nn.Module, *, step: int) -> None:
        """Raise `FloatingPointError` if a trained weight is not finite."""
        trained = [(name, _local(p)) for name, p in model.named_parameters() if p.requires_grad]
        finite = numbers([torch.isfinite(p).all() for _, p in trained])
        bad = sorted(set(gather_object([name for (name, _), own in zip(trained, finite, strict=True) if not own])))
        if bad:
            raise FloatingPointError(
                f"step {step}: {len(bad)} trained parameters are not finite, {bad[0]} first, so no checkpoint is "
                f"saved and training stops. The checkpoints in {self._args.output_dir} are as they were: resume from "
                "the newest with a lower learning rate."
            )

    def rotate(self, run_dir: Path, *, saved: Path, best: str | None) -> None:
        """Delete the checkpoints that `save_total_limit` does not keep."""
        protected = () if best is None else [Path(best)]
        atomic.rotate(run_dir, saved=saved, keep=self._args.save_total_limit, protected=protected)

    # ---- Resuming -------------------------------------------------------------------------------------------------

    def load_state(self, checkpoint: Path) -> tuple[int, Any] | None:
        """Restore the state of all parts.

        Returns:
            The micro-step within the generation, and the generation's batches. `None`: the checkpoint has no state.
        """
        path = checkpoint / f"place_{self._args.process_index}.pt"
        if not path.is_file():  # saved by fewer processes; apart from a generation's batches all have the same state
            path = checkpoint / "place_0.pt"
        if not path.is_file():
            warnings.warn(
                f"{checkpoint} has no {path.name}: training continues from its weights, but not bit for bit, because "
                "the place within a generation and the state of the credit scheme are unknown.",
                stacklevel=2,
            )
            return None
        device = self._accelerator.device
        # torch knows no "cpu:0", as the device of one process among several is called.
        with torch.serialization.safe_globals([Image]):  # of the rows of a generation
            state = torch.load(path, map_location="cpu" if device.type == "cpu" else device, weights_only=True)
        if state.get("format") != FORMAT:
            raise ValueError(
                f"{path} was written by another version of pettingllms, in an older layout (format "
                f"{state.get('format')}, expected {FORMAT}). Resume with the version in its manifest.json; or remove "
                "the file and the manifest, to go on from the weights, optimizer and step alone."
            )
        generation, num_processes = state["generation"], self._accelerator.num_processes
        if generation is not None and state["num_processes"] != num_processes:
            raise ValueError(
                f"{checkpoint} was saved inside a generation by {state['num_processes']} processes, but now there are "
                f"{num_processes}. Resume with as many, or from a checkpoint between generations."
            )
        num_micro_steps = self._args.steps_per_generation if self._args.imitate is None else len(generation or ())
        if generation is not None and len(generation) != num_micro_steps:
            raise ValueError(
                f"{checkpoint} was saved inside a generation of steps_per_generation={len(generation)}, but now it is "
                f"{self._args.steps_per_generation}. Resume with the same, or from another checkpoint."
            )
        for name, part in self._parts.items():
            if name in state["parts"]:
                part.load_state_dict(state["parts"][name])
        self.evaluation_is_due = state.get("evaluation_is_due", False)
        return state["micro_step"], generation


def _local(parameter: torch.Tensor) -> torch.Tensor:
    """The part of a parameter that this process holds."""
    if isinstance(parameter, DTensor):
        return parameter.to_local()
    return parameter.ds_tensor if hasattr(parameter, "ds_tensor") else parameter  # ZeRO-3's shard
