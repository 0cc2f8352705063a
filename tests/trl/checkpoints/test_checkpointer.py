"""Runs that are interrupted, damaged, or go astray: what is saved, gone on from, skipped, and said."""

from __future__ import annotations

import copy
import errno
import functools
import importlib.metadata
import json
import math
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch import distributed
from transformers import TrainerCallback
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from decisions import decision
from mortal import Mortal, equal, mortal
from moved_weights import weights
from pettingllms_trl.checkpoints import atomic, checkpointer
from pettingllms_trl.checkpoints.atomic import CorruptCheckpoint, verify
from pettingllms_trl.checkpoints.checkpointer import StopSignals
from pettingllms_trl.credit import at_grpo
from pettingllms_trl.credit.statistics import group_statistics
from pettingllms_trl.records import Decision
from pettingllms_trl.trainer.dataloading import EpochSampler
from pettingllms_trl.update.step_guard import SkipRecord, describe_decisions, provenance
from third_party import Relay
from two_processes import FORKS, in_two_processes


class Each(TrainerCallback):
    """Calls a function of the step's number at the end of each step, before anything is logged or saved."""

    def __init__(self, call: Callable[[int], None]) -> None:
        self.call = call

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.call(state.global_step)


class Saves(TrainerCallback):
    """Notes the number of each step after which a checkpoint was saved."""

    def __init__(self, steps: list[int]) -> None:
        self.steps = steps

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps.append(state.global_step)


def checkpoints_in(path: Path) -> list[str]:
    return sorted(folder.name for folder in path.iterdir() if "checkpoint" in folder.name)


