"""Runs a study's `prepare` command: once for each folder that it is to write, such as a seed's warmed-up model."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pettingllms_trl.research.study.plans.plan import filled


MARKER = ".prepared"
"""A file that is written last, with the command; a folder without it is incomplete."""


def folder_of(prepare: str | None, *, environment: str, seed: int, work: Path) -> Path | None:
    """The folder that a run's command writes, for all runs for which the command is the same. `None` without one."""
    if prepare is None:
        return None
    parts = [environment] * ("{environment}" in prepare) + [str(seed)] * ("{seed}" in prepare)
    return (work / "prepared").joinpath(*(parts or ["all"])).absolute()


def command_of(prepare: str, *, environment: str, seed: int, folder: Path) -> list[str]:
    """The command with its placeholders replaced, as a list of arguments."""
    words = shlex.split(prepare)
    return [filled(word, seed=seed, environment=environment, folder=str(folder)) for word in words]


def is_prepared(folder: Path, command: Sequence[str]) -> bool:
    """Whether the folder holds the complete output of this command."""
    marker = folder / MARKER
    return marker.is_file() and marker.read_text("utf-8") == shlex.join(command)


def prepare(folder: Path, command: Sequence[str]) -> None:
    """Run the command into an empty folder; `RuntimeError` if it fails."""
    if folder.exists():  # the output of another command, or of one that was killed
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    # `python` is this interpreter, also where its environment is not activated.
    own = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    process = subprocess.Popen(command, env=own)
    try:
        status = process.wait()
    finally:
        if process.poll() is None:  # this process is being stopped
            process.terminate()
            process.wait()
    if status != 0:
        raise RuntimeError(f"prepare failed with status {status}: {shlex.join(command)}")
    (folder / MARKER).write_text(shlex.join(command), "utf-8")
