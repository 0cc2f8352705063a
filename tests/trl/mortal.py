"""A small training run that tests kill, damage and resume: two adapters, a save after every step."""

from __future__ import annotations

import json
import multiprocessing
import signal
import sys
import time
import zlib
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback

from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.checkpoints.atomic import MANIFEST, newest
from short_runs import KeepsRollouts, adapter, settings
from third_party import Relay


BRIEF = partial(Relay, 1)


class Mortal(KeepsRollouts, MultiAgentGRPOTrainer):
    pass


def mortal(model: Any, path: Path, *, steps: int = 4, env: Any = BRIEF, **options: Any) -> Mortal:
    """A trainer of `steps` steps, 2 rows of 4 candidates, each saved; `options` go where they belong."""
    names = ("policies", "credit", "filters", "schedule", "callbacks", "train_dataset", "eval_dataset")
    own = {name: options.pop(name) for name in names if name in options}
    saved = {"max_steps": steps, "lr_scheduler_type": "cosine", "save_strategy": "steps", "save_steps": 1, "seed": 7}
    adapters = own.setdefault("policies", "lora") not in ("shared", "full")
    # Dropout, so that a random state that was not restored would show.
    config = adapter(lora_dropout=0.1)
    return Mortal(
        model=model,
        env=env,
        args=settings(path, **{**saved, "bf16": True, **options}),
        peft_config=config if adapters else None,
        **{"train_dataset": Dataset.from_dict({"seed": range(12)}), **own},
    )


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether weights are the same to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def go_on(trainer: MultiAgentGRPOTrainer, path: Path) -> None:
    """Train from the newest checkpoint in a folder, if there is one."""
    checkpoint = newest(path)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))


def fork(target: Callable[..., None], *args: Any, preload: tuple[str, ...] = ()) -> ForkServerProcess:
    """A process, not started yet, of a clean one that imports torch, TRL and the modules of `preload` once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pettingllms_trl.trainer.trainer", *preload])
    return context.Process(target=target, args=args)


def exit_status(target: Callable[..., None], *args: Any) -> int | None:
    """Of a process of its own that calls the function; that of a signal, negated, which killed it."""
    started = fork(target, *args)
    started.start()
    started.join()
    return started.exitcode


LIVE = {"steps": 8, "steps_per_generation": 2, "gradient_accumulation_steps": 1, "save_total_limit": 2}
"""Every other save lies inside a generation; the last steps are of a second epoch."""


class Reports(TrainerCallback):
    """Says when a save begins, which follows each step here, and when it is over."""

    def __init__(self, says: Connection) -> None:
        self.says, self.saving = says, False

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.says.send("saving")
        self.saving = True

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        self.saving = False
        self.says.send("saved")

    def dawdle(self, event: str, _: Any) -> None:
        """A hook of `sys.addaudithook`: each file operation in a save takes 4 ms more."""
        if self.saving and (event == "open" or event.startswith(("os.", "shutil.", "fcntl."))):
            time.sleep(0.004)


def live(model_path: str, path: Path, says: Connection, slowly: bool) -> None:
    """Train in a process of its own, from the newest checkpoint there is. Says when training and each save begin.

    Args:
        slowly: Each file operation in a save takes 4 ms more, so that a kill finds it in the middle.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    trainer = mortal(model_path, path, **LIVE)
    reports = Reports(says)
    trainer.add_callback(reports)
    if slowly:
        sys.addaudithook(reports.dawdle)
    says.send("training")
    go_on(trainer, path)
    says.send("done")


def forget_configuration(checkpoint: Path) -> None:
    """Make a checkpoint as versions wrote it that did not keep the run's configuration."""
    file = checkpoint / MANIFEST
    content = json.loads(file.read_text())
    del content["configuration"], content["crc32"]
    crc32 = f"{zlib.crc32(json.dumps(content).encode()):08x}"
    file.write_text(json.dumps({**content, "crc32": crc32}))
