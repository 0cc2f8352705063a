"""`pettingllms study` in a terminal: what it says before it runs, what it refuses, and a study that is killed."""

from __future__ import annotations

import dataclasses
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_cells import TRAIN

from pettingllms_envs import cli
from pettingllms_envs.research.studies.results import Cell, CellResult, digest_of, read, save
from pettingllms_trl.research.study.plans.plan import Study
from pettingllms_trl.research.study.plans.study_file import read_study, study_of


ROOT = Path(__file__).parents[3]
OWN = ("eval_seeds", "eval_split", "seed", "learning_rate")
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, roomy_path: str) -> Write:
    """Writes a study of a tiny model: two methods of which one is not trained, two seeds, two settings."""

    def written(**fields: Any) -> Path:
        base = {name: value for name, value in TRAIN.items() if name not in OWN}
        copy = f"import shutil, sys; shutil.copytree('{roomy_path}', sys.argv[1] + '/model')"
        content = {
            "base": {**base, "model_name_or_path": "{folder}/model"},
            "environments": {"grid": {"env_id": "plan_path"}},
            "methods": {"ours": {}, "untrained": {"trained": False}},
            "seeds": [1, 2],
            "tokens": 20,
            "curve_points": 1,
            "evaluation": {"split": "test", "instances": 6},
            "tuning": {"vary": {"learning_rate": [0.01, 0.02]}, "seeds": [7], "split": "validation", "instances": 3},
            "prepare": f'python -c "{copy}" {{folder}}',
            "fidelity": {"decisions": 2, "continuations": 2},
            **fields,
        }
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return written


def arguments(file: Path) -> list[str]:
    work = file.parent / "work"
    return [str(file), "--work", str(work), "--results", str(work / "results")]


def finish(study: Study, results: Path, cell: Cell | None = None, **fields: Any) -> CellResult:
    """Leave a made-up result of a run, of the first one of the tuning unless another is named."""
    run = study.run(cell or study.tuning_cells()[0])
    config = {**run.config, **fields}
    made = CellResult(
        cell=run.cell, config=config, digest=digest_of(config), success="001", tokens=20, steps=2, seconds=1.0
    )
    save(made, results)
    return made


