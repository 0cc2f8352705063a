"""Programs that hold a slot by sleeping, programs that take memory by forking: how long, how much, in every way."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arena import busy
from pettingllms_envs.sandbox import CONFINEMENTS, Limits, Sandbox, SandboxUnavailable, StdinTest, Verdict
from pettingllms_envs.sandbox.inside import cgroup, server, watch


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
    return watch._times("t", lambda path: files.get(path, b""))[1]


def status(switches: int) -> bytes:
    return b"Name:\tpython\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t%d\n" % switches


def stat(ticks: int, of_children: int = 0) -> bytes:
    """`/proc/PID/stat` of a program named `a) b` with this user time, and none of the system's."""
    return b"12 (a) b) R " + b" ".join([b"1"] * 10) + b" %d 0 %d 0 " % (ticks, of_children) + b" ".join([b"0"] * 30)


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
    before, began = watch.cpu(os.getpid()), time.process_time()
    while time.process_time() - began < 0.05:
        pass
    assert 0.03 < watch.cpu(os.getpid()) - before < 0.5
    assert watch.cpu(2**22 + 1) == 0.0, "there is no such process"


def test_the_cpu_seconds_of_children_and_threads_that_have_ended_count():
    before = watch.cpu(os.getpid())
    pid = os.fork()
    if pid == 0:
        while time.process_time() < 0.1:
            pass
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert watch.cpu(pid) > 0.07, "nobody has waited for it yet"
    os.waitpid(pid, 0)
    of_child = watch.cpu(os.getpid()) - before
    ended = threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 100_000))  # 0.05 s or so
    spent = time.process_time()
    ended.start()
    ended.join()
    spent = time.process_time() - spent
    assert of_child > 0.07
    assert watch.cpu(os.getpid()) - before >= of_child + spent - 0.03


def process(ran: float, waited: float, ended: float = 0.0, of_children: float = 0.0) -> dict[str, bytes]:
    """Of one with a thread that ran and waited, threads that have ended, and children that were waited for."""
    return {
        "schedstat": b"%d %d 1\n" % (ran * 1e9, waited * 1e9),
        "stat": stat(round(100 * (ran + ended)), round(100 * of_children)),
    }


@pytest.mark.parametrize(
    ("processes", "seconds"),
    [
        ([process(1.0, 4.0)], 4.0),  # alone among eight of others
        ([process(1.0, 3.0)] * 8, 0.0),  # eight on two cores: what one waits, the others run
        ([process(0.5, 2.5)] * 2, 2.0),  # one of the two may have waited half a second for the other
        ([process(0.1, 2.0), process(0.2, 0.0)], 1.8),  # the longest
        ([process(0.1, 0.8, of_children=0.9)], 0.0),  # for its own children, which have ended
        ([process(0.1, 0.8, ended=0.9)], 0.0),  # for its own threads
        ([process(2.6, 9.0)], 0.0),  # more than all of the time that it may have
        ([process(0.1, 9.0, of_children=2.5)], 0.0),
        ([], 0.0),
    ],
)
def test_a_program_waits_for_others_and_not_for_itself(monkeypatch, processes, seconds):
    files = {f"/proc/{pid}/{name}": data for pid, each in enumerate(processes) for name, data in each.items()}
    monkeypatch.setattr(watch, "_read", lambda path: files.get(path, b""))
    monkeypatch.setattr(watch, "_threads", lambda pid: [f"/proc/{pid}"])
    assert watch.waited(range(len(processes)), most_cpu=2.5) == pytest.approx(seconds)


class Time:
    """A clock that stands until it is told otherwise."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_test_is_put_off_by_what_it_waited_and_each_of_twenty_in_one_process_by_a_minute(monkeypatch):
    clock_of_all = Time()
    monkeypatch.setattr(server, "time", clock_of_all)
    waited = 0.0
    seen = 0.0
    for _ in range(20):  # tests, each of which waits 14 s out of 15
        clock = server.Clock(3.0, seen=seen)
        for elapsed in (3.0, 3.0 + 2.8):
            clock_of_all.now += elapsed - clock.elapsed()
            waited += 2.8
            assert clock.put_off(waited)
        assert clock.left() == pytest.approx(2.8)
        assert clock.waited == pytest.approx(5.6)
        seen = clock.seen
    clock_of_all.now += 200.0
    assert clock.put_off(waited + 200.0)
    assert clock.waited == server.MOST_WAITED
    assert not clock.put_off(waited + 250.0), "a minute at most"


def test_what_was_waited_in_earlier_tests_gives_no_more_than_the_time_of_this_one(monkeypatch):
    clock_of_all = Time()
    monkeypatch.setattr(server, "time", clock_of_all)
    clock = server.Clock(3.0)
    clock_of_all.now = 3.0
    assert clock.put_off(40.0), "the process waited that long before; nobody asked then"
    assert clock.left() == 3.0
    clock_of_all.now = 6.0
    assert not clock.put_off(40.0)


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


def test_processes_that_wait_for_each_other_hold_a_slot_no_longer_than_one(sandbox):
    program = "import os\nfor _ in range(4): os.fork()\nwhile True: pass"
    limits = Limits(cpu=0.25, wall=0.75, processes=20)
    [result] = sandbox.run_tests(program, TEST, limits=limits).results
    assert result.verdict in (Verdict.TIMEOUT, Verdict.MEMORY)  # where no cgroup bounds it, they are too many
    assert result.wall <= 2 * (4 * 0.25 + 1.0)  # twice what they get on a machine with nothing else to do


def test_a_sound_program_of_twenty_tests_in_one_process_keeps_its_patience_on_a_busy_machine(sandbox):
    program = "import time\nend = time.process_time() + 0.03\nwhile time.process_time() < end: pass\nprint(1)"
    limits = Limits(cpu=0.1, wall=0.09)
    with busy(6):
        report = sandbox.run_tests(program, TEST * 20, isolation="per_solution", limits=limits)
    assert report.passed, [(result.verdict, result.detail) for result in report.results]
