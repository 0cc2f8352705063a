"""What it costs to run a solution on its tests in the sandbox, beside a process for each test, with the goals.

    PYTHONPATH=. python benchmarks/bench_sandbox.py --strict
    PYTHONPATH=. python benchmarks/bench_sandbox.py --strict --stalls     # and beside eight busy processes: --busy 8
    PYTHONPATH=. python benchmarks/bench_sandbox.py --strict --starts 50 --busy 8

One solution of about thirty lines (a heap and two dynamic programs over 200 integers), 20 tests on standard input, all
answered correctly, or the run ends with an error. CPU seconds are those of the kernel's account, of the trainer's
process and of all that it started; they depend little on what else the machine does, and the clock on the wall does,
which is printed beside them. Peers are run on `--peer-tests` of the tests and counted for 20.

`reference's flags` is the command of PettingLLMs' code worker (commit a054fb18, code_worker.py): `python -X dev -W
default -u` with tracemalloc and fault handler, on a file that imports `io` and `typing`, reads the solution from
another file and runs it with `exec`. The thread, the temporary folder and the `rm -rf` that it adds for each test are
left out. `bwrap` is Bubblewrap around `python -I -S`, where it is installed; it hides its children's CPU time, so its
row has the wall's.

With `--stalls` it measures instead how long each of twenty programs holds a slot that never ends by itself, and with
`--starts` in how many starts the sandbox passes its self-test.
"""

from __future__ import annotations

import bisect
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from figures import Figure, parser_of, write

from pettingllms_envs.sandbox import Limits, Sandbox, SandboxUnavailable, StdinTest, Verdict


SOLUTION = """
import bisect
import heapq
import sys


def main():
    data = list(map(int, sys.stdin.read().split()))
    n, a = data[0], data[1:]
    heap = []
    for x in a:
        heapq.heappush(heap, x)
    ordered = []
    while heap:
        ordered.append(heapq.heappop(heap))
    best = [0] * (n + 1)
    for i in range(1, n + 1):
        before = best[i - 2] if i > 1 else 0
        best[i] = max(best[i - 1], before + a[i - 1])
    tails = []
    for x in a:
        at = bisect.bisect_left(tails, x)
        if at == len(tails):
            tails.append(x)
        else:
            tails[at] = x
    print(best[n], len(tails))
    print(*ordered)


main()
"""
REFERENCE_RUNNER = """
import io, sys, typing
names = {"__name__": "__main__", "List": typing.List, "Tuple": typing.Tuple, "Optional": typing.Optional}
sys.stdin = io.StringIO(sys.stdin.read())
with open("script.py", encoding="utf-8") as file:
    exec(file.read(), names)
"""
NUM_TESTS = 20
REFERENCE_FLAGS = ("-X", "dev", "-W", "default", "-u")
REFERENCE_ENVIRONMENT = {
    "PYTHONFAULTHANDLER": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONWARNINGS": "default",
    "PYTHONTRACEMALLOC": "5",
    "PYTHONIOENCODING": "utf-8",
}
GOALS = {"fork per test": 0.100, "per solution": 1 / 60}
"""CPU seconds of a solution: 20 solutions a second on two cores, and 60 a second on one."""
TIMES_FASTER = 100


@dataclass(frozen=True, slots=True)
class Row:
    """What one way to run a solution costs, in seconds a solution; no CPU time where it is hidden."""

    name: str
    cpu: float | None
    wall: float

    def __str__(self) -> str:
        cost = self.wall if self.cpu is None else self.cpu
        shown = "hidden" if self.cpu is None else f"{1000 * self.cpu:.1f}"
        return f"{self.name:34} {shown:>9} {1000 * self.wall:>10.1f} {1 / cost:>14.1f}"


def make_tests(seed: int = 0) -> list[StdinTest]:
    """The tests, with their answers worked out in another way than the solution's."""
    numbers = random.Random(seed)
    tests = []
    for _ in range(NUM_TESTS):
        a = [numbers.randrange(1000) for _ in range(200)]
        take, skip = 0, 0
        for x in a:
            take, skip = skip + x, max(take, skip)
        tails: list[int] = []
        for x in a:
            at = bisect.bisect_left(tails, x)
            tails[at : at + 1] = [x]
        expected = f"{max(take, skip)} {len(tails)}\n{' '.join(map(str, sorted(a)))}"
        tests.append(StdinTest(f"{len(a)}\n{' '.join(map(str, a))}\n", expected))
    return tests


