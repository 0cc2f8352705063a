"""What the processes below this one cost: those of a sandbox, say, which are not this process's own time; and a call
in one."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar


T = TypeVar("T")


def in_child(call: Callable[..., T], *args: object) -> T:
    """What a function returns in a copy of this process, of which nothing is left here.

    Raises:
        EOFError: It failed; its error is printed.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(call(*args)))
    child.start()
    sender.close()  # else the child's end would not be the last
    found: T = receiver.recv()
    child.join()
    return found


def below() -> float:
    """CPU seconds of all processes below this one, those that have ended included."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        parents[int(name)] = int(fields[1])
        seconds[int(name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    found = 0.0
    for process in parents:
        above = parents[process]
        while above not in (0, os.getpid()):
            above = parents.get(above, 0)
        found += seconds[process] if above else 0.0
    return found
