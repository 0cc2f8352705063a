"""What keeps a long run alive: whole checkpoints, exact resumption, signals that save first, steps that are skipped.

`Survives` stands between TRL's `GRPOTrainer` and `MultiAgentGRPOTrainer`:

| what happens                           | what the run does                                                          |
|----------------------------------------|----------------------------------------------------------------------------|
| `kill -9`, full disk, power cut        | older checkpoints stay whole; `train(resume_from_checkpoint=True)` goes on |
| a checkpoint goes bad on the disk      | it is refused by name and the next older one is used                       |
| SIGTERM, or Ctrl-C                     | ends the optimizer step, saves, returns from `train()`; a second one kills |
| loss or gradient not finite            | skips the step; stops after 3 in a row or 6 of 100 (`skipping.py`)         |
| weights not finite                     | refuses to save them                                                       |
| an agent learns nothing                | says which and why (`monitor.py`)                                          |

A resumed run is bit-equal to one never interrupted (on CPU), also where the checkpoint lies inside a generation.
"""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather_object
from torch import nn

from pettingllms_trl.checkpoints import atomic
from pettingllms_trl.checkpoints.signals import StopSignals
from pettingllms_trl.credit import Advantages, Credit, Stateful
from pettingllms_trl.policies.routing import Routing
from pettingllms_trl.records import Decision, Episode
from pettingllms_trl.trainer.distributed import here
from pettingllms_trl.trainer.monitor import LearningMonitor, warn_above_progress_bar
from pettingllms_trl.trainer.rollout_checks import RolloutAudit
from pettingllms_trl.update.health import Skips
from pettingllms_trl.update.step_guard import SkipsSteps


PLACE_FORMAT = 2
"""Of `_place`. Another one cannot be read."""
_PACKAGES = ("pettingllms", "trl", "transformers", "peft", "accelerate", "torch")


