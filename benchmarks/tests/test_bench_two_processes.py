"""benchmarks/bench_two_processes.py: the same weights by one process and by two, and what it says if they are not."""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from figures import read


bench = pytest.importorskip("bench_two_processes")
torch = pytest.importorskip("torch")


def given(folder: Path, **more: Any) -> argparse.Namespace:
    options = {"device": "cpu", "size": "0.4M", "sampler": "scripted", "steps": 1, "as_gpu": False}
    return argparse.Namespace(**{**options, "out": folder, "base": folder / "base", **more})


def left(*values: float, start: float = 0.0, card: int = 0) -> dict[str, Any]:
    return {
        "before": {"a": torch.full((2,), start)},
        "after": {"a": torch.tensor(values)},
        "seconds": [1.0, 3.0],
        "sampled": 7,
        "trained": 40,
        "memory": 2_000_000,
        "device": "cpu",
        "card": card,
    }


def test_differences_are_of_the_largest_change_of_a_weight() -> None:
    found = bench.compared(left(0.5, -2.0), [left(0.5, -1.5), left(0.5, -1.0)])
    assert found == {"moved": 2.0, "start": 0.0, "difference": 0.25, "between": 0.25}
    assert not bench.is_met(found)
    assert bench.is_met(bench.compared(left(0.5, -2.0), [left(0.5, -2.0)] * 2))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (left(1.0, 1.0), [left(1.0, 1.0), left(1.0, 1.1)]),  # the processes parted
        (left(1.0, 1.0), [left(1.0, 1.0, start=0.5)] * 2),  # they did not begin alike
        (left(0.0, 0.0), [left(0.0, 0.0)] * 2),  # nothing was trained
    ],
)
def test_equal_ends_alone_are_not_the_goal(one: dict[str, Any], two: list[dict[str, Any]]) -> None:
    assert not bench.is_met(bench.compared(one, two))


def test_trainings_with_different_weights_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"weights \['a', 'b'\] in one training alone"):
        bench.difference({"a": torch.ones(1)}, {"b": torch.ones(1)})


@pytest.mark.parametrize(("visible", "device", "seen"), [("2,3", "cuda", "2"), ("", "cuda", ""), ("2", "cpu", "")])
def test_both_processes_see_one_gpu_and_ask_for_no_other(
    visible: str, device: str, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    own = bench.environment(device)
    assert own["CUDA_VISIBLE_DEVICES"] == seen
    assert own["ACCELERATE_BYPASS_DEVICE_MAP"] == "true"


def test_figures_have_one_process_as_their_peer_and_a_goal_where_replies_are_scripted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = left(1.0, 1.0, card=9_000_000), [left(1.0, 1.0, card=20_000_000)] * 2
    found = bench.compared(one, two)
    saved = {each.name.split(": ")[1].split(",")[0]: each for each in bench.figures(given(tmp_path), one, two, found)}
    assert saved["a step"].ours == saved["a step"].peer == (1.0, 3.0)
    assert saved["peak memory of each"].ours == (2.0,)
    assert (saved["the card in use"].ours, saved["the card in use"].peer) == ((20.0,), (9.0,))
    assert (saved["weights' difference to one"].ours, saved["weights' difference to one"].met) == ((0.0,), True)
    sampled = bench.figures(given(tmp_path, sampler="generate"), one, two, found)
    assert not any("weights" in figure.name for figure in sampled)
    bench.report(given(tmp_path), one, two, found)
    assert "the card in use: 9 MB by one process, 20 by two" in capsys.readouterr().out


def test_the_peak_on_a_gpu_is_the_processs_own_and_the_card_is_everybodys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (30, 100))
    assert (bench.peak("cuda"), bench.card("cuda"), bench.card("cpu")) == (5, 70, 0)
    assert bench.peak("cpu") > 1e6


def test_a_process_that_fails_is_an_error_with_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: Any) -> Any:
        assert options["env"]["OMP_NUM_THREADS"] == "1"
        assert "--nproc_per_node=2" in command
        return subprocess.CompletedProcess(command, 1, stdout="", stderr="no room\n")

    monkeypatch.setattr(bench.subprocess, "run", run)
    with pytest.raises(RuntimeError, match="2 processes on cpu ended with status 1, expected 0:\nno room"):
        bench.launched(given(tmp_path), 2)


def test_a_gpu_that_is_not_there_and_no_steps_are_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        bench.main(["--device", "cuda"])
    assert "torch finds no GPU here" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        bench.main(["--steps", "0"])


@pytest.mark.slow  # three processes, a minute
@pytest.mark.parametrize(
    "flags", [(), ("--as-gpu",), ("--sampler", "generate")], ids=["scripted", "as-gpu", "generate"]
)
def test_two_processes_train_as_one(
    flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(Path(bench.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    bench.main(["--steps", "1", "--strict", *flags, "--json", str(tmp_path / "two.json")])
    saved = {each.name.split(": ")[1].split(",")[0]: each for each in read(tmp_path / "two.json")}
    out = capsys.readouterr().out
    assert "differ by 0 of the largest change" in out
    assert saved["a step"].ours[0] > 0
    if "generate" in flags:
        assert saved["tokens sampled"].ours[0] > 0
        return
    assert saved["tokens sampled"].ours == saved["tokens sampled"].peer
    assert saved["tokens read and trained on"].ours == saved["tokens read and trained on"].peer
    assert saved["weights' difference to one"].met is True
