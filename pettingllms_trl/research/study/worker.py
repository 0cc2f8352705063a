"""A process that runs cells one after another: requests are lines of JSON on its standard input.

    {"kind": "prepare", "folder": "...", "command": [...], "log": "..."}
    {"kind": "cell", "cell": {...}, "config": {...}, "folder": "...", "prepared": "...", "results": ..., "log": ...}

Answers are lines of JSON on its standard output:

    {"status": "done"}  {"status": "failed", "error": "..."}  {"status": "stopped"}  {"status": "busy"}

torch is imported once, for all runs of the process. What training prints goes to the run's log. The process ends when
its input does, also if the process that started it was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TextIO

from pettingllms_envs.research.studies.results import Cell, save
from pettingllms_trl.research.study import preparation
from pettingllms_trl.research.study.plans.plan import PlannedRun


class Busy(Exception):
    """Another process works in the folder."""


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer each request until there are no more."""
    for line in requests:
        request = json.loads(line)
        answers.write(json.dumps(_answer(request)) + "\n")
        answers.flush()


def _answer(request: Mapping[str, Any]) -> dict[str, str]:
    folder = Path(request["folder"])
    try:
        with locked(folder), logged(Path(request["log"])):
            try:
                return _work(request, folder)
            except Exception as error:  # noqa: BLE001  # a run may fail in any way; the others go on
                traceback.print_exc()
                return {"status": "failed", "error": f"{type(error).__name__}: {error}"}
    except Busy:
        return {"status": "busy"}


def _work(request: Mapping[str, Any], folder: Path) -> dict[str, str]:
    if request["kind"] == "prepare":
        if not preparation.is_prepared(folder, request["command"]):  # another study may have finished it meanwhile
            preparation.prepare(folder, request["command"])
        return {"status": "done"}
    from pettingllms_trl.research.study import cells, guesser, supervision  # loads torch
    from pettingllms_trl.research.study.credit_fidelity import fidelity

    run = PlannedRun(cell=Cell(**request["cell"]), config=request["config"])
    prepared = None if request["prepared"] is None else Path(request["prepared"])
    own = guesser.run_guesser if run.config.get("guesser") else cells.run_cell
    own = supervision.run_supervised if run.config.get("supervised") else own
    work = fidelity.measure if run.cell.phase == "fidelity" else own
    try:
        save(work(run, folder, prepared), Path(request["results"]))
    except cells.Stopped:
        return {"status": "stopped"}
    return {"status": "done"}


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from working in the folder, or raise `Busy`; a killed process leaves no lock behind."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(str(folder)) from None
        yield


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Append what this process and its children print to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    before = [os.dup(number) for number in (1, 2)]
    with open(path, "a", encoding="utf-8") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, saved in zip((1, 2), before, strict=True):
            os.dup2(saved, number)
            os.close(saved)


def _exit(*_: object) -> NoReturn:
    """On SIGTERM outside of training, which has a handler of its own: leave `with` and `finally` blocks in order."""
    raise SystemExit(143)


def main() -> None:
    """Serve the process that started this one."""
    signal.signal(signal.SIGTERM, _exit)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
