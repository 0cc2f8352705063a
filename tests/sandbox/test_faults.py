"""What goes wrong around a sandbox, by accident or on purpose: no verdict is wrong for it, and nothing leaks."""

from __future__ import annotations

import asyncio
import math
import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from pettingllms_envs.sandbox import Limits, Sandbox, StdinTest, Verdict
from pettingllms_envs.sandbox.layers import Plan, Probed
from pettingllms_envs.sandbox.sandbox import cgroup_quota


TESTS = [StdinTest(str(number), str(number)) for number in range(3)]


class Interrupted(BaseException):
    """As a Ctrl-C, or the time limit of a grader that works by SIGALRM, comes in the middle of a call."""


def test_the_answer_to_an_interrupted_call_is_not_taken_for_that_to_the_next(sandbox):
    def interrupt(*_):
        raise Interrupted

    with Sandbox(num_slots=1) as box:
        box.start()
        box.run("")
        before = len(os.listdir("/proc/self/fd"))
        usual = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(Interrupted):
                box.run_tests("import time; time.sleep(0.5); print(1)", [StdinTest("", "1")])
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, usual)
        # A second answer would be late by one for ever: the wrong program would pass.
        assert not box.run_tests("raise SystemExit(1)", [StdinTest("", "1")]).passed
        assert box.run_tests("print(2)", [StdinTest("", "2")]).passed
        assert len(os.listdir("/proc/self/fd")) == before


def descriptors() -> set[int]:
    """Those that are open now."""
    with os.scandir("/proc/self/fd") as listing:
        names = {int(entry.name) for entry in listing}
    return {fd for fd in names if os.path.exists(f"/proc/self/fd/{fd}")}  # without the listing's own


def test_a_trainer_without_descriptors_gets_a_sandbox_error_and_loses_none(sandbox):
    with Sandbox(num_slots=1) as box:
        box.run("")
        before = descriptors()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = next(fd for fd in range(len(before) + 1) if fd not in before)
        for limit in range(lowest, max(before) + 8):  # each of the calls that need one is the first to fail once
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            try:
                result = box.run("print(1)")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert result.verdict in (Verdict.SANDBOX_ERROR, Verdict.FINISHED), (limit, result)
            assert box.run("print(1)").verdict == Verdict.FINISHED
            assert len(descriptors()) == len(before), limit


FORGE = """
import os, struct, sys, time
def forge(kind, test, cpu=0.0, printed=0):
    for fd in range(3, 64):
        try:
            if os.fstat(fd).st_mode & 0o170000 == 0o140000:
                os.write(fd, struct.pack("<BIiddQQ8x", kind, test, 0, cpu, 0.0, printed, 0))
        except OSError: pass
"""


@pytest.mark.parametrize(
    "end",
    [
        "os._exit(0)",  # it spoke of all tests, and not of its end
        "time.sleep(100)",
        "forge(7, 0); time.sleep(100)",  # it said that it would end, and did not
        "forge(7, 0); forge(1, 0); os._exit(0)",
    ],
)
def test_a_program_that_forges_every_record_is_not_excused_by_a_sandbox_error(sandbox, end):
    """A sandbox error is dropped and not punished: a program that can bring it about would."""
    program = FORGE + f"for test in range(3): forge(1, test)\n{end}"
    limits = Limits(cpu=1.0, wall=0.6)
    report = sandbox.run_tests(program, TESTS, isolation="per_solution", limits=limits)
    assert report.results[-1].verdict == Verdict.VIOLATION
    assert Verdict.SANDBOX_ERROR not in [result.verdict for result in report.results]


DIE = """
import ctypes, os
if ctypes.CDLL(None).syscall(ctypes.c_long(56), ctypes.c_long(int(input())), None, None, None, None) == 0: os._exit(0)
os.waitpid(-1, 0x40000000)
"""


def test_the_unsafe_mode_leaves_no_process_behind_either(sandbox):
    program = "import os, time\npid = os.fork()\nif pid == 0: time.sleep(100)\nprint(pid)"
    result = sandbox.run(program, isolation="unsafe-subprocess")
    deadline = time.monotonic() + 10.0
    while os.path.exists(f"/proc/{int(result.stdout)}") and time.monotonic() < deadline:
        time.sleep(0.02)  # until the machine's first process has noted its end
    assert not os.path.exists(f"/proc/{int(result.stdout)}")


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, math.inf),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ({}, math.inf),
    ],
)
def test_a_containers_share_of_the_cores_is_known(tmp_path, files, cores):
    """More programs at a time than cores would make timeouts by the clock out of waiting."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cgroup_quota(str(tmp_path)) == cores


def test_however_a_program_is_killed_it_is_its_own_fault(sandbox):
    """No signal can be sent, but a process may choose the one that tells its parent of its end; 37 has no name."""
    if os.uname().machine != "x86_64":
        pytest.skip("the number of clone is that of x86_64")
    tests = [StdinTest(str(number), "-") for number in range(65)]
    report = sandbox.run_tests(DIE, tests, limits=Limits(wall=5.0), stop_at_timeout=False)
    ends = {number: result.exit_code for number, result in enumerate(report.results)}
    assert ends[37] == -37
    assert sum(code is not None and code < 0 for code in ends.values()) > 40
    assert Verdict.SANDBOX_ERROR not in [result.verdict for result in report.results]


def test_a_program_that_lies_about_its_time_is_charged_all_of_it_in_the_end(sandbox):
    spend = "while time.process_time() < 0.8: pass\nos.write(1, b'0 1 2 ')\n"
    lie = "for test in range(3): forge(1, test, printed=2)\nforge(7, 0); os._exit(0)"
    limits = Limits(cpu=0.4, wall=20.0)
    report = sandbox.run_tests(FORGE + spend + lie, TESTS, isolation="per_solution", limits=limits)
    assert report.results[-1].verdict == Verdict.TIMEOUT
    assert report.results[-1].cpu >= 0.8


BURN = """
import os, signal, time
def burn():
    while time.process_time() < 0.3: pass
