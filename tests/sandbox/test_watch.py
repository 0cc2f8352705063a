"""Programs that hold a slot by sleeping, programs that take memory by forking: how long, how much, in every way."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pettingllms_envs.sandbox import CONFINEMENTS, Limits, Sandbox, SandboxUnavailable, StdinTest, Verdict
from pettingllms_envs.sandbox.inside import cgroup, watch


TEST = [StdinTest("", "1")]
MEMORY = 256 << 20

FORKS = """
import os, time
for _ in range({}):
    if os.fork() == 0:
        held = bytearray(230 << 20)
        time.sleep(1)
        os._exit(0)
try:
    while True: os.wait()
except ChildProcessError:
    print(1)
"""


def thread(files: dict[str, bytes]) -> float:
    return watch._thread_waited("t", lambda path: files.get(path, b""))


def status(switches: int) -> bytes:
    return b"Name:\tpython\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t%d\n" % switches


def stat(ticks: int) -> bytes:
    """`/proc/PID/stat` of a program named `a) b` with this user time, and none of the system's."""
    return b"12 (a) b) R " + b" ".join([b"1"] * 10) + b" %d 0 " % ticks + b" ".join([b"0"] * 30)


@pytest.mark.parametrize(
    ("files", "seconds"),
    [
        ({"t/schedstat": b"450000000 1250000000 93\n"}, 1.25),  # on a core, on the queue (ns), time slices
        (
            {"t/schedstat": b"450000000 0 1\n", "t/status": status(40), "t/stat": stat(45)},
            0.0,
        ),  # measured: no estimate
        ({"t/status": status(40), "t/stat": stat(45)}, 0.4),  # 40 times 10 ms
        ({"t/schedstat": b"0 0 0\n", "t/status": status(40), "t/stat": stat(45)}, 0.4),  # a kernel that counts nothing
        (
            {"t/status": status(10**6), "t/stat": stat(29)},
            1.0,
        ),  # made way on purpose: (0.29 + 0.01) / 3 ms times 10 ms
        ({}, 0.0),  # it has ended
    ],
)
def test_waiting_is_what_the_kernel_measured_or_an_estimate_from_involuntary_switches(files, seconds):
    assert thread(files) == pytest.approx(seconds)


def test_the_cpu_seconds_of_a_process_are_the_kernels():
    before, began = watch.ran(os.getpid()), time.process_time()
    while time.process_time() - began < 0.05:
        pass
    assert 0.03 < watch.ran(os.getpid()) - before < 0.5
    assert watch.ran(2**22 + 1) == 0.0, "there is no such process"


def test_a_group_is_looked_for_in_our_own_cgroup_and_above_it(tmp_path: Path):
    own = tmp_path / "own"
    own.write_text("5:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab\n0::/user.slice/run.scope\n")
    assert list(cgroup._parents("/cg", str(own))) == [
        (1, "/cg/memory/docker/ab"),
        (1, "/cg/memory"),
        (2, "/cg/user.slice/run.scope"),
        (2, "/cg/user.slice"),
        (2, "/cg"),
    ]


def test_where_no_group_can_be_made_there_is_none_and_nothing_is_left(tmp_path: Path):
    own = tmp_path / "own"
    own.write_text("0::/\n")
    (tmp_path / "cg").mkdir()  # an ordinary folder: a group made in it has no files
    assert cgroup.make(str(tmp_path / "cg"), str(own)) is None
    assert list((tmp_path / "cg").iterdir()) == []


def test_the_kernels_limit_is_an_eighth_above_the_programs_or_32_mib():
    assert cgroup.most_bytes(1 << 30) == 1152 << 20
    assert cgroup.most_bytes(64 << 20) == 96 << 20


@contextmanager
def made(confinement: str, memory: str) -> Iterator[Sandbox]:
    with Sandbox(num_slots=1, confinement=confinement, memory=memory) as sandbox:
        try:
            sandbox.start()
        except SandboxUnavailable:
            pytest.skip(f"no {memory} in {confinement} on this machine")
        assert sandbox.describe()["memory"].startswith(memory)
        yield sandbox


def held_together(sandbox: Sandbox, memory: str) -> int:
    """Bytes that the programs in a sandbox hold now, shared pages shared out; of a cgroup, what they held at most.

    Of processes that the kernel kills one after another, one look after another would count some too many.
    """
    if memory == "cgroup":
        folders = [each for pid in sandbox.pids() for each in Path("/sys/fs/cgroup").rglob(f"{cgroup.PREFIX}{pid}")]
        peaks = [each / name for each in folders for name in ("memory.max_usage_in_bytes", "memory.peak")]
        return sum(int(peak.read_text()) for peak in peaks if peak.exists())
    below = [each for supervisor in sandbox.pids() for each in watch.below(supervisor)]
    programs = [pid for pid, depth in below if depth > 2]  # 1 is the server, 2 a job
    lines = [line for pid in programs for line in watch._read(f"/proc/{pid}/smaps_rollup").splitlines()]
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(b"Pss:"))


