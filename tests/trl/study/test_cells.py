"""One run of a study on a tiny model: what its result has, and that a stopped run goes on to the same result."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from pettingllms_envs.agents import file_digest
from pettingllms_envs.research.studies.results import Cell
from pettingllms_trl.records import Episode
from pettingllms_trl.research.study import cells
from pettingllms_trl.research.study.cells import Stopped, check, check_spent, held_out, portions, run_cell, successes
from pettingllms_trl.research.study.machine import CpuSeconds, code, processor
from pettingllms_trl.research.study.plans.plan import PlannedRun


CELL = Cell(phase="evaluation", environment="grid", method="ours", seed=3)
TRAIN: dict[str, Any] = {
    "model_name_or_path": "{folder}",
    "env_id": "plan_path",
    "env_kwargs": {"size": 4, "num_turns": 1},
    "train_seeds": [0, 100],
    "train_split": "train",
    "eval_seeds": [0, 6],
    "eval_split": "test",
    "seed": 3,
    "num_generations": 2,
    "per_device_train_batch_size": 2,
    "max_completion_length": 4,
    "learning_rate": 0.01,
    "lr_scheduler_type": "constant",
    "max_steps": 1000,
    "logging_steps": 1,
    "save_steps": 1,
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
}


def run_of(*, tokens: int = 30, trained: bool = True, points: int = 2, **fields: Any) -> PlannedRun:
    config = {
        "train": {**TRAIN, **fields},
        "trained": trained,
        "prepare": None,
        "tokens": tokens if trained else 0,
        "curve": {"points": points if trained else 0, "instances": 3},
    }
    return PlannedRun(cell=CELL, config=config)


class StopsAt(TrainerCallback):
    """Sends this process a SIGTERM at a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.usefixtures("signals_on_purpose")
