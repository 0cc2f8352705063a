"""What the processes below this one cost: those of a sandbox, say, which are not this process's own time."""

from __future__ import annotations

import os
from pathlib import Path


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
