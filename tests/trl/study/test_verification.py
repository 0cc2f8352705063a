"""`pettingllms study --verify`: a finished run is repeated from its own file, which is left alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pettingllms_envs.research.studies.results import Cell, CellResult, digest_of, save
from pettingllms_trl.research.study import schedule, verification


NAME = "evaluation/grid/ours/3"
CONFIG = {"train": {"learning_rate": 0.5}, "prepare": "make {folder} {seed}", "tokens": 20}


def finished(success: str = "0101") -> CellResult:
    cell = Cell(phase="evaluation", environment="grid", method="ours", seed=3, setting={"learning_rate": 0.5})
    return CellResult(
        cell=cell, config=CONFIG, digest=digest_of(CONFIG), success=success, tokens=20, steps=2, seconds=1.0
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The requests that workers would get, in their order; every training ends with `0101`."""
    requests: list[dict[str, Any]] = []

    def run(jobs: schedule.Schedule, *, num_workers: int, report: Callable[..., None]) -> bool:
        while (job := jobs.next()) is not None:
            request = dict(job.request())
            requests.append(request)
            if request["kind"] == "cell":
                save(finished(), Path(request["results"]))
            jobs.finish(job, is_done=True)
            report(job, {"status": "done"}, 1.0)
        return False

    monkeypatch.setattr(schedule, "run", run)
    return requests


@pytest.mark.parametrize(("success", "status", "said"), [("0101", 0, "exactly"), ("0" * 4, 3, "within noise")])
def test_a_run_is_repeated_in_a_folder_of_its_own_with_the_configuration_of_its_file(
    success: str, status: int, said: str, asked: list[dict[str, Any]], tmp_path: Path, capsys: Any
) -> None:
    results, work = tmp_path / "results", tmp_path / "work"
    path = save(finished(success), results)
    before = path.read_bytes()
    left = work / "verify" / "runs" / NAME / "output"  # of an earlier rerun that was killed
    left.mkdir(parents=True)
    assert verification.verify(NAME, results, work) == status
    assert said in capsys.readouterr().out
    first, second = asked
    assert (first["kind"], first["command"]) == ("prepare", ["make", str(work / "prepared" / "3"), "3"])
    assert (second["config"], second["cell"]["setting"]) == (CONFIG, {"learning_rate": 0.5})
    assert second["prepared"] == str(work / "prepared" / "3")
    assert Path(second["folder"]) == work / "verify" / "runs" / NAME
    assert not left.exists()
    assert path.read_bytes() == before
    assert not (work / "runs").exists()


def test_a_rerun_that_fails_is_no_agreement(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(jobs: schedule.Schedule, *, num_workers: int, report: Callable[..., None]) -> bool:
        job = jobs.next()
        report(job, {"status": "failed", "error": "no model"}, 1.0)
        return False

    monkeypatch.setattr(schedule, "run", run)
    save(finished(), tmp_path)
    assert verification.verify(NAME, tmp_path, tmp_path / "work") == 1
    assert "no model; see " in capsys.readouterr().out


@pytest.mark.parametrize("name", ["evaluation/grid/ours/4", "fidelity/grid/ours/3", "study"])
def test_what_is_no_finished_training_is_refused(name: str, tmp_path: Path) -> None:
    save(finished(), tmp_path)
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(ValueError, match=f"--verify is {name}, .*; expected the name of a finished run, such as"):
        verification.finished_run(name, tmp_path)


def test_a_file_whose_configuration_was_edited_is_refused(tmp_path: Path) -> None:
    path = save(finished(), tmp_path)
    content = {**json.loads(path.read_text()), "config": {**CONFIG, "tokens": 99}}
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"but names [0-9a-f]{16}; expected a file as it was written. Restore it"):
        verification.finished_run(NAME, tmp_path)