@pytest.mark.slow
def test_a_run_trains_until_its_tokens_are_spent_and_a_stopped_one_goes_on_to_the_same_result(
    roomy_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of()
    whole = run_cell(run, tmp_path / "whole", Path(roomy_path))
    assert whole.cell == CELL
    assert (len(whole.success), set(whole.success) <= {"0", "1"}) == (6, True)
    # A step has a row of 2 agents with 2 candidates of up to 4 tokens: at most 16, so 30 take two steps or more.
    assert 30 <= whole.tokens < 30 + 16
    assert whole.steps >= 2
    assert (whole.rows, whole.uses) == (whole.steps, 1.0)
    assert whole.seconds > 0
    assert whole.curve["tokens"][0] == 0.0
    assert whole.curve["tokens"][-1] == whole.tokens
    assert len(whole.curve["tokens"]) == 3  # at the start, at half of the tokens, at the end
    assert whole.training["tokens"][-1] == whole.tokens
    assert (tmp_path / "whole" / "team" / "team.json").is_file()
    assert not (tmp_path / "whole" / "output").exists()

    made = cells.make_trainer

    def stopping(*args: Any) -> Any:
        trainer = made(*args)
        trainer.add_callback(StopsAt(1))
        return trainer

    with monkeypatch.context() as patched:
        patched.setattr(cells, "make_trainer", stopping)
        with pytest.raises(Stopped, match="stopped by SIGTERM at step 1"):
            run_cell(run, tmp_path / "stopped", Path(roomy_path))
    assert (tmp_path / "stopped" / "output" / "checkpoint-1").is_dir()
    spent = float((tmp_path / "stopped" / "cpu_seconds").read_text())
    resumed = run_cell(run, tmp_path / "stopped", Path(roomy_path))
    assert 0 < spent < resumed.cpu_seconds  # the first start's are among them
    assert whole.cpu_seconds > 0
    assert whole.model == resumed.model == file_digest.of_model(Path(roomy_path))
    assert whole.machine["threads"] == torch.get_num_threads()
    same = ("success", "tokens", "steps", "curve")
    assert [getattr(resumed, name) for name in same] == [getattr(whole, name) for name in same]


def test_the_cpu_time_of_a_start_that_does_not_resume_is_its_own(tmp_path: Path) -> None:
    file = tmp_path / "cpu_seconds"
    file.write_text("1000.0")
    assert CpuSeconds(file, resumes=True).total >= 1000
    assert CpuSeconds(file, resumes=False).total < 1000


def test_the_code_has_another_digest_when_a_file_changes_is_added_or_renamed(tmp_path: Path) -> None:
    digests = []
    for step, change in enumerate(("a.py", "b.json", "a.pyc")):
        folder = tmp_path / str(step) / "package"
        shutil.copytree(tmp_path / str(step - 1) / "package", folder) if step else folder.mkdir(parents=True)
        (folder / change).write_text("x = 1")
        digests.append(code((folder,)))
    assert len(set(digests[:2])) == 2
    assert digests[1] == digests[2]  # what Python writes beside it is no source


def test_a_processor_has_the_name_and_the_numbers_that_the_kernel_gives_the_first(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    one = "processor\t: {}\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\n"
    info.write_text(one.format(0) + one.format(1))
    assert processor(info) == "AMD EPYC (family 26, model 2)"
    assert processor(tmp_path / "none") != ""


def test_a_checkpoint_of_another_configuration_is_not_resumed(roomy_path: str, tmp_path: Path) -> None:
    output = tmp_path / "output" / "checkpoint-1"
    output.mkdir(parents=True)
    (tmp_path / "digest").write_text("another")
    result = run_cell(run_of(trained=False), tmp_path, Path(roomy_path))
    assert (result.tokens, result.steps, result.curve, result.training) == (0, 0, {}, {})
    assert len(result.success) == 6
    assert (tmp_path / "digest").read_text() == run_of(trained=False).digest


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"learnin_rate": 1}, "has 'learnin_rate'; expected a field that is known. Did you mean 'learning_rate'"),
        ({"env_kwargs": {"sise": 4}}, "sise"),
        ({"credit": "nowhere.scheme"}, "credit names 'nowhere.scheme'"),
    ],
)
def test_a_mistake_in_a_configuration_is_found_before_a_model_is_loaded(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        check(run_of(**fields), tmp_path)


def episode(**outcome: Any) -> Episode:
    return Episode(instance=0, episode=0, decisions=(), returns={}, outcome=outcome)


def test_successes_are_of_all_instances_or_none() -> None:
    assert successes([episode(success=True), episode(success=False)], 2) == "10"
    with pytest.raises(RuntimeError, match="1 of 2 instances could not be played, as their environment failed"):
        successes([episode(success=True)], 2)
    with pytest.raises(RuntimeError, match=r"the outcome is {'score': 3}; expected a `success`"):
        successes([episode(score=3)], 1)


def test_a_run_that_ends_before_its_tokens_are_spent_is_no_result() -> None:
    check_spent(1000, 1000, 7)
    with pytest.raises(RuntimeError, match=r"after 7 steps and 999 generated tokens; expected 1,000.*max_steps"):
        check_spent(999, 1000, 7)


def test_logs_become_means_of_portions() -> None:
    history = [
        {"rollout/total_sampled_tokens": 10.0, "outcome/success": 0.0, "reward": 1.0},
        {"rollout/total_sampled_tokens": 20.0, "outcome/success": 1.0, "reward": 2.0},
        {"rollout/total_sampled_tokens": 30.0, "outcome/success": 1.0},
    ]
    assert portions(history, 2) == {
        "tokens": [20.0, 30.0],
        "outcome/success": [0.5, 1.0],
        "reward": [1.5, None],
    }
    assert portions([]) == {}


def test_evaluations_during_training_are_read_from_the_log() -> None:
    assert held_out([{"loss": 1.0}, {"step": 2, "held_out/tokens": 7, "held_out": "01"}]) == [(7, "01")]
