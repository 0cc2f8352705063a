"""Which job of a study is next, and what worker processes do with it."""

from __future__ import annotations

import fcntl
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pettingllms_trl.research.study.preparation import MARKER, command_of, folder_of, is_prepared, prepare
from pettingllms_trl.research.study.schedule import Job, Schedule, Worker, run


def job(name: str, *needs: str, request: Mapping[str, Any] | None = None) -> Job:
    return Job(name=name, needs=needs, request=partial(dict, request or {}))


def test_jobs_come_in_their_order_once_what_they_need_is_done() -> None:
    schedule = Schedule([job("b", "a"), job("a"), job("c", "a"), job("d", "x")], done={"e"})
    first = schedule.next()
    assert first is not None
    assert first.name == "a"
    schedule.finish(first, is_done=True)
    names = []
    for _ in range(2):
        following = schedule.next()
        assert following is not None
        names.append(following.name)
        schedule.finish(following, is_done=True)
    assert names == ["b", "c"]
    assert schedule.next() is None  # d needs what is not there
    assert [each.name for each in schedule.waiting] == ["d"]


def test_what_needs_a_failed_job_is_not_started() -> None:
    schedule = Schedule([job("a"), job("b", "a")], done=set())
    first = schedule.next()
    assert first is not None
    schedule.finish(first, is_done=False)
    assert schedule.next() is None


def test_a_finished_job_is_not_started_again_and_counts_as_done() -> None:
    schedule = Schedule([job("a"), job("b", "a")], done={"a"})
    first = schedule.next()
    assert first is not None
    assert first.name == "b"


def test_a_thread_waits_for_a_job_that_another_one_makes_ready() -> None:
    schedule = Schedule([job("a"), job("b", "a")], done=set())
    first = schedule.next()
    assert first is not None
    threading.Timer(0.05, schedule.finish, [first], {"is_done": True}).start()
    second = schedule.next()
    assert second is not None
    assert second.name == "b"


def test_no_job_is_started_after_the_time_is_over_or_a_stop() -> None:
    assert Schedule([job("a")], done=set(), seconds=0.0).next() is None
    schedule = Schedule([job("a")], done=set())
    schedule.stop()
    assert schedule.next() is None


# ---- Preparation ----------------------------------------------------------------------------------------------------


def test_a_command_has_one_folder_for_all_runs_for_which_it_is_the_same(tmp_path: Path) -> None:
    def folder(command: str | None) -> Path | None:
        return folder_of(command, environment="grid", seed=3, work=tmp_path)

    assert folder("make {folder}") == tmp_path / "prepared/all"
    assert folder("make {folder} {seed}") == tmp_path / "prepared/3"
    assert folder("make {folder} {environment} {seed}") == tmp_path / "prepared/grid/3"
    assert folder(None) is None


def test_a_folder_is_prepared_once_and_again_after_a_kill_or_a_change(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    command = command_of("python -c 'import sys; open(sys.argv[1] + \"/x\", \"a\").write(\"{seed}\")' {folder}",
                         environment="grid", seed=7, folder=folder)  # fmt: skip
    assert not is_prepared(folder, command)
    prepare(folder, command)
    assert is_prepared(folder, command)
    assert not is_prepared(folder, [*command, "--more"])
    (folder / MARKER).unlink()  # killed before it was complete
    prepare(folder, command)
    assert (folder / "x").read_text() == "7"


def test_a_command_that_fails_leaves_no_marker(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"prepare failed with status 3: python -c 'raise SystemExit\(3\)'"):
        prepare(tmp_path / "out", ["python", "-c", "raise SystemExit(3)"])
    assert not (tmp_path / "out" / MARKER).exists()


# ---- Worker processes -----------------------------------------------------------------------------------------------


def request(folder: Path, program: str) -> dict[str, Any]:
    command = [sys.executable, "-c", program]
    return {"kind": "prepare", "folder": str(folder), "command": command, "log": str(folder.with_suffix(".txt"))}


def test_workers_answer_log_what_is_printed_and_leave_a_folder_in_use_alone(tmp_path: Path) -> None:
    jobs = [
        job("good", request=request(tmp_path / "good", "print('hello')")),
        job("bad", request=request(tmp_path / "bad", "raise SystemExit(3)")),
        job("taken", request=request(tmp_path / "taken", "pass")),
        job("never", "bad", request=request(tmp_path / "never", "pass")),
    ]
    answers: dict[str, Any] = {}
    schedule = Schedule(jobs, done=set())
    with open(tmp_path / "taken.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stopped = run(schedule, num_workers=1, report=lambda job, answer, _: answers.update({job.name: answer}))
    assert not stopped
    assert answers["good"] == {"status": "done"}
    assert answers["bad"]["status"] == "failed"
    assert "prepare failed with status 3" in answers["bad"]["error"]
    assert answers["taken"] == {"status": "busy"}
    assert [each.name for each in schedule.waiting] == ["never"]
    assert (tmp_path / "good.txt").read_text() == "hello\n"


def test_the_only_worker_has_one_thread_too_so_that_its_sums_are_those_of_any_other(tmp_path: Path) -> None:
    asked = request(tmp_path / "one", "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['MKL_NUM_THREADS'])")
    run(Schedule([job("one", request=asked)], done=set()), num_workers=1, report=lambda *_: None)
    assert (tmp_path / "one.txt").read_text() == "1 1\n"


def test_a_worker_that_dies_is_a_failure_and_the_next_request_has_a_new_one(tmp_path: Path) -> None:
    worker = Worker({})
    kill = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"
    assert worker.ask(request(tmp_path / "one", kill)) == {
        "status": "failed",
        "error": "the worker process ended with status -9",
    }
    assert worker.ask(request(tmp_path / "two", "pass")) == {"status": "done"}
    worker.stop()
    assert worker.ask(request(tmp_path / "three", "pass")) == {"status": "stopped"}
    worker.close()