@pytest.mark.parametrize("memory", ["cgroup", "polling"])
@pytest.mark.parametrize(
    "confinement", [CONFINEMENTS[0], *(pytest.param(c, marks=pytest.mark.slow) for c in CONFINEMENTS[1:])]
)
@pytest.mark.parametrize("num_forks", [3, 10])
def test_forks_together_hold_at_most_a_quarter_more_than_the_limit(confinement, memory, num_forks):
    if os.geteuid() != 0:
        pytest.skip("only root may read what other users' processes hold")
    most, over = 0, threading.Event()
    with made(confinement, memory) as sandbox:

        def look() -> None:
            nonlocal most
            while not over.is_set():
                most = max(most, held_together(sandbox, memory))
                time.sleep(0.001 if memory == "polling" else 0.1)

        looking = threading.Thread(target=look)
        looking.start()
        report = sandbox.run_tests(FORKS.format(num_forks), TEST, limits=Limits(cpu=1.0, memory=MEMORY))
        over.set()
        looking.join()
    assert report.verdict == Verdict.MEMORY
    assert 0 < most <= 1.25 * MEMORY


@pytest.mark.parametrize("memory", ["cgroup", "polling"])
def test_a_fork_that_holds_little_is_no_fault_and_the_next_test_starts_afresh(memory):
    program = "import os\nif input() == 'much':\n    held = [os.fork() or bytearray(200 << 20) for _ in range(9)]\n"
    program += "elif os.fork() == 0: os._exit(0)\nos.wait()\nprint(1)"
    tests = [StdinTest(said, "1") for said in ("little", "much", "little")]
    with made(CONFINEMENTS[0], memory) as sandbox:
        results = sandbox.run_tests(program, tests, limits=Limits(cpu=1.0, memory=MEMORY)).results
    assert [each.verdict for each in results] == [Verdict.PASSED, Verdict.MEMORY, Verdict.PASSED]


SHARED = """
import mmap, os, time
for _ in range(3):
    if os.fork() == 0:
        held = mmap.mmap(-1, 220 << 20)  # shared, though with nobody
        for page in range(0, 220 << 20, 4096): held[page] = 1
        time.sleep(1)
        os._exit(0)
for _ in range(3): os.wait()
print(1)
"""
COPIED = """
import os, time
held = bytearray(150 << 20)
if os.fork() == 0:
    time.sleep(0.2)
    os._exit(0)
os.wait()
print(1)
"""


@pytest.mark.parametrize("memory", ["cgroup", "polling"])
def test_shared_memory_counts_and_what_a_fork_has_not_written_counts_once(memory):
    if os.geteuid() != 0:
        pytest.skip("only root may see how many processes share a page")
    limits = Limits(cpu=2.0, memory=MEMORY)
    with made(CONFINEMENTS[0], memory) as sandbox:
        assert sandbox.run_tests(SHARED, TEST, limits=limits).verdict == Verdict.MEMORY
        assert sandbox.run_tests(COPIED, TEST, limits=limits).verdict == Verdict.PASSED


def test_a_single_process_that_asks_for_too_much_gets_its_memory_error_in_either_way():
    program = "try: bytearray(1 << 30)\nexcept MemoryError: print(1)"
    for memory in ("cgroup", "polling"):
        with made(CONFINEMENTS[0], memory) as sandbox:
            assert sandbox.run_tests(program, TEST, limits=Limits(memory=MEMORY)).passed


STALLS = {
    "sleep": "import time; time.sleep(1000)",
    "input that never comes": "import os; r, w = os.pipe(); os.read(r, 1)",
    "a lock": "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "a queue": "import queue; queue.Queue().get()",
    "select": "import select; select.select([], [], [])",
    "pause": "import signal; signal.pause()",
    "asyncio": "import asyncio; asyncio.run(asyncio.sleep(1000))",
    "a child": "import os, time\nif os.fork() == 0: time.sleep(1000)\nos.wait()",
    "a thread": "import threading, time; threading.Thread(target=time.sleep, args=(1000,)).start()",
    "naps": "import time\nwhile True: time.sleep(0.05)",
}
BURNS = {
    "nothing": "",
    "0.45 s": "import time\nwhile time.process_time() < 0.45: pass\n",
    "0.4 s in yields": "import os, time\nwhile time.process_time() < 0.4: os.sched_yield()\n",
    "0.4 s in two threads": "import threading, time\n"
    "def burn():\n    while time.process_time() < 0.4: pass\n"
    "both = [threading.Thread(target=burn) for _ in range(2)]\n"
    "for each in both: each.start()\nfor each in both: each.join()\n",
    "0.4 s in four processes": "import os, time\n"
    "for _ in range(3):\n    if os.fork() == 0:\n"
    "        while time.process_time() < 0.1: pass\n        os._exit(0)\n"
    "for _ in range(3): os.wait()\n",
}


@pytest.mark.slow
def test_none_of_fifty_stalling_programs_holds_a_slot_for_longer_than_its_limit_and_what_it_waited(sandbox):
    limits = Limits(cpu=0.5)
    longest = 0.0
    for burn in BURNS.values():
        for stall in STALLS.values():
            [result] = sandbox.run_tests(burn + stall, TEST, limits=limits).results
            held = result.wall - result.waited
            assert result.verdict in (Verdict.TIMEOUT, Verdict.RUNTIME_ERROR), (burn, stall, result)
            assert held <= 4 * 0.5 + 1.0, (burn, stall, result)
            longest = max(longest, held)
    print(f"held {longest / 0.5:.2f} times the CPU limit at most, besides waiting")