class Survives(SkipsSteps):
    """See the head of this file. `MultiAgentGRPOTrainer` says what it trains; this class, how it lasts."""

    # Set by MultiAgentGRPOTrainer and by GRPOTrainer.
    routing: Routing
    _credit: Credit
    _monitor: LearningMonitor
    _rollout_audit: RolloutAudit | None
    _buffered_inputs: list[Any] | None
    _step: int

    _signals: StopSignals | None = None
    _stopped_by: str | None = None
    _staging: Path | None = None
    _saved_step: int | None = None

    @property
    def stopped_by(self) -> str | None:
        """The signal that ended the last `train()`, of whichever process, `None` if it came to its end."""
        return self._stopped_by

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """TRL's, from a checkpoint that was read to its last byte first.

        Args:
            resume_from_checkpoint: `True`: the newest in `output_dir` that verifies. A path: that one, which must
                verify; without a manifest, as transformers alone saves it, it is used with a warning.
        """
        if self.args.enable_jit_checkpoint:
            raise ValueError(
                "enable_jit_checkpoint=True writes into the checkpoint's folder itself, where a kill leaves half of "
                "it. Leave it False: SIGTERM saves a whole checkpoint here anyway."
            )
        checkpoint = [self._verified(resume_from_checkpoint) if self.is_world_process_zero() else None]
        broadcast_object_list(checkpoint)
        self._saved_step = self._stopped_by = None
        with StopSignals() as self._signals:
            return super().train(checkpoint[0], *args, **kwargs)

    def _verified(self, resume_from_checkpoint: str | bool | None) -> str | None:
        output_dir = Path(self.args.output_dir)
        if resume_from_checkpoint is True:
            newest = atomic.newest(output_dir)
            if newest is None:
                raise ValueError(
                    f"resume_from_checkpoint=True, but {output_dir} has no checkpoint. Set output_dir to that of the "
                    "run to go on with, or leave resume_from_checkpoint out to start anew."
                )
            return str(newest)
        atomic.sweep(output_dir)
        if not resume_from_checkpoint:
            if present := atomic.checkpoints(output_dir):
                warnings.warn(
                    f"training starts anew beside {present[-1]} of another run, and will replace checkpoints of the "
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

    # ---- Saving -----------------------------------------------------------------------------------------------

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """The inherited, into a folder that takes its place only when all of it is on the disk."""
        self._check_weights()
        run_dir = Path(self._get_output_dir(trial))
        final = run_dir / f"checkpoint-{self.state.global_step}"
        with self._staged(final) as folder:
            super()._save_checkpoint(model, trial)
            if not self.args.save_only_model:
                torch.save(self._place(), folder / self._place_name)
            if self.state.best_model_checkpoint == str(folder):
                self.state.best_model_checkpoint = str(final)
                if self.args.should_save:
                    self.state.save_to_json(str(folder / "trainer_state.json"))
        self._saved_step = self.state.global_step
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(final))
        if self.args.should_save:
            best = self.state.best_model_checkpoint
            atomic.rotate(
                run_dir,
                saved=final,
                keep=self.args.save_total_limit,
                protected=() if best is None else [Path(best)],
            )

    @contextmanager
    def _staged(self, final: Path) -> Iterator[Path]:
        """A staged folder of the main process, for all processes, while transformers takes its parent for its own."""
        about = {
            "step": self.state.global_step,
            "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        }
        with ExitStack() as main:
            shared = [main.enter_context(atomic.staged(final, about=about)) if self.args.should_save else final]
            broadcast_object_list(shared)
            self._staging = shared[0].parent
            try:
                yield shared[0]
            finally:
                self._staging = None
            self.accelerator.wait_for_everyone()  # before the main process counts the files
        self.accelerator.wait_for_everyone()  # until the checkpoint is in its place

    def _get_output_dir(self, trial: Any) -> str:
        return super()._get_output_dir(trial) if self._staging is None else str(self._staging)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if self._staging is None:  # an upload goes on while training does: not from a folder about to be renamed
            super()._push_from_checkpoint(checkpoint_folder)

    def _check_weights(self) -> None:
        trained = [(name, here(p)) for name, p in self.model.named_parameters() if p.requires_grad]
        bad = sorted(set(gather_object([name for name, p in trained if not torch.isfinite(p).all()])))
        if bad:
            raise FloatingPointError(
                f"step {self.state.global_step}: {len(bad)} trained parameters are not finite, {bad[0]} first, so no "
                f"checkpoint is saved and training stops. The checkpoints in {self.args.output_dir} are as they were: "
                "resume from the newest with a lower learning rate."
            )

    # ---- Resuming ---------------------------------------------------------------------------------------------

    @property
    def _place_name(self) -> str:
        return f"place_{self.args.process_index}.pt"

    def _place(self) -> dict[str, Any]:
        """What transformers and TRL do not save: where in a generation training stands, and all that counts on.

        Tensors, numbers and strings only, so that it loads with `weights_only=True`.
        """
        micro_step = self._step % (self.args.steps_per_generation * self.num_iterations)
        return {
            "format": PLACE_FORMAT,
            "num_processes": self.accelerator.num_processes,
            "micro_step": micro_step,
            "generation": self._buffered_inputs if micro_step else None,
            "credit": dict(self._credit.state_dict()) if isinstance(self._credit, Stateful) else None,
            "skips": {"lately": list(self._skips.lately), "total": self._skips.total},
            "monitor": self._monitor.state_dict(),
        }

    def _load_optimizer_and_scheduler(self, checkpoint: str) -> None:
        """The inherited, and `_place` with it."""
        super()._load_optimizer_and_scheduler(checkpoint)
        path = Path(checkpoint) / self._place_name
        if not path.is_file():  # of fewer processes; but for a generation's batches it is the same on all
            path = Path(checkpoint) / "place_0.pt"
        if not path.is_file():
            warnings.warn(
                f"{checkpoint} has no {path.name}: training goes on from its weights, but not bit for bit, for the "
                "place within a generation and what the credit remembers are not known.",
                stacklevel=2,
            )
            return
        device = self.accelerator.device
        # torch knows no "cpu:0", as the device of one process among several is called.
        place = torch.load(path, map_location="cpu" if device.type == "cpu" else device, weights_only=True)
        if place.get("format") != PLACE_FORMAT:
            raise ValueError(
                f"{path} was written by another version of pettingllms (format {place.get('format')}, expected "
                f"{PLACE_FORMAT}). Resume with the version in its manifest.json; or remove the file and the manifest, "
                "to go on from the weights, optimizer and step alone."
            )
        num_processes = self.accelerator.num_processes
        if place["generation"] is not None and place["num_processes"] != num_processes:
            raise ValueError(
                f"{checkpoint} was saved inside a generation by {place['num_processes']} processes, but now there are "
                f"{num_processes}. Resume with as many, or from a checkpoint between generations."
            )
        if place["generation"] is not None and len(place["generation"]) != self.args.steps_per_generation:
            raise ValueError(
                f"{checkpoint} was saved inside a generation of steps_per_generation={len(place['generation'])}, but "
                f"now it is {self.args.steps_per_generation}. Resume with the same, or from another checkpoint."
            )
        self._take_place(place)

    def _take_place(self, place: dict[str, Any]) -> None:
        """Go on from what `_place` gave."""
        self._step = place["micro_step"]
        self._buffered_inputs = place["generation"]
        self._skips = Skips(tuple(place["skips"]["lately"]), place["skips"]["total"])
        self._monitor.load_state_dict(place["monitor"])
        if place["credit"] is not None and isinstance(self._credit, Stateful):
            self._credit.load_state_dict(place["credit"])

    # ---- In every step ----------------------------------------------------------------------------------------

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """The inherited; but a run that was over when it was killed stays so, where transformers adds a step."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """The inherited, after each optimizer step and epoch; on a signal, it saves and ends the run."""
        assert self._signals is not None
        received = gather_object([self._signals.received])
        self._stopped_by = next((signal for signal in received if signal is not None), None)
        if self._stopped_by is not None:  # all processes stop at the same step
            self.control.should_evaluate = False
            self.control.should_save = self.args.save_strategy != "no" and self._saved_step != self.state.global_step
            self.control.should_training_stop = True
        super()._maybe_log_save_evaluate(*args, **kwargs)

    def _watch(self, episodes: Sequence[Episode], decisions: Sequence[Decision], advantages: Advantages) -> None:
        """Warn where a generation shows that an agent cannot learn, or that groups are broken."""
        for words in self._monitor.observe(episodes, decisions, advantages):
            if self.is_world_process_zero():
                warn_above_progress_bar(f"step {self.state.global_step}: {words}")
        if self._rollout_audit is not None:
            found = self._rollout_audit.observe(episodes, dict(zip(map(id, decisions), advantages, strict=True)))
            for words in found:
                if self.is_world_process_zero():
                    warn_above_progress_bar(f"step {self.state.global_step}: {words}")
