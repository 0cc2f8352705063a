"""What `Sandbox.run_command` costs beside starting the same binary without a sandbox, with the goal.

    PYTHONPATH=. python benchmarks/bench_commands.py --strict

One round runs the binary (`true`) once in each way, one after the other, so that what else the machine does meets all
of them. CPU seconds are the kernel's: of the sandbox those of this process, of the supervisor, the server and the
runner, which are running before the first round, and of the command's own processes. A peer is a small process of its
own (`python -I -S`) with the processes that it starts: by `fork` and `exec`, of which a fork costs less than of this
one, or by `posix_spawn`, which copies no page tables.

Ten rounds before the first read the binary, so nothing waits for a disk.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from figures import Figure, write

from pettingllms_envs.sandbox import Command, Sandbox, SandboxUnavailable, Verdict


GOAL = 0.002
"""CPU seconds of a command over a plain fork and exec, median."""

PEER = """
import os, resource, sys

def cpu():
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)

binary = sys.argv[2]
for line in sys.stdin:
    before = cpu()
    if sys.argv[1] == "fork":
        pid = os.fork()
        if pid == 0:
            os.execv(binary, [binary])
    else:
        pid = os.posix_spawn(binary, [binary], {})
    os.waitpid(pid, 0)
    print(cpu() - before, flush=True)
"""


@dataclass(frozen=True, slots=True)
class Rounds:
    """CPU seconds of each round: ours, a plain fork and exec, `posix_spawn`; and ours by the clock on the wall."""

    confinement: str
    ours: tuple[float, ...]
    fork: tuple[float, ...]
    spawn: tuple[float, ...]
    wall: tuple[float, ...]

    def over(self, peer: tuple[float, ...]) -> float:
        """The median of what ours takes more than a peer in the same round."""
        return statistics.median(ours - theirs for ours, theirs in zip(self.ours, peer, strict=True))


@contextmanager
def peer(way: str, binary: str) -> Iterator[Callable[[], float]]:
    """A function that starts the binary in a peer and returns the CPU seconds of that."""
    command = [sys.executable, "-I", "-S", "-c", PEER, way, binary]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def once() -> float:
            assert process.stdin is not None
            assert process.stdout is not None
            print(file=process.stdin, flush=True)
            return float(process.stdout.readline())

        yield once


def own_cpu() -> float:
    """CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def running_cpu(pids: list[int]) -> float:
    """CPU seconds of processes that are running, and of those below them."""
    total, waiting = 0.0, list(pids)
    while waiting:
        pid = waiting.pop()
        total += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
        waiting += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return total


def ours(box: Sandbox, name: str) -> tuple[float, float]:
    """CPU and wall seconds of a command in the sandbox, by all that take part in it."""
    pids = box.pids()
    others, before, began = running_cpu(pids), own_cpu(), time.perf_counter()
    result = box.run_command([name])
    cpu, wall = own_cpu() - before, time.perf_counter() - began
    assert result.verdict == Verdict.FINISHED, result
    return cpu + result.cpu + running_cpu(pids) - others, wall


def measure(confinement: str, num_rounds: int, command: Command) -> Rounds:
    """Interleaved rounds under one confinement.

    Raises:
        SandboxUnavailable: It does not work here.
    """
    with (
        Sandbox(num_slots=1, confinement=confinement, commands=(command,)) as box,
        peer("fork", command.path) as fork,
        peer("spawn", command.path) as spawn,
    ):
        box.start_commands()
        for _ in range(10):
            box.run_command([command.name]), fork(), spawn()
        rows = [(*ours(box, command.name), fork(), spawn()) for _ in range(num_rounds)]
    cpu, wall, forked, spawned = zip(*rows, strict=True)
    return Rounds(confinement, cpu, forked, spawned, wall)


def figures(found: list[Rounds]) -> list[Figure]:
    """A row for each confinement; the goal is for the first, which is what a user of this machine gets."""
    saved = []
    for at, rounds in enumerate(found):
        median = statistics.median(rounds.fork)
        over = rounds.over(rounds.fork)
        saved.append(
            Figure(
                name=f"run_command over fork and exec, {rounds.confinement}",
                unit="CPU ms",
                ours=(1000 * (median + over),),
                peer_name="fork and exec",
                peer=(1000 * median,),
                goal="<= 2 ms more" if at == 0 else "",
                met=over <= GOAL if at == 0 else None,
            )
        )
    return saved


def main(report: Callable[[str], None] = print) -> int:
    """Measure and print; with --strict, exit status 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300, help="how often each way starts the binary (300)")
    parser.add_argument("--binary", default="true", metavar="NAME", help="the binary that is started (true)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if the goal is missed")
    args = parser.parse_args()
    command = Command(args.binary)
    found = []
    for confinement in ("namespaces", "user-namespaces", "landlock"):
        try:
            found.append(measure(confinement, args.rounds, command))
        except SandboxUnavailable:
            report(f"{confinement}: not measured, it does not work here (see `pettingllms sandbox`)")
    names = ("ours", "fork", "spawn", "over fork", "over spawn", "wall")
    report(f"\n{'CPU ms, median':18} " + " ".join(f"{name:>{max(6, len(name))}}" for name in names))
    for each in found:
        medians = [statistics.median(times) for times in (each.ours, each.fork, each.spawn)]
        columns = [*medians, each.over(each.fork), each.over(each.spawn), statistics.median(each.wall)]
        cells = [f"{1000 * value:{width}.2f}" for value, width in zip(columns, (6, 6, 6, 9, 10, 6), strict=True)]
        report(" ".join([f"{each.confinement:18}", *cells]))
    report(f"\n{args.rounds} rounds of `{command.path}`, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    met = bool(found) and found[0].over(found[0].fork) <= GOAL
    report(
        f"{'met   ' if met else 'MISSED'} {found[0].confinement if found else 'nothing works here'}; goal: 2.0 more"
    )
    write(args.json, figures(found))
    return int(args.strict and not met)


if __name__ == "__main__":
    sys.exit(main())