def test_a_dry_run_lists_the_runs_and_says_what_they_can_show(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write()
    finish(read_study(file), file.parent / "work" / "results")
    assert cli.main(["study", *arguments(file), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "mine: 6 runs, of which 1 are finished" in said
    assert "The 5 runs that are left take a time that is not known yet" in said
    assert "With 2 seeds, 6 instances and 1 comparison, the study can tell no difference (in 80%" in said
    assert "finished tuning/grid/ours/learning_rate=0.01/7\nto run   tuning/grid/ours/learning_rate=0.02/7" in said
    assert not (file.parent / "work" / "results" / "study.json").exists()


def test_a_dry_run_says_how_many_hours_are_left_and_what_primary_comparisons_can_show(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    primary = [{"environment": "grid", "methods": ["ours", "untrained"]}]
    file = write(primary=primary, primary_seeds=[1, 2, 3])
    results = file.parent / "work" / "results"
    save(dataclasses.replace(finish(read_study(file), results), cpu_seconds=1800.0), results)
    assert cli.main(["study", *arguments(file), "--dry-run"]) == 0
    said = capsys.readouterr().out
    # Two tuning runs and three seeds of two methods; seven are left, of half an hour as the one that is finished.
    assert "mine: 8 runs, of which 1 are finished" in said
    assert "The 7 runs that are left take about 3.5 CPU hours" in said
    assert "With 3 seeds, 6 instances and 1 primary comparison, the study can tell" in said


def test_results_under_other_primary_comparisons_are_refused(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    study = read_study(write())
    cell = dataclasses.replace(study.outline().cells()[0], setting={"learning_rate": 0.02})
    file = write(primary=[{"environment": "grid", "methods": ["ours", "untrained"]}])
    finish(study, file.parent / "work" / "results", cell=cell)
    assert cli.main(["study", *arguments(file), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "was made with another configuration (primary: null there, {" in said
    assert "expected results of the study as it is now." in said


def test_a_result_of_another_configuration_is_refused_in_words(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write()
    finish(read_study(file), file.parent / "work" / "results", tokens=99)
    assert cli.main(["study", *arguments(file)]) == 2
    said = capsys.readouterr().err
    assert "was made with another configuration (tokens: 99 there, 20 here); expected results of the study as" in said


@pytest.mark.parametrize("option", [[], ["--fidelity"]])
def test_an_evaluation_of_another_configuration_is_refused_while_its_tuning_is_not_finished_too(
    option: list[str], write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write()
    study, results = read_study(file), file.parent / "work" / "results"
    tuned = dataclasses.replace(study.outline().cells()[0], setting={"learning_rate": 0.02})
    finish(study, results, cell=tuned, tokens=99)
    assert cli.main(["study", *arguments(file), *option, "--dry-run"]) == 2
    assert "was made with another configuration (tokens: 99 there, 20 here)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"methods": {"ours": {"credid": "loo"}}}, "ours in grid: .* has 'credid'; .* Did you mean 'credit'"),
        ({"environments": {"grid": {"env_id": "plan_pth"}}}, "ours in grid: .*plan_pth"),
        ({"tokens": -1}, "tokens is -1; expected an integer of 1 or more"),
    ],
)
def test_a_mistake_is_said_in_one_line_before_anything_runs(
    fields: dict[str, Any], message: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["study", *arguments(write(**fields)), "--dry-run"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert re.search(message, line)


def test_a_selection_that_matches_nothing_and_a_missing_file_say_what_to_do(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(["study", *arguments(write()), "--only", "gird"]) == 2
    assert "--only is ['gird']; expected parts of a run's name, such as tuning/grid/ours" in capsys.readouterr().err
    assert cli.main(["study", *arguments(write()), "--verify", "evaluation/grid/ours/1"]) == 2
    assert (
        "grid/ours/1.json is no result of a training; expected the name of a finished run" in capsys.readouterr().err
    )
    assert cli.main(["study", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err


def test_a_study_inherits_and_shows_what_it_resolves_to(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    file = write()
    file.rename(file.with_name("base.yaml"))
    file.write_text("defaults: base.yaml\ntokens: 40\nbase:\n  learning_rate: 1e-2\n")
    assert cli.main(["study", *arguments(file), "--show"]) == 0
    shown = capsys.readouterr().out
    (line,) = [line for line in shown.splitlines() if line.startswith("tokens:")]
    assert line.split() == ["tokens:", "40", "#", f"{file},", "line", "2"]
    assert "  learning_rate: 0.01 " in shown
    file.with_name("whole.yaml").write_text(shown)
    assert read_study(file.with_name("whole.yaml")).base == read_study(file).base
    assert read_study(file).tokens == 40


def test_the_study_of_the_documentation_is_one() -> None:
    page = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    block, small = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    assert study_of(yaml.safe_load(small), name="study").tokens == 800
    study = study_of(yaml.safe_load(block), name="study")
    assert study.methods_of("large") == ["at_grpo", "grpo", "single", "untrained"]
    assert study.outline().num_comparisons == 4 + 3


@pytest.mark.slow
def test_a_study_that_is_killed_goes_on_and_its_report_has_everything(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write()
    work = file.parent / "work"
    command = [sys.executable, "-m", "pettingllms_envs.cli", "study", *arguments(file), "--jobs", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        deadline = time.monotonic() + 300
        while not list((work / "results").rglob("7.json")):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
    first = {path: path.stat().st_mtime_ns for path in (work / "results").rglob("7.json")}
    assert cli.main(["study", *arguments(file), "--jobs", "2"]) in (0, 1)  # 1: a worker of the first is still at it
    assert cli.main(["study", *arguments(file)]) == 0
    assert all(path.stat().st_mtime_ns == at for path, at in first.items())
    outline = read_study(file).outline()
    results = [read(cell.path(work / "results"), CellResult) for cell in outline.cells()]
    assert [len(result.success) for result in results] == [6] * 4
    assert {label for result in results for label in result.cell.setting.values()} <= {0.01, 0.02}
    capsys.readouterr()
    assert cli.main(["report", str(work / "results"), "--out", str(file.parent / "report")]) == 0
    assert "| ours | " in capsys.readouterr().out
    assert (file.parent / "report" / "report.html").is_file()
    assert cli.main(["study", *arguments(file), "--fidelity"]) == 0
    said = capsys.readouterr().out
    assert "fidelity/grid/ours/1: rank correlation" in said
    assert "1 done, 0 failed, 0 left" in said
