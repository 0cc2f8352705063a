"""The plain scripts of examples/ run: on the tiny model and a CPU, for a step; the rest as it stands."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from pettingllms_trl.demonstrations import read


EXAMPLES = Path(__file__).parents[2] / "examples"


def run(
    name: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *arguments: str,
    changes: tuple[tuple[str, str], ...] = (),
) -> None:
    """A script, with these changes of its text, from within a folder."""
    code = (EXAMPLES / name).read_text("utf-8")
    for given, tiny in (('report_to="none"', 'report_to="none", use_cpu=True, bf16=False'), *changes):
        assert given in code
        code = code.replace(given, tiny)
    script = folder / name
    script.write_text(code, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", [name, *arguments])
    runpy.run_path(str(script), run_name="__main__")


def test_sokoban_trains_saves_and_plays_the_test_set(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--steps", "1", "--tests", "1", "--tokens", "4", "--output", "out", "--model"]
    changes = (
        ("num_generations=4", "num_generations=2"),
        ("generation_batch_size=128", "generation_batch_size=2"),
        ("train_batch_size=8", "train_batch_size=2"),
        ("accumulation_steps=8", "accumulation_steps=1"),
    )
    run("train_sokoban.py", tmp_path, monkeypatch, *arguments, model_path, changes=changes)
    assert (tmp_path / "out" / "drafter" / "adapter_model.safetensors").is_file()
    assert capsys.readouterr().out.splitlines()[-1].endswith("of 1 rooms of the test set solved")


def test_a_strangers_environment_trains(model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--steps", "1", "--output", "out", "--model", model_path]
    run("train_stranger.py", tmp_path, monkeypatch, *arguments, changes=(("length=64", "length=4"),))
    assert {path.parent.name for path in (tmp_path / "out").glob("*/adapter_config.json")} == {"first", "second"}


def test_what_is_collected_can_be_read_and_succeeded(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--instances", "3", "--tries", "2", "--tokens", "4", "--model", model_path]
    arguments += ["--env", "pettingllms/sokoban-v0"]
    run("collect_successes.py", tmp_path, monkeypatch, *arguments)
    kept = list(read(tmp_path / "successes.jsonl"))
    assert all(demonstration.success for demonstration in kept)
    said = capsys.readouterr().out
    assert f"of 6 episodes succeeded; {len(kept)} decisions in successes.jsonl" in said
    assert ("Nothing to imitate" in said) is (not kept)