@pytest.fixture(scope="module")
def whole(model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Mortal:
    """A run of three steps."""
    trainer = mortal(model_path, tmp_path_factory.mktemp("whole"), steps=3)
    trainer.train()
    return trainer


@pytest.fixture
def saved(whole: Mortal, tmp_path: Path) -> Path:
    """The folder of a run that was stopped after its first step."""
    folder = tmp_path / "saved"
    shutil.copytree(Path(whole.args.output_dir) / "checkpoint-1", folder / "checkpoint-1")
    return folder


# ---- Resuming -----------------------------------------------------------------------------------------------------

INSIDE = {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "num_iterations": 2}  # 4 steps a generation


@pytest.fixture(scope="module")
def inside(model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Mortal]:
    """A run of five steps, of which four are of one generation."""

    @functools.cache
    def made(policies: str) -> Mortal:
        trainer = mortal(model_path, tmp_path_factory.mktemp("inside"), steps=5, policies=policies, **INSIDE)
        trainer.train()
        return trainer

    return made


@pytest.mark.parametrize(
    ("policies", "steps"),
    [
        ("lora", (1, 4)),
        pytest.param("shared", (2, 4), marks=pytest.mark.slow),
        *(pytest.param(each, (1, 2, 3, 4), marks=pytest.mark.slow) for each in ("lora", "shared")),
    ],
)
def test_a_run_resumed_after_any_step_inside_or_between_generations_equals_one_never_interrupted(
    policies: str, steps: tuple[int, ...], inside: Callable[[str], Mortal], model_path: str, tmp_path: Path
) -> None:
    whole = inside(policies)
    assert len(whole.rollouts) == 2
    for step in steps:
        resumed = mortal(model_path, tmp_path / f"from {step}", steps=5, policies=policies, **INSIDE)
        resumed.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-{step}")
        assert equal(weights(whole), weights(resumed))
        assert resumed.rollouts == whole.rollouts[1:]
        for key in ("loss", "grad_norm", "entropy", "learning_rate"):
            logs = [[log[key] for log in run.state.log_history if key in log] for run in (whole, resumed)]
            assert logs[0] == logs[1]


def test_the_batches_of_a_generation_are_saved_inside_it_and_not_at_its_end(inside: Callable[[str], Mortal]) -> None:
    folder = Path(inside("lora").args.output_dir)
    places = [torch.load(folder / f"checkpoint-{step}" / "place_0.pt", weights_only=True) for step in (1, 2, 3, 4)]
    assert [place["micro_step"] for place in places] == [2, 4, 6, 0]
    assert [place["generation"] is not None for place in places] == [True, True, True, False]


def test_a_place_inside_a_generation_of_another_size_is_refused(
    inside: Callable[[str], Mortal], model_path: str, tmp_path: Path
) -> None:
    other = mortal(model_path, tmp_path / "two", gradient_accumulation_steps=2)
    with pytest.raises(
        ValueError, match=r"inside a generation of steps_per_generation=4, but now it is 2. Resume with"
    ):
        other.train(resume_from_checkpoint=inside("lora").args.output_dir + "/checkpoint-1")


def test_the_order_of_an_epoch_is_trls_whichever_epoch_a_process_begins_with() -> None:
    arguments = {"mini_repeat_count": 1, "batch_size": 2, "repeat_count": 2, "seed": 5}
    theirs = RepeatSampler(range(7), **arguments)
    epochs = [list(theirs) for _ in range(4)]
    assert epochs[0] != epochs[1]
    for first in range(4):
        ours = EpochSampler(range(7), **arguments)
        for epoch in range(first, 4):
            ours.epoch = epoch
            assert list(ours) == epochs[epoch]


def test_a_stream_is_resumed_in_the_pass_over_it_in_which_the_run_was(model_path: str, tmp_path: Path) -> None:
    def run(steps: int, checkpoint: str | None = None) -> Mortal:  # each pass: 3 generations of 2 rows
        rows = Dataset.from_dict({"seed": range(6)}).to_iterable_dataset()
        trainer = mortal(model_path, tmp_path, steps=steps, train_dataset=rows, policies="shared", bf16=False)
        trainer.train(resume_from_checkpoint=checkpoint)
        return trainer

    whole, resumed = run(4), run(6, str(tmp_path / "checkpoint-4"))
    rows = [row["seed"] for generation in [whole.rollout_rows[3], *resumed.rollout_rows] for row in generation]
    assert sorted(rows) == [0, 1, 2, 3, 4, 5]
    assert resumed.state.epoch == 1 + 3 / 6


@pytest.mark.filterwarnings("ignore:an optimizer step waits")
def test_a_resumed_run_names_its_generations_as_the_whole_one_does(model_path: str, tmp_path: Path) -> None:
    # Three micro-steps a step, two a generation: generations begin with the micro-steps 0, 2 and 4.
    options = {"per_device_train_batch_size": 4, "steps_per_generation": 2, "gradient_accumulation_steps": 3}
    whole, resumed = (
        mortal(model_path, tmp_path / name, steps=2, policies="shared", bf16=False, **options)
        for name in ("whole", "resumed")
    )
    whole.train()
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-1"))
    assert whole.rollout_names == ["0", "0.1", "1"]
    assert resumed.rollout_names == ["1"]


class Remembers:
    """AT-GRPO whose advantages shrink with the number of its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, decisions: Sequence[Decision], /) -> list[list[float]]:
        self.calls += 1
        return [[value / self.calls for value in values] for values in at_grpo(decisions)]

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls = state["calls"]


def test_what_a_credit_remembers_is_saved_and_resumed(model_path: str, tmp_path: Path) -> None:
    whole = mortal(model_path, tmp_path, steps=3, credit=Remembers())
    whole.train()
    credit = Remembers()
    resumed = mortal(model_path, tmp_path / "resumed", steps=3, credit=credit)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert credit.calls == 3
    assert equal(weights(whole), weights(resumed))


def test_true_resumes_from_the_newest_checkpoint_and_a_flipped_bit_from_the_one_before(
    whole: Mortal, model_path: str, tmp_path: Path
) -> None:
    shutil.copytree(whole.args.output_dir, tmp_path, dirs_exist_ok=True)
    flip(tmp_path / "checkpoint-2" / "closer" / "adapter_model.safetensors")
    (tmp_path / "checkpoint-3").rename(tmp_path / "later")
    resumed = mortal(model_path, tmp_path, steps=3)
    with pytest.warns(UserWarning, match=r"closer/adapter_model.safetensors has the CRC-32 .* next older checkpoint"):
        resumed.train(resume_from_checkpoint=True)
    assert len(resumed.rollouts) == 2
    assert equal(weights(whole), weights(resumed))
    assert checkpoints_in(tmp_path) == ["checkpoint-1", "checkpoint-2", "checkpoint-2.corrupt", "checkpoint-3"]


def test_a_checkpoint_that_does_not_exist_is_refused_with_those_that_do(model_path: str, saved: Path) -> None:
    missing = str(saved / "checkpoint-7")
    with pytest.raises(ValueError, match=r"is '.*checkpoint-7'; expected the folder .* which has checkpoint-1\."):
        mortal(model_path, saved).train(resume_from_checkpoint=missing)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-10] ^= 16
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_refused_where_it_is_named(model_path: str, saved: Path) -> None:
    flip(saved / "checkpoint-1" / "optimizer.pt")
    with pytest.raises(CorruptCheckpoint, match=r"checkpoint-1: optimizer.pt has the CRC-32"):
        mortal(model_path, saved).train(resume_from_checkpoint=str(saved / "checkpoint-1"))


def test_a_checkpoint_that_transformers_saved_is_used_with_a_warning_where_it_is_named(
    model_path: str, saved: Path
) -> None:
    for name in ("manifest.json", "place_0.pt"):
        (saved / "checkpoint-1" / name).unlink()
    resumed = mortal(model_path, saved, steps=2)
    with (
        pytest.warns(UserWarning, match=r"no manifest.json.* It is used, since it was asked for"),
        pytest.warns(UserWarning, match=r"no place_0.pt: training continues from its weights, but not bit for bit"),
    ):
        resumed.train(resume_from_checkpoint=str(saved / "checkpoint-1"))
    assert resumed.state.global_step == 2


def test_a_place_of_another_format_is_refused_with_the_way_out(model_path: str, saved: Path) -> None:
    folder = saved / "checkpoint-1"
    place = torch.load(folder / "place_0.pt", weights_only=True)
    torch.save({**place, "format": 0}, folder / "place_0.pt")
    (folder / "manifest.json").unlink()  # it has the file's checksum
    resumed = mortal(model_path, saved, steps=2)
    with (
        pytest.warns(UserWarning, match="It is used, since it was asked for"),
        pytest.raises(ValueError, match=r"place_0.pt was written by another version .* \(format 0, expected 3\)"),
    ):
        resumed.train(resume_from_checkpoint=str(folder))


def test_a_run_that_was_over_is_resumed_without_another_step(whole: Mortal, model_path: str) -> None:
    resumed = mortal(model_path, Path(whole.args.output_dir), steps=3)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 3
    assert equal(weights(whole), weights(resumed))


def test_resuming_where_nothing_was_saved_is_refused(model_path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no checkpoint\. Set output_dir"):
        mortal(model_path, tmp_path).train(resume_from_checkpoint=True)


def test_starting_anew_beside_the_checkpoints_of_another_run_is_not_silent(model_path: str, saved: Path) -> None:
    with pytest.warns(UserWarning, match="a new training starts beside .*checkpoint-1 of another run"):
        mortal(model_path, saved, steps=1).train()


# ---- Saving -------------------------------------------------------------------------------------------------------


def test_every_file_of_a_checkpoint_is_in_its_manifest_with_the_step_and_the_versions(
    saved: Path,
) -> None:
    folder = saved / "checkpoint-1"
    manifest = json.loads((folder / "manifest.json").read_text())
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {*manifest["files"], "manifest.json"}
    assert {
        "opener/adapter_model.safetensors",
        "closer/adapter_model.safetensors",
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "trainer_state.json",
        "place_0.pt",
    } <= files
    assert manifest["step"] == 1
    assert manifest["packages"]["torch"] == importlib.metadata.version("torch")


@pytest.mark.parametrize(
    ("limit", "left"), [(2, 2), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((None, 4), (1, 1)))]
)
def test_the_newest_checkpoints_are_kept(limit: int | None, left: int, model_path: str, tmp_path: Path) -> None:
    mortal(model_path, tmp_path, save_total_limit=limit).train()
    assert checkpoints_in(tmp_path) == [f"checkpoint-{step}" for step in range(5 - left, 5)]


def test_a_disk_that_fills_up_in_a_save_leaves_the_checkpoint_before(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = mortal(model_path, tmp_path)
    save = trainer._save_rng_state

    def fill(folder: str) -> None:
        if trainer.state.global_step == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(folder)

    monkeypatch.setattr(trainer, "_save_rng_state", fill)
    with pytest.raises(OSError, match="No space left on device"):
        trainer.train()
    assert checkpoints_in(tmp_path) == ["checkpoint-1"]
    verify(tmp_path / "checkpoint-1")


def test_the_best_checkpoint_is_known_by_its_final_name_kept_and_loaded(model_path: str, tmp_path: Path) -> None:
    trainer = mortal(
        model_path,
        tmp_path,
        policies="shared",
        save_total_limit=1,
        eval_strategy="steps",
        eval_steps=1,
        eval_dataset=Dataset.from_dict({"seed": [1]}),
        metric_for_best_model="reward",
        load_best_model_at_end=True,
    )
    rewards = {1: 0.1, 2: 0.9, 3: 0.2, 4: 0.3}
    trainer.evaluate = lambda **_: {"eval_reward": rewards[trainer.state.global_step]}
    after: list[dict[str, torch.Tensor]] = []
    trainer.add_callback(Each(lambda _: after.append(weights(trainer))))
    trainer.train()
    best = tmp_path / "checkpoint-2"
    assert trainer.state.best_model_checkpoint == str(best)
    assert json.loads((best / "trainer_state.json").read_text())["best_model_checkpoint"] == str(best)
    verify(best)
    assert equal(weights(trainer), after[1])


def test_an_upload_is_from_the_folder_in_its_final_place(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = []
    monkeypatch.setattr(
        GRPOTrainer,
        "_push_from_checkpoint",
        lambda _, folder: uploads.append((Path(folder).name, (Path(folder) / "manifest.json").is_file())),
    )
    trainer = mortal(model_path, tmp_path, steps=2)
    trainer.args.push_to_hub = True
    trainer.train()
    assert uploads == [("checkpoint-1", True), ("checkpoint-2", True)]


# ---- Signals ------------------------------------------------------------------------------------------------------


@pytest.fixture
def usual_handlers() -> Iterator[None]:
    """Those of a process in the foreground: a shell starts one in the background with SIGINT ignored."""
    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.SIG_DFL),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("usual_handlers", "signals_on_purpose")
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_ends_the_step_saves_once_evaluates_nothing_and_the_resumed_run_equals_the_whole(
    number: signal.Signals, whole: Mortal, model_path: str, tmp_path: Path
) -> None:
    options = {
        "steps": 3,
        "save_strategy": "epoch",  # at the end of an epoch that the signal cuts short, all would be saved once more
        "eval_strategy": "epoch",
        "eval_dataset": Dataset.from_dict({"seed": [1]}),
    }
    stopped = mortal(model_path, tmp_path / "stopped", **options)
    steps: list[int] = []
    stopped.add_callback(Saves(steps))
    stopped.add_callback(Each(lambda step: signal.raise_signal(number) if step == 2 else None))
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    stopped.train()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert stopped.stopped_by == number.name
    assert stopped.state.global_step == 2
    assert steps == [2]
    assert not [log for log in stopped.state.log_history if "eval_reward" in log]
    resumed = mortal(model_path, tmp_path / "stopped", steps=3)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.stopped_by is None
    assert equal(weights(whole), weights(resumed))


@pytest.mark.usefixtures("usual_handlers", "signals_on_purpose")
def test_a_signal_saves_nothing_where_nothing_is_to_be_saved(model_path: str, tmp_path: Path) -> None:
    trainer = mortal(model_path, tmp_path, save_strategy="no")
    trainer.add_callback(Each(lambda _: signal.raise_signal(signal.SIGTERM)))
    trainer.train()
    assert trainer.state.global_step == 1
    assert checkpoints_in(tmp_path) == []


@pytest.mark.usefixtures("usual_handlers")
def test_a_second_signal_stops_at_once_but_its_echo_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(checkpointer.time, "monotonic", lambda: now[0])
    with StopSignals() as stop:
        for seconds in (0.0, 0.9):
            now[0] = 100.0 + seconds
            signal.raise_signal(signal.SIGINT)
            assert stop.received == "SIGINT"
        now[0] = 101.1
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("usual_handlers")
def test_an_ignored_signal_stays_ignored_and_a_thread_sets_no_handlers() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with StopSignals() as stop:
        signal.raise_signal(signal.SIGINT)
    assert stop.received is None
    seen = []

    def enter() -> None:
        with StopSignals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_the_other_way_to_save_on_sigterm_is_refused(model_path: str, tmp_path: Path) -> None:
    trainer = mortal(model_path, tmp_path)
    trainer.args.enable_jit_checkpoint = True
    with pytest.raises(ValueError, match="enable_jit_checkpoint=True writes into the checkpoint's folder itself"):
        trainer.train()


# ---- Numbers that are not finite ----------------------------------------------------------------------------------


def sicken(patch: pytest.MonkeyPatch, *steps: int, only_the_gradient: bool = False) -> None:
    """From now on TRL's loss, or only its gradient, is not finite in these steps."""
    sound = GRPOTrainer._compute_loss

    def sick(trainer: Any, model: Any, inputs: Any) -> torch.Tensor:
        loss = sound(trainer, model, inputs)
        if trainer.state.global_step + 1 not in steps:
            return loss
        return loss + (loss * 0).sqrt() * 0 if only_the_gradient else loss * math.inf

    patch.setattr(GRPOTrainer, "_compute_loss", sick)


@pytest.mark.parametrize(
    "only_the_gradient", [pytest.param(False, marks=pytest.mark.slow, id="loss"), pytest.param(True, id="gradient")]
)
def test_a_step_that_is_not_finite_moves_neither_weights_nor_optimizer_nor_schedule(
    only_the_gradient: bool, model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sicken(monkeypatch, 2, only_the_gradient=only_the_gradient)
    trainer = mortal(model_path, tmp_path, steps=3)
    states = []

    def keep(_: int) -> None:
        optimizer = copy.deepcopy(trainer.optimizer.state_dict())
        states.append((weights(trainer), optimizer, dict(trainer.lr_scheduler.state_dict())))

    trainer.add_callback(Each(keep))
    trainer.train()
    assert trainer.state.global_step == 3
    first, second, third = states
    assert equal(first[0], second[0])
    assert not equal(second[0], third[0])
    for key, state in first[1]["state"].items():
        assert all(torch.equal(state[name], second[1]["state"][key][name]) for name in state)
    assert [state[2]["last_epoch"] for state in states] == [1, 1, 2]
    logs = [log for log in trainer.state.log_history if "loss" in log]
    assert [log["skipped_steps"] for log in logs] == [0, 1, 1]
    assert logs[1]["learning_rate"] == logs[2]["learning_rate"] < logs[0]["learning_rate"]


@pytest.mark.parametrize(
    ("only_the_gradient", "loss"),
    [(False, r"(-?inf|nan)"), pytest.param(True, r"-?\d\S+", marks=pytest.mark.slow)],
    ids=["loss", "gradient"],
)
def test_after_three_such_steps_in_a_row_training_stops_and_names_step_and_decisions(
    only_the_gradient: bool, loss: str, model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sicken(monkeypatch, 2, 4, 5, 6, only_the_gradient=only_the_gradient)
    trainer = mortal(model_path, tmp_path, steps=9)
    after: list[dict[str, torch.Tensor]] = []
    trainer.add_callback(Each(lambda _: after.append(weights(trainer))))
    with pytest.raises(FloatingPointError) as caught:
        trainer.train()
    message = str(caught.value)
    assert message.startswith(
        "step 6: the loss or its gradient was not finite in 3 steps in a row (gradient norm nan)"
    )
    for agent in ("opener_0", "closer_0"):
        for instance in (0, 1):
            name = rf"\n  {agent}, turn 0 of episode 0 of instance {instance}: loss {loss}(?=\n)"
            assert len(re.findall(name, message)) == 1
    assert equal(weights(trainer), after[2])
    verify(tmp_path / "checkpoint-5")


@pytest.mark.parametrize(
    ("history", "too_many"),
    [
        ("", None),
        ("xx", None),
        ("xxx", "3 steps in a row"),
        ("x.xx", None),
        ("xx.x.xx", None),  # 5 of 7
        ("xx.xx.xx", "6 of the last 8 steps"),
        ("xx.xx" + 95 * "." + "xx", None),  # the first two are longer ago than 100 steps
        ("xx.xx" + 93 * "." + "xx", "6 of the last 100 steps"),
    ],
)
def test_now_and_then_a_step_may_be_skipped_but_not_three_in_a_row_nor_six_of_a_hundred(
    history: str, too_many: str | None
) -> None:
    skips = SkipRecord()
    for step in history:
        skips = skips.after(skipped=step == "x")
    assert skips.too_many == too_many
    assert skips.total == history.count("x")


def test_the_count_of_skipped_steps_is_resumed(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sicken(monkeypatch, 1, 2, 3)
    mortal(model_path, tmp_path, steps=2).train()
    resumed = mortal(model_path, tmp_path, steps=4)
    with pytest.raises(FloatingPointError, match=r"step 3: .* in 3 steps in a row"):
        resumed.train(resume_from_checkpoint=True)


def test_weights_that_are_not_finite_are_never_saved(model_path: str, tmp_path: Path) -> None:
    trainer = mortal(model_path, tmp_path)

    def spoil(step: int) -> None:
        if step == 2:
            with torch.no_grad():
                next(p for n, p in trainer.model.named_parameters() if "lora_B.closer" in n)[0, 0] = math.nan

    trainer.add_callback(Each(spoil))
    with pytest.raises(FloatingPointError, match=r"step 2: 1 trained parameters are not finite, .*lora_B.closer"):
        trainer.train()
    assert checkpoints_in(tmp_path) == ["checkpoint-1"]


pays = partial(decision, "a_0")


def test_the_decisions_of_a_batch_are_named_once_each_whatever_the_order_of_its_rows() -> None:
    decisions = [decision("b_0", [0.0, 1.0], instance=3), pays([0.0, 1.0], turn=1)]
    columns = provenance(decisions, ["a_0", "b_0"])
    assert {name: column.tolist() for name, column in columns.items()} == {
        "instance": [3, 3, 0, 0],
        "episode": [0, 0, 0, 0],
        "turn": [0, 0, 1, 1],
        "agent": [1, 1, 0, 0],
    }
    shuffled = {name: column[[2, 0, 1]] for name, column in columns.items()}
    assert describe_decisions(shuffled, ["a_0", "b_0"]) == [
        "a_0, turn 1 of episode 0 of instance 0",
        "b_0, turn 0 of episode 0 of instance 3",
    ]


# ---- Collapse -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decisions", "advantages", "expected"),
    [
        ([pays([1.0, 1.0]), pays([0.0, 0.0])], [[0.0, 0.0], [0.0, 0.0]], True),
        ([pays([0.1, 0.1, 0.1])], [[-7e-5] * 3], True),  # what rounding makes of equal rewards
        ([pays([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1])], [[0.0, 0.0]], True),  # 0.6000000000000001 and 0.6
        ([pays([0.0], total=0.1 + 0.2), pays([0.0], total=0.3)], [[0.0], [0.0]], True),
        ([pays([1.0, 1.0]), pays([0.0, 0.1])], [[0.0, 0.0], [-0.7, 0.7]], False),
        ([pays([0.0, 1e-3])], [[-5e-4, 5e-4]], False),  # small, with scale_rewards="none"
        ([pays([1.0, 1.0])], [[0.5, 0.5]], False),  # better than a running mean
        ([pays([0.0], total=1.0), pays([0.0], total=1.0)], [[0.0], [0.0]], True),
        ([pays([0.0], total=1.0), pays([0.0], total=2.0)], [[0.0], [0.0]], False),
        ([pays([0.0], total=1.0), pays([0.0], total=2.0, instance=1)], [[0.0], [0.0]], True),
    ],
)
def test_a_generation_teaches_nothing_where_no_group_has_two_rewards_and_no_advantage_is_left(
    decisions: list[Decision], advantages: list[list[float]], expected: bool
) -> None:
    (statistics,) = group_statistics(decisions, advantages).values()
    assert statistics.is_flat is expected


class Indifferent(Relay):
    """Rewards everything alike."""

    def step(self, action: str | None) -> None:
        super().step(action)
        self.rewards = dict.fromkeys(self.rewards, -0.2)


def test_a_collapsed_run_says_so_once(model_path: str, tmp_path: Path) -> None:
    options = {"per_device_train_batch_size": 4, "max_completion_length": 2, "save_strategy": "no"}  # a row a step
    trainer = mortal(model_path, tmp_path, steps=12, env=Indifferent, **options)
    with pytest.warns(UserWarning, match="in 10 generations in a row") as caught:
        trainer.train()
    (said,) = [str(warning.message) for warning in caught if "generations in a row" in str(warning.message)]
    assert said.startswith("step 9: in 10 generations in a row all rewards of each group were equal, so nothing is")
    assert "learnt by opener_0 (-0.2 to -0.2 over all groups of the last), closer_0 (-0.2 to -0.2" in said


# ---- Two processes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["before", "after"])
@FORKS
def test_where_the_main_process_cannot_write_a_checkpoint_it_raises_on_both(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic, {"before": "_temporary", "after": "_put"}[where], full)

    def save(process: int) -> str:
        args = SimpleNamespace(should_save=process == 0, process_index=process)
        own = checkpointer.Checkpointer(args, SimpleNamespace(wait_for_everyone=distributed.barrier), {})  # type: ignore[arg-type]
        with pytest.raises((OSError, RuntimeError)) as raised, own.staged(tmp_path / "run" / "checkpoint-1", step=1):
            assert where == "after"
        assert own.saved_step is None
        return str(raised.value)

    of_main, of_other = in_two_processes(save, tmp_path)
    assert "No space left on device" in of_main
    assert of_other.startswith("process 0 of 2 failed: OSError: ")


@FORKS
def test_two_processes_resumed_inside_their_second_epoch_play_the_rows_that_are_left_of_it(
    model_path: str, tmp_path: Path
) -> None:
    def work(process: int) -> list[int]:  # each epoch: 2 generations of 2 rows
        options = {"steps": 4, "per_device_train_batch_size": 4, "policies": "shared", "bf16": False}
        options["train_dataset"] = Dataset.from_dict({"seed": range(4)})
        runs = [mortal(model_path, tmp_path / name, **options) for name in ("whole", "resumed")]
        for run, checkpoint in zip(runs, (None, str(tmp_path / "whole" / "checkpoint-3")), strict=True):
            run.train(resume_from_checkpoint=checkpoint)
        assert equal(*map(weights, runs))
        whole, resumed = ([[row["seed"] for row in rows] for rows in run.rollout_rows] for run in runs)
        assert set(whole[1]) != set(whole[3])  # the orders of the two epochs
        return [*whole[2], *resumed[0]]

    store = tmp_path / "store"
    store.mkdir()
    for rows in in_two_processes(work, store, seconds=200):
        assert sorted(rows) == [0, 1, 2, 3]
