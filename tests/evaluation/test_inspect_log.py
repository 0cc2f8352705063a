"""Runs as logs of Inspect: what is in them, and that its own reader and viewer read them (`-m inspect`)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from chat_server import serving
from made_rows import header, row
from pettingllms_envs import cli
from pettingllms_envs.commands.leaderboard import read_board
from pettingllms_envs.evaluation.inspect_log import inspect_log


def exported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of a run with samples, an episode that is an error, a thinking model and a lone surrogate."""
    monkeypatch.chdir(folder)
    with serving(skill=0.6) as server:
        line = f"bench plan_path --model tiny --base-url {server.url} --limit 3 --samples 2 --output run"
        assert cli.main(line.split()) == 0
    lines = Path("run/episodes.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    first["steps"][0] |= {"reply": "\ud800 Moves: U", "reasoning": "so"}
    last = json.loads(lines[-1]) | {
        "success": None,
        "error": {"kind": "refused", "message": "too long", "agent": "planner_0", "step": 0, "reply": None},
    }
    Path("run/episodes.jsonl").write_text("\n".join([json.dumps(first), *lines[1:-1], json.dumps(last)]) + "\n")
    assert cli.main(["export", "run"]) == 0
    (log,) = Path("logs").iterdir()
    return log


def test_a_log_has_a_sample_for_each_episode_with_its_score() -> None:
    rows = [row(0, True, answer="7"), row(1, False, sample=1), row(2, None, error="refused")]
    config = {"agents": {"planner_0": {"kind": "api", "target": "org/m"}}, "instances": {"num": 3}, "samples": 1}
    log = inspect_log(header(**config), rows, "n", lambda digest: b"")
    assert (log["version"], log["status"], log["eval"]["model"]) == (2, "cancelled", "org/m")
    assert [sample["epoch"] for sample in log["samples"]] == [1, 2, 1]
    assert [sample["scores"] for sample in log["samples"]] == [
        {"success": {"value": "C", "answer": "7"}},
        {"success": {"value": "I", "answer": None}},
        None,
    ]
    assert log["samples"][2]["error"]["message"] == "refused: no"
    assert [message["role"] for message in log["samples"][0]["messages"]] == ["user", "assistant"]
    assert log["samples"][0]["messages"][1]["metadata"]["agent"] == "planner_0"
    assert log["results"] == {"total_samples": 3, "completed_samples": 2, "scores": []}
    whole = inspect_log(header(**config), [row(i, i == 0) for i in range(3)], "n", lambda digest: b"")
    assert whole["results"]["scores"][0]["metrics"]["accuracy"]["value"] == pytest.approx(1 / 3)


def test_a_line_that_is_there_twice_is_one_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", "plan_path", "--agents", "oracle", "--limit", "2", "--output", "run"]) == 0
    first = Path("run/episodes.jsonl").read_bytes().splitlines(keepends=True)[0]
    Path("run/episodes.jsonl").write_bytes(first * 2)
    assert cli.main(["export", "run"]) == 0
    (file,) = Path("logs").iterdir()
    log = json.loads(file.read_text())
    assert (log["status"], len(log["samples"]), log["results"]["scores"]) == ("cancelled", 1, [])
    (left_out,) = read_board([Path("run")]).left_out
    assert left_out == ("run", "of 2 episodes 1 are missing; the same command plays them")


def test_an_exported_log_is_utf_8_whatever_the_model_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = json.loads(exported(tmp_path, monkeypatch).read_bytes().decode("utf-8"))
    assert len(log["samples"]) == 6
    assert cli.main(["export", "run"]) == 0  # over its own earlier log
    assert cli.main(["export", "none"]) == 2


@pytest.mark.inspect
def test_inspects_own_reader_reads_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inspect_ai.log import list_eval_logs, read_eval_log, read_eval_log_sample_summaries

    exported(tmp_path, monkeypatch)
    (info,) = list_eval_logs(str(tmp_path / "logs"))
    log = read_eval_log(info)
    assert (log.status, log.eval.task, log.eval.model, log.eval.config.epochs) == (
        "cancelled",
        "plan_path_v0",
        "tiny",
        2,
    )
    assert log.samples is not None
    assert len({(sample.id, sample.epoch) for sample in log.samples}) == 6
    told = [sample for sample in log.samples if sample.scores]
    assert len(told) == 5
    assert log.results is not None
    first = log.samples[0]
    assert first.messages[-1].text == first.output.completion
    assert first.messages[2].role == "assistant"
    assert first.messages[2].content[0].reasoning == "so"
    assert log.samples[-1].error is not None
    assert log.stats.model_usage["tiny"].total_tokens > 0
    assert len(read_eval_log_sample_summaries(info)) == 6


@pytest.mark.inspect
def test_inspects_own_viewer_lists_a_log_and_shows_its_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = exported(tmp_path, monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["-m", "inspect_ai", "view", "start", "--log-dir", str(log.parent), "--port", str(port)]
    viewer = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answer(path: str) -> dict[str, Any]:
        with urlopen(f"http://127.0.0.1:{port}/api/{path}") as response:
            found: dict[str, Any] = json.load(response)
            return found

    try:
        give_up = time.monotonic() + 120
        while True:
            try:
                (listed,) = answer("logs")["files"]
                break
            except URLError:
                assert viewer.poll() is None
                assert time.monotonic() < give_up
                time.sleep(0.2)
        shown = answer(f"logs/{quote(listed['name'], safe='')}")
    finally:
        viewer.kill()
        viewer.wait()
    assert listed["task"] == "plan-path-v0"
    assert [len(shown["samples"]), shown["eval"]["model"]] == [6, "tiny"]
