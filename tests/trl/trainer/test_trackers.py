"""Trackers: nothing is logged before a training begins or after it ends, and each is given what TRL logs."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from datasets import Dataset
from transformers import TrainerCallback
from transformers.integrations import integration_utils
from trl.extras import profiling

from pettingllms_trl import MultiAgentGRPOTrainer
from short_runs import adapter, settings
from third_party import OneShot


class Strict(TrainerCallback):
    """A tracker of which a run begins with `train()` and ends with it, as trackio's does: else it raises."""

    is_running = False
    logged = 0

    def log(self, *_: Any, **__: Any) -> None:
        if not Strict.is_running:
            raise RuntimeError("Call trackio.init() before trackio.log().")
        Strict.logged += 1

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        Strict.is_running = True

    def on_log(self, *_: Any, **__: Any) -> None:
        Strict.is_running = True  # transformers' callbacks begin a run here, too

    def on_train_end(self, *_: Any, **__: Any) -> None:
        Strict.is_running = False


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "trackio", Strict)
    monkeypatch.setattr(profiling, "is_trackio_available", lambda: True)
    monkeypatch.setattr(profiling, "trackio", SimpleNamespace(log=Strict().log), raising=False)
    Strict.is_running, Strict.logged = False, 0
    yield
    Strict.is_running = False


def trained(model: str, path: Path, *, report_to: str, **options: Any) -> MultiAgentGRPOTrainer:
    policies = options.pop("policies", "shared")
    return MultiAgentGRPOTrainer(
        model,
        OneShot,
        settings(path, report_to=report_to, **options),
        Dataset.from_dict({"seed": range(2)}),
        Dataset.from_dict({"seed": range(2)}),
        policies=policies,
        peft_config=adapter() if policies == "lora" else None,
    )


@pytest.mark.parametrize(
    "options",
    [
        {},  # packing is tried when the trainer is created
        {"policies": "lora", "beta": 0.1},  # references, too
        pytest.param({"policies": "full"}, marks=pytest.mark.slow),
        pytest.param({"shared_prefix": False}, marks=pytest.mark.slow),
        pytest.param({"eval_strategy": "steps", "eval_steps": 1, "eval_on_start": True}, marks=pytest.mark.slow),
        pytest.param({"use_transformers_continuous_batching": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_nothing_is_logged_to_a_tracker_outside_a_training(
    options: dict[str, Any], model_path: str, tmp_path: Path, strict: None
) -> None:
    trainer = trained(model_path, tmp_path, report_to="trackio", **options)
    trainer.play([{"seed": 0}])
    assert Strict.logged == 0
    trainer.train()
    assert Strict.logged > 0
    trainer.play([{"seed": 0}])
    Strict.is_running = False
    trainer.evaluate()


def scalars_of_tensorboard(path: Path) -> dict[str, float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (folder,) = {file.parent for file in path.rglob("events.out.tfevents.*")}
    events = EventAccumulator(str(folder))
    events.Reload()
    return {name: events.Scalars(name)[-1].value for name in events.Tags()["scalars"]}


def scalars_of_wandb(path: Path) -> dict[str, float]:
    import wandb

    found = dict(wandb.run.summary)  # the last value of each
    wandb.finish()
    assert list(path.rglob("offline-run-*/*.wandb"))
    return found


def scalars_of_trackio(path: Path) -> dict[str, float]:
    from trackio.sqlite_storage import SQLiteStorage

    (run,) = SQLiteStorage.get_runs("team")
    return {name: value for row in SQLiteStorage.get_logs("team", run) for name, value in row.items()}


READ = {"tensorboard": scalars_of_tensorboard, "wandb": scalars_of_wandb, "trackio": scalars_of_trackio}


@pytest.mark.filterwarnings("default")  # of the trackers
@pytest.mark.parametrize("tracker", READ)
def test_a_tracker_is_given_what_is_logged(
    tracker: str, model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec(tracker) is None:
        pytest.skip(f"{tracker} is not installed: pip install -e '.[trackers]'")
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path),
        "TENSORBOARD_LOGGING_DIR": str(tmp_path / "events"),
        "TRACKIO_DIR": str(tmp_path / "trackio"),
    }.items():
        monkeypatch.setenv(name, value)
    options = {"project": "team", "run_name": "first"} if tracker == "trackio" else {"run_name": "first"}
    trainer = trained(model_path, tmp_path / "out", report_to=tracker, log_completions=True, **options)
    trainer.play([{"seed": 0}])
    trainer.train()
    trainer.evaluate()
    found = READ[tracker](tmp_path)
    logged = trainer.state.log_history[0]
    for name in ("loss", "reward", "rollout/episodes", "agent/solver_0/reward"):
        if name in logged:
            assert found[f"train/{name}"] == pytest.approx(logged[name], abs=1e-6)
    assert "train/reward" in found