"""


@pytest.mark.parametrize(
    "program",
    [
        # Each child spends less than the limit. What is waited for, what is not, and what is orphaned count.
        "for _ in range(3):\n    if os.fork() == 0: burn(); os._exit(0)\n    os.wait()",
        "r, w = os.pipe()\nfor _ in range(3):\n    if os.fork() == 0: burn(); os._exit(0)\n"
        "os.close(w); os.read(r, 1); time.sleep(0.3)",
        "r, w = os.pipe()\nfor _ in range(3):\n    if os.fork() == 0:\n        if os.fork() == 0: burn()\n"
        "        os._exit(0)\n    os.wait()\nos.close(w); os.read(r, 1); time.sleep(0.3)",
    ],
)
def test_the_time_of_all_processes_counts(sandbox, program):
    tests, limits = [StdinTest("", "")], Limits(cpu=0.7, wall=20.0)
    report = sandbox.run_tests(BURN + program, tests, limits=limits)
    assert report.verdict == Verdict.TIMEOUT, report
    assert report.results[0].cpu >= 0.9


def test_a_program_cannot_let_its_children_end_unaccounted(sandbox):
    program = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    assert sandbox.run_tests(program, [StdinTest("", "")]).verdict == Verdict.RUNTIME_ERROR


ENDS = """
import threading, time
from pettingllms_envs import sandbox
from pettingllms_envs.sandbox import slot
slot._END_SECONDS = 20.0  # a server that does not end when its socket closes is waited for so long, then told again
sandbox.run("")
def work():
    while True: sandbox.run("import time; time.sleep(30)", limits=sandbox.Limits(wall=60.0))
threading.Thread(target=work, daemon=True).start()
time.sleep(0.5)
print(*sandbox.default().pids(), time.time())
"""


def test_a_trainer_ends_at_once_though_a_daemon_thread_waits_for_a_program(sandbox):
    run = subprocess.run([sys.executable, "-X", "dev", "-c", ENDS], capture_output=True, text=True, timeout=120)
    *pids, began = run.stdout.split()
    assert run.returncode == 0, run.stderr
    assert time.time() - float(began) < 15  # 0.2 s; each server that must be told twice takes 20
    assert "still running" not in run.stderr
    assert pids
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def test_the_start_of_the_first_server_does_not_hold_up_an_event_loop(sandbox):
    async def longest_pause(box: Sandbox) -> float:
        longest, last = 0.0, time.monotonic()
        calls = [asyncio.ensure_future(asyncio.to_thread(box.run, "")) for _ in range(2)]
        await asyncio.sleep(0)
        calls.append(asyncio.ensure_future(asyncio.to_thread(box.run, "")))  # while a thread chooses the layers
        while not all(call.done() for call in calls):
            await asyncio.sleep(0.001)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        return longest

    class Slow(Sandbox):
        def _try(self, plan: Plan) -> Probed:
            time.sleep(2.5)
            return super()._try(plan)

    with Slow(num_slots=2) as box:
        assert asyncio.run(longest_pause(box)) < 2.0


def in_a_trainer(before: str, program: str) -> list[str]:
    """The verdict on a program in a trainer of its own, and what `before` left of its surroundings."""
    code = (
        f"import os, resource, signal\n{before}\nfrom pettingllms_envs import sandbox\n"
        f"report = sandbox.run_tests({program!r}, [sandbox.StdinTest('', '1')], limits=sandbox.Limits(wall=5.0))\n"
        "print(report.verdict, report.results[0].detail)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return run.stdout.split()


def test_signals_that_the_trainer_ignores_or_blocks_are_as_usual_for_programs(sandbox):
    before = (
        "for number in (signal.SIGCHLD, signal.SIGALRM, signal.SIGXCPU): signal.signal(number, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGVTALRM, signal.SIGTERM})"
    )
    program = (
        "import signal, time\nassert signal.getsignal(signal.SIGXCPU) == signal.SIG_DFL\n"
        "assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())\n"
        "signal.signal(signal.SIGALRM, lambda *_: print(1))\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\n"
        "time.sleep(0.3)"
    )
    assert in_a_trainer(before, program) == ["passed"]


def test_a_cluster_may_have_limits_of_its_own(sandbox):
    before = (
        "for limit, value in ((resource.RLIMIT_FSIZE, 1 << 19), (resource.RLIMIT_STACK, 1 << 23)):\n"
        "    resource.setrlimit(limit, (value, value))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (3, 3))"
    )
    assert in_a_trainer(before, "print(1)") == ["passed"]