def below(pids: Sequence[int]) -> float:
    """CPU seconds of the processes, of all that they waited for, and of the same of their children."""
    ticks = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(name) in pids or int(fields[1]) in pids:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def ours(name: str, isolation: str, confinement: str | None, num_solutions: int, tests: list[StdinTest]) -> Row:
    """The sandbox with one slot."""
    with Sandbox(num_slots=1, confinement=confinement) as sandbox:
        level = sandbox.start()
        assert sandbox.run_tests(SOLUTION, tests, isolation=isolation).passed
        wall, cpu = time.perf_counter(), time.process_time() + below(sandbox.pids())
        for _ in range(num_solutions):
            assert sandbox.run_tests(SOLUTION, tests, isolation=isolation).passed
        wall = time.perf_counter() - wall
        cpu = time.process_time() + below(sandbox.pids()) - cpu
    return Row(f"{name} ({level.split('+')[0]})", cpu / num_solutions, wall / num_solutions)


def peer(
    name: str,
    command: Sequence[str],
    environment: dict[str, str],
    tests: list[StdinTest],
    *,
    hidden: bool = False,
    folder: str | None = None,
) -> Row:
    """A process for each test."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    for test in tests:
        run = subprocess.run(
            command, input=str(test.stdin), capture_output=True, text=True, env=environment, check=True, cwd=folder
        )
        assert run.stdout.split() == str(test.expected).split()
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    share = NUM_TESTS / len(tests)
    return Row(name, None if hidden else cpu * share, wall * share)


def peers(tests: list[StdinTest]) -> list[Row]:
    """What others do, without or with isolation."""
    python, clean = sys.executable, {"PATH": os.environ["PATH"]}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "runner.py").write_text(REFERENCE_RUNNER)
        Path(folder, "script.py").write_text(SOLUTION)
        reference = [python, *REFERENCE_FLAGS, "runner.py"]
        rows = [peer("reference's flags", reference, {**os.environ, **REFERENCE_ENVIRONMENT}, tests, folder=folder)]
    rows += [
        peer("python", [python, "-c", SOLUTION], clean, tests),
        peer("python -I -S", [python, "-I", "-S", "-c", SOLUTION], clean, tests),
    ]
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        print("bwrap per test: not measured, Bubblewrap is not installed (apt-get install bubblewrap)")
        return rows
    binds = [word for path in ("/usr", "/lib", "/lib64", sys.base_prefix) for word in ("--ro-bind-try", path, path)]
    wrapped = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", *binds, "--tmpfs", "/tmp"]
    real = os.path.realpath(python)
    rows.append(peer("bwrap + python -I -S", [*wrapped, real, "-I", "-S", "-c", SOLUTION], clean, tests, hidden=True))
    return rows


def measure(num_solutions: int, num_peer_tests: int) -> dict[str, list[Row]]:
    """All rows, ours by mode, under every confinement that works here."""
    tests = make_tests()
    found: dict[str, list[Row]] = {"fork per test": [], "per solution": []}
    modes: list[tuple[str, str, int]] = [
        ("fork per test", "per_test", num_solutions),
        ("per solution", "per_solution", 3 * num_solutions),
    ]
    for confinement in ("namespaces", "user-namespaces", "landlock", "no-open"):
        try:
            for mode, isolation, count in modes:
                found[mode].append(ours(mode, isolation, confinement, count, tests))
        except SandboxUnavailable:
            print(f"{confinement}: not measured, it does not work here (see `pettingllms sandbox`)")
    found["peers"] = peers(tests[:num_peer_tests])
    return found


def goals(found: dict[str, list[Row]]) -> list[tuple[str, bool]]:
    """Each goal in words with what was measured, and whether it is met."""
    best = {mode: found[mode][0].cpu or 0.0 for mode in GOALS if found[mode]}
    lines = [
        (f"{mode}: {1000 * best[mode]:.1f} ms of CPU a solution; goal: at most {1000 * goal:.1f}", best[mode] <= goal)
        for mode, goal in GOALS.items()
        if mode in best
    ]
    if "fork per test" in best:
        times = (found["peers"][0].cpu or 0.0) / best["fork per test"]
        lines.append(
            (f"fork per test: {times:.0f} times the reference's flags; goal: {TIMES_FASTER}", times >= TIMES_FASTER)
        )
    return lines or [("no confinement works here", False)]


def figures(found: dict[str, list[Row]], outcomes: list[tuple[str, bool]]) -> list[Figure]:
    """Each mode of the first confinement that works here, beside each peer."""
    met = {mode: next((met for line, met in outcomes if line.startswith(mode)), None) for mode in GOALS}
    saved = []
    for mode, goal in GOALS.items():
        for row in found[mode][:1]:
            assert row.cpu is not None
            cost, words = 1000 * row.cpu, f"<= {1000 * goal:.1f} ms"
            saved.append(Figure(name=f"{row.name}, {mode}", unit="CPU ms", ours=(cost,), goal=words, met=met[mode]))
            for peer_row in found["peers"]:
                hidden = peer_row.cpu is None
                unit = "wall ms" if hidden else "CPU ms"
                ours_s, theirs_s = (row.wall, peer_row.wall) if hidden else (row.cpu, peer_row.cpu or 0.0)
                is_goal = mode == "fork per test" and peer_row.name == "reference's flags"
                saved.append(
                    Figure(
                        name=f"{row.name}, {mode} / {peer_row.name}",
                        unit=unit,
                        ours=(1000 * ours_s,),
                        peer_name=peer_row.name,
                        peer=(1000 * theirs_s,),
                        goal=f">= {TIMES_FASTER}x" if is_goal else "",
                        met=theirs_s / ours_s >= TIMES_FASTER if is_goal else None,
                    )
                )
    if shutil.which("bwrap") is None:
        absent = "not installed: apt-get install bubblewrap"
        saved.append(Figure(name="bwrap per test", unit="wall ms", peer_name="bwrap + python -I -S", absent=absent))
    return saved


_BURN = "import os, time\ndef burn(s):\n    end = time.process_time() + s\n    while time.process_time() < end: pass\n"
_THREADS = "import hashlib, threading, time\ndef work(): hashlib.pbkdf2_hmac('sha256', b'', b'', {})\n"
STALLS = {
    "a spinner": "while True: pass",
    **{f"{2**n} processes": f"import os\nfor _ in range({n}): os.fork()\nwhile True: pass" for n in (1, 2, 3, 4)},
    "12 processes": "import os\nfor _ in range(11):\n    if os.fork() == 0: break\nwhile True: pass",
    "a tree of processes": "import os\nfor _ in range(4):\n    if os.fork(): os.wait()\nwhile True: pass",
    "orphans of double forks": "import os, time\nfor _ in range(5):\n    if os.fork() == 0:\n        if os.fork():"
    " os._exit(0)\n        while True: pass\ntime.sleep(1000)",
    "spinners and sleepers": "import os, time\nnumber = sum(bool(os.fork()) << n for n in range(3))\n"
    "while number % 2: pass\ntime.sleep(1000)",
    "work below the limit, and sleep": _BURN + "for _ in range(3): os.fork()\nburn(0.1)\ntime.sleep(1000)",
    "work and sleep in turns": _BURN + "for _ in range(3): os.fork()\nwhile True: burn(0.005); time.sleep(0.2)",
    "children that end and are replaced": _BURN + "for _ in range(2): os.fork()\n"
    "while True:\n    if os.fork() == 0: burn(0.02); os._exit(0)\n    os.wait()",
    "threads": "import threading\ndef spin():\n    while True: pass\n"
    "for _ in range(12): threading.Thread(target=spin).start()",
    "threads at a time": _THREADS.format(10**9) + "for _ in range(12): threading.Thread(target=work).start()",
    "threads that end and are replaced": _THREADS.format(20_000)
    + "while True:\n    some = [threading.Thread(target=work) for _ in range(12)]\n"
    "    for each in some: each.start()\n    for each in some: each.join()",
    "yields": "import os\nfor _ in range(3): os.fork()\nwhile True: os.sched_yield()",
    "a pipe that nobody writes": "import os\nr, w = os.pipe()\nfor _ in range(3): os.fork()\nos.read(r, 1)",
    "a byte through a ring of pipes": "import os\npipes = [os.pipe() for _ in range(12)]\nat = 0\n"
    "for n in range(1, 12):\n    if os.fork() == 0: at = n; break\nif at == 0: os.write(pipes[0][1], b'x')\n"
    "while True: os.write(pipes[(at + 1) % 12][1], os.read(pipes[at][0], 1))",
    "a stop of itself": "import os, signal, time\ntry: os.kill(os.getpid(), signal.SIGSTOP)\nexcept OSError: pass\n"
    "time.sleep(1000)",
    "a sleeper": "import time; time.sleep(1000)",
}
"""Programs that would never end, of processes and threads that wait for each other, for nothing, or for a core."""
STALL_LIMITS = Limits(cpu=1.0, wall=3.0)


@contextmanager
def busy(number: int) -> Iterator[None]:
    """As many processes that never wait, each in a session of its own: the kernel shares cores among sessions."""
    spin = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    processes = [subprocess.Popen(spin, start_new_session=True) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def longest_slot(number_busy: int) -> float:
    """Seconds that a test may hold a slot: more than its limit only if others on the machine keep it from a core."""
    alone = max(STALL_LIMITS.wall_seconds, 4 * STALL_LIMITS.cpu) + 1.0
    return 2 * alone if number_busy else alone


def stalls(number_busy: int, report: Callable[[str], None]) -> tuple[list[Figure], list[tuple[str, bool]]]:
    """How long each of `STALLS` holds a slot, as figures and in words, beside so many busy processes."""
    most, figures, outcomes = longest_slot(number_busy), [], []
    with Sandbox(num_slots=1) as sandbox, busy(number_busy):
        sandbox.start()
        report(f"\n{'beside ' + str(number_busy) + ' busy processes':38} {'held s':>7} {'CPU s':>6} {'waited s':>9}")
        for name, program in STALLS.items():
            began = time.perf_counter()
            [result] = sandbox.run_tests(program, [StdinTest("", "1")], limits=STALL_LIMITS).results
            held = time.perf_counter() - began
            report(f"{name:38} {held:7.1f} {result.cpu:6.2f} {result.waited:9.1f}  {result.verdict}")
            goal = f"<= {most:g} s"
            figures.append(Figure(name=f"slot, {name}", unit="s", ours=(held,), goal=goal, met=held <= most))
            outcomes.append((f"{name}: {held:.1f} s; goal: at most {most:g}", held <= most))
    return figures, outcomes


def starts(number: int, number_busy: int) -> tuple[list[Figure], list[tuple[str, bool]]]:
    """In how many of so many starts the sandbox is refused, beside so many busy processes."""
    refused, seconds = 0, []
    with busy(number_busy):
        for _ in range(number):
            began = time.perf_counter()
            with Sandbox(num_slots=1) as sandbox:
                try:
                    result = sandbox.run("")
                    assert result.verdict == Verdict.FINISHED, result
                except SandboxUnavailable as error:
                    print(error)
                    refused += 1
            seconds.append(time.perf_counter() - began)
    line = f"{refused} of {number} starts refused, at most {max(seconds):.1f} s each; goal: none"
    name = f"starts refused, of {number}"
    return [Figure(name=name, unit="starts", ours=(refused,), goal="0", met=not refused)], [(line, not refused)]


def main(report: Callable[[str], None] = print) -> int:
    """Measure and print; with --strict, exit status 1 if a goal is missed."""
    parser = parser_of(__doc__, is_strict=True)
    parser.add_argument("--solutions", type=int, default=20, help="how often the solution is run (20)")
    parser.add_argument("--peer-tests", type=int, default=5, help="how many of the 20 tests the peers run (5)")
    parser.add_argument("--stalls", action="store_true", help="how long programs that never end hold a slot")
    parser.add_argument("--starts", type=int, metavar="N", help="how many of so many starts are refused")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="busy processes beside these two (0)")
    args = parser.parse_args()
    before = os.getloadavg()[0]
    if args.stalls:
        saved, outcomes = stalls(args.busy, report)
    elif args.starts:
        saved, outcomes = starts(args.starts, args.busy)
    else:
        found = measure(args.solutions, args.peer_tests)
        report(f"\n{'one solution, 20 tests':34} {'CPU ms':>9} {'wall ms':>10} {'a second, core':>14}")
        for rows in found.values():
            for row in rows:
                report(str(row))
        outcomes = goals(found)
        saved = figures(found, outcomes)
        report("\nthe goals are for the first confinement above")
    report(f"\n{os.cpu_count()} cores, load {before:.1f} before, {os.getloadavg()[0]:.1f} after\n")
    for line, met in outcomes:
        report(f"{'met   ' if met else 'MISSED'} {line}")
    write(args.json, saved)
    return int(args.strict and not all(met for _, met in outcomes))


if __name__ == "__main__":
    sys.exit(main())
