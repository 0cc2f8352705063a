"""What a caller of the sandbox relies on: verdicts, limits, threads, asyncio, forks, faults that are no reward."""

from __future__ import annotations

import ast
import asyncio
import copy
import gc
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import pettingllms_envs
from arena import BEST, open_sandbox, processes
from pettingllms_envs import sandbox as module
from pettingllms_envs.core import ToolResult
from pettingllms_envs.quoting import shorten
from pettingllms_envs.sandbox import (
    LEETCODE_PRELUDE,
    CallTest,
    Limits,
    Sandbox,
    SandboxFailed,
    SandboxUnavailable,
    StdinTest,
    Task,
    ToolExecutor,
    Verdict,
)


DOUBLE = [StdinTest(str(number), str(2 * number)) for number in range(4)]


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process ends within the time; a zombie has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def server_of(supervisor: int) -> int:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == supervisor:
                return int(name)
    raise AssertionError(f"{supervisor} has no server")


@pytest.mark.parametrize("isolation", ["per_test", "per_solution"])
@pytest.mark.parametrize(
    ("program", "verdicts"),
    [
        ("print(2 * int(input()))", ["passed"] * 4),
        ("print(4 if (n := int(input())) == 3 else 2 * n)", ["passed"] * 3 + ["wrong"]),
        ("print(2 // (n := int(input())) * n * n)", ["runtime_error", "passed", "passed", "wrong"]),  # 2 // 1 * 1 is 2
        ("import sys\nprint(2 * int(input()))\nsys.exit(3)", ["runtime_error"] * 4),
        ("import os\nn = int(input())\nprint(2 * n, flush=True)\nos._exit(n % 2)", ["passed", "runtime_error"] * 2),
        ("n = int(input())\nwhile n == 1: pass\nprint(2 * n)", ["passed", "timeout", "timeout", "timeout"]),
        ("def f(:", ["runtime_error"] * 4),
        ("x = bytearray(1 << 40)", ["memory"] * 4),
        ("print('x' * (1 << 22))", ["output_limit"] * 4),
        ("import ctypes\nctypes.string_at(0)", ["runtime_error"] * 4),
        ("", ["wrong"] * 4),
    ],
)
def test_each_test_gets_the_verdict_that_its_end_and_its_output_deserve(sandbox, program, verdicts, isolation):
    limits = Limits(cpu=1.0, wall=3.0)
    report = sandbox.run_tests(program, DOUBLE, limits=limits, isolation=isolation)
    assert [str(result.verdict) for result in report.results] == verdicts
    assert report.pass_rate == verdicts.count("passed") / 4
    assert report.passed == (verdicts == ["passed"] * 4)
    assert report.verdict == next((verdict for verdict in verdicts if verdict != "passed"), "passed")


@pytest.mark.parametrize("isolation", [pytest.param("per_test", marks=pytest.mark.slow), "per_solution"])
def test_after_a_timeout_the_rest_is_run_only_if_the_caller_says_so(sandbox, isolation):
    program = "import time\nn = int(input())\nif n == 1: time.sleep(99)\nprint(2 * n)"
    limits = Limits(cpu=1.0, wall=1.0)
    report = sandbox.run_tests(program, DOUBLE, limits=limits, isolation=isolation, stop_at_timeout=False)
    assert [str(result.verdict) for result in report.results] == ["passed", "timeout", "passed", "passed"]
    report = sandbox.run_tests(program, DOUBLE, limits=limits, isolation=isolation)
    assert [result.verdict for result in report.results] == [Verdict.PASSED] + [Verdict.TIMEOUT] * 3
    assert report.results[2].detail.startswith("not run")


@pytest.mark.parametrize("isolation", [pytest.param("per_test", marks=pytest.mark.slow), "per_solution"])
def test_who_was_stopped_by_the_clock_on_the_wall_is_told_its_cpu_time(sandbox, isolation):
    burner = "import time\nwhile time.process_time() < 0.3: pass\ntime.sleep(99)"
    report = sandbox.run_tests(burner, DOUBLE[:1], limits=Limits(wall=3.0), isolation=isolation)
    assert report.verdict == Verdict.TIMEOUT
    assert 0.25 < report.results[0].cpu < 0.6


def test_the_cpu_limit_is_by_the_processes_own_time_and_not_by_the_clock(sandbox):
    result = sandbox.run("while True: pass", limits=Limits(cpu=1.0, wall=60.0))
    assert result.verdict == Verdict.TIMEOUT
    assert 1.0 < result.cpu < 2.5  # two seconds by the kernel's coarse clock
    assert "CPU" in result.detail
    assert sandbox.run("import time; time.sleep(1.5)", limits=Limits(cpu=1.0, wall=30.0)).verdict == Verdict.FINISHED


def test_all_tests_together_may_use_no_more_than_the_total(sandbox):
    program = "import time\nwhile time.process_time() < 0.6: pass\nprint(2 * int(input()))"
    report = sandbox.run_tests(program, DOUBLE, limits=Limits(cpu=2.0, wall=30.0, total=1.0))
    assert [str(result.verdict) for result in report.results] == ["passed", "passed", "timeout", "timeout"]


def test_memory_is_limited_for_each_process(sandbox):
    program = "import sys\ndata = bytearray(int(input()) << 20)\nprint(len(data) >> 20)"
    tests = [StdinTest("100", "100"), StdinTest("300", "300")]
    report = sandbox.run_tests(program, tests, limits=Limits(memory=200 << 20))
    assert [str(result.verdict) for result in report.results] == ["passed", "memory"]


def test_a_test_that_expects_more_than_the_output_limit_may_print_it(sandbox):
    tests = [StdinTest("", "7" * 100_000)]
    assert sandbox.run_tests("print('7' * 100_000)", tests, limits=Limits(output=1000)).passed
    assert sandbox.run("print('7' * 100_000)", limits=Limits(output=1000)).verdict == Verdict.OUTPUT_LIMIT


@pytest.mark.parametrize("isolation", ["per_test", "per_solution"])
def test_an_input_may_be_larger_than_the_output_limit(sandbox, isolation):
    size = 3 << 20  # as large tests of contests are
    program = "import sys\nprint(len(sys.stdin.read()))"
    assert sandbox.run_tests(program, [StdinTest("x" * size, str(size))], isolation=isolation).passed
    calls = [CallTest(["x" * size], size)]
    assert sandbox.run_tests("def f(s): return len(s)", calls, fn_name="f", isolation=isolation).passed
    assert sandbox.run(program, "x" * size).stdout == b"%d\n" % size
    flood = sandbox.run_tests("print('x' * (2 << 20))", [StdinTest("x" * size, "")], isolation=isolation)
    assert flood.verdict == Verdict.OUTPUT_LIMIT


@pytest.mark.parametrize("isolation", ["per_test", "per_solution"])
def test_run_gives_what_was_printed_and_why_it_ended(sandbox, isolation):
    result = sandbox.run("import sys\nprint(input())\nprint('e', file=sys.stderr)", "in", isolation=isolation)
    assert (result.verdict, result.stdout, result.stderr, result.exit_code) == (Verdict.FINISHED, b"in\n", b"e\n", 0)
    assert result.isolation == sandbox.start()
    failed = sandbox.run("def f():\n    return 1 / 0\nf()")
    assert (failed.verdict, failed.exit_code, failed.detail) == (Verdict.RUNTIME_ERROR, 1, "ZeroDivisionError")
    lines = failed.stderr.decode().splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert '  File "solution.py", line 2, in f' in lines
    assert "    return 1 / 0" in lines
    assert not any("inside" in line for line in lines), "the sandbox's own frames are of no use to whoever wrote it"
    stopped = sandbox.run("print('before', flush=True)\nimport time\ntime.sleep(99)", limits=Limits(wall=0.5))
    assert (stopped.verdict, stopped.stdout, stopped.exit_code) == (Verdict.TIMEOUT, b"before\n", None)


@pytest.mark.parametrize("isolation", ["per_test", "per_solution"])
@pytest.mark.parametrize(
    ("program", "verdict", "detail"),
    [
        ("def f(x):\n    print('x is', x)\n    return y", Verdict.RUNTIME_ERROR, "NameError"),
        ("def f(x):\n    print('x is', x)\n    raise MemoryError", Verdict.MEMORY, None),
        ("print('x is')", Verdict.RUNTIME_ERROR, "NameError"),
    ],
)
def test_what_a_function_prints_does_not_hide_why_it_failed(sandbox, isolation, program, verdict, detail):
    (result,) = sandbox.run_tests(program, [CallTest([1], 1)], fn_name="f", isolation=isolation).results
    assert result.verdict == verdict
    assert detail is None or result.detail == detail
    lines = result.stderr.decode().splitlines()
    assert lines[0].startswith("x is")
    assert lines[-1].startswith(("NameError", "MemoryError"))


def test_a_function_or_a_method_of_solution_is_called(sandbox):
    tests = [CallTest([[1, 2, 2]], 2), CallTest([[5]], 5)]
    method = (
        "class Solution:\n    def mode(self, a: List[int]) -> int:\n        return Counter(a).most_common(1)[0][0]"
    )
    report = sandbox.run_tests(method, tests, fn_name="mode", prelude=LEETCODE_PRELUDE)
    assert report.passed, report
    assert report.results[0].stdout == b"2"
    assert (
        sandbox.run_tests(method, tests, fn_name="mode").results[0].detail == "NameError"
    )  # no List without a prelude
    assert sandbox.run_tests("def mode(a): return max(a)", tests, fn_name="mode").passed
    missing = sandbox.run_tests("def other(a): pass", tests, fn_name="mode")
    assert missing.results[0].detail == "NameError"


def test_the_prelude_gives_what_leetcode_gives(sandbox):
    program = (
        "class Solution:\n    def f(self, n: int) -> Optional[List[float]]:\n        node = ListNode(n, ListNode(1))\n"
        "        tree = TreeNode(2)\n        return [sqrt(node.val), tree.val, pow(2, 10, 1000), inf > 1, gcd(4, 6),"
        " len(list(pairwise([1, 2, 3]))), sum(accumulate([1, 2])), len(ascii_lowercase), heappop([1]),"
        " bisect_left([1], 1)]"
    )
    expected = [3.0, 2, 24, True, 2, 2, 4, 26, 1, 0]
    report = sandbox.run_tests(program, [CallTest([9], expected)], fn_name="f", prelude=LEETCODE_PRELUDE)
    assert report.passed, report.results[0]


def test_a_tolerance_is_for_numbers_only(sandbox):
    tests = [StdinTest("", "0.333333333 yes")]
    assert sandbox.run_tests("print(1 / 3, 'yes')", tests, tolerance=1e-6).passed
    assert not sandbox.run_tests("print(1 / 3, 'yes')", tests).passed
    assert not sandbox.run_tests("print(1 / 3, 'Yes')", tests, tolerance=1e-6).passed
    assert sandbox.run_tests(
        "def f(): return [1 / 3]", [CallTest([], [0.333333333])], fn_name="f", tolerance=1e-6
    ).passed


@pytest.mark.parametrize("isolation", ["per_test", "per_solution"])
def test_nothing_of_one_program_is_there_for_the_next(sandbox, isolation):
    leave = (
        "import sys, builtins, os\nbuiltins.left = sys.left = 1\nos.environ['LEFT'] = '1'\nsys.modules['left'] = sys"
    )
    look = "import sys, builtins, os\nprint(hasattr(builtins, 'left'), hasattr(sys, 'left'), 'LEFT' in os.environ)"
    for _ in range(3):
        assert sandbox.run(leave, isolation=isolation).verdict == Verdict.FINISHED
        assert sandbox.run(look, isolation=isolation).stdout == b"False False False\n"


def test_tests_in_one_process_share_no_input_that_was_left_unread_and_no_stream(sandbox):
    """The interpreter is shared, and that is said; but sound programs read no further than they must."""
    tests = [StdinTest(f"{number}\n{number + 1}\n", str(number)) for number in range(4)]
    for program in (
        "print(input())",
        "file = open(0)\nprint(file.readline())",
        "import sys\nprint(sys.stdin.buffer.readline().decode(), flush=True)\nsys.stdin = sys.stdout = None",
        "out = open(1, 'w')\nout.write(input())",
    ):
        assert sandbox.run_tests(program, tests, isolation="per_solution").passed, program


def test_children_that_end_first_are_no_harm(sandbox):
    program = "import os\nr, w = os.pipe()\nif os.fork() == 0:\n    os.write(w, b'6'); os._exit(0)\n"
    program += "os.wait()\nprint(os.read(r, 9).decode())"
    assert sandbox.run_tests(program, [StdinTest("", "6")] * 3).passed


def test_by_default_nothing_of_one_test_is_there_for_the_next(sandbox):
    program = "import builtins\nprint(2 * int(input()) + getattr(builtins, 'left', 0))\nbuiltins.left = 1"
    assert sandbox.run_tests(program, DOUBLE).passed
    shared = sandbox.run_tests(program, DOUBLE, isolation="per_solution")
    assert [str(result.verdict) for result in shared.results] == ["passed", "wrong", "wrong", "wrong"]  # as documented


def test_the_same_program_gives_the_same_output_in_every_server():
    program = "print({'a', 'b', 'c', 'd', 'e', 'f'}, hash('x'))"
    outputs = set()
    for _ in range(2):
        with Sandbox(num_slots=1) as box:
            outputs.add(box.run(program).stdout)
    assert len(outputs) == 1


def test_secrets_of_the_environment_stay_here(sandbox, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    with Sandbox(num_slots=1) as box:
        names = box.run("import os\nprint(*sorted(os.environ))").stdout.split()
    assert names == sorted(names)
    assert set(names) == {
        b"LANG",
        b"MKL_NUM_THREADS",
        b"OMP_NUM_THREADS",
        b"OPENBLAS_NUM_THREADS",
        b"PATH",
        b"PYTHONHASHSEED",
    }


def test_reports_come_in_the_order_of_the_tasks(sandbox):
    tasks = [
        Task(program=f"import time\ntime.sleep({(7 - n) / 50})\nprint({n})", tests=[StdinTest("", str(n))])
        for n in range(8)
    ]
    reports = sandbox.run_many(tasks)
    assert all(report.passed for report in reports)
    wrong = [Task(program=f"print({n % 2})", tests=[StdinTest("", "0")]) for n in range(8)]
    assert [report.passed for report in sandbox.run_many(wrong)] == [True, False] * 4


def test_many_threads_share_the_slots(sandbox):
    passed = []

    def work(number: int) -> None:
        passed.append(sandbox.run_tests("print(2 * int(input()))", [StdinTest(str(number), str(2 * number))]).passed)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert passed == [True] * 24
    assert len(sandbox.pids()) <= sandbox.num_slots


def test_it_can_be_awaited_on_threads_of_asyncio(sandbox):
    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        run, report, reports = await asyncio.gather(
            asyncio.to_thread(sandbox.run, "import time; time.sleep(0.3); print(1)"),
            asyncio.to_thread(sandbox.run_tests, "print(2 * int(input()))", DOUBLE),
            asyncio.to_thread(sandbox.run_many, [Task(program="print(1)", tests=[StdinTest("", "1")])] * 3),
        )
        ticking.cancel()
        assert run.stdout == b"1\n"
        assert report.passed
        assert [each.passed for each in reports] == [True] * 3
        assert ticks > 5, "the loop must not wait for a program"

    asyncio.run(main())


def test_a_server_that_is_killed_is_replaced_and_the_program_run_again():
    with Sandbox(num_slots=1) as box:
        assert box.run("print(1)").stdout == b"1\n"
        (first,) = box.pids()
        os.kill(server_of(first), signal.SIGKILL)
        assert gone(first), "the supervisor ends when its server is gone"
        assert box.run("print(2)").stdout == b"2\n"
        (second,) = box.pids()
        assert second != first


def test_a_server_that_dies_in_every_attempt_is_a_sandbox_error_and_no_verdict_on_the_program(caplog):
    with Sandbox(num_slots=1) as box:
        box.start()
        stop = threading.Event()

        def kill() -> None:
            killed: set[int] = set()
            while not stop.is_set():
                for pid in set(box.pids()) - killed:
                    time.sleep(0.3)
                    os.kill(pid, signal.SIGTERM)
                    killed.add(pid)
                time.sleep(0.01)

        killer = threading.Thread(target=kill)
        killer.start()
        with caplog.at_level(logging.WARNING):
            report = box.run_tests(
                "import time; time.sleep(3); print(2 * int(input()))", DOUBLE, limits=Limits(wall=20)
            )
        stop.set()
        killer.join()
        assert [result.verdict for result in report.results] == [Verdict.SANDBOX_ERROR] * 4
        assert report.verdict == Verdict.SANDBOX_ERROR
        assert "failed twice" in caplog.text
        assert box.run("print(1)").stdout == b"1\n"


def test_a_supervisor_that_is_killed_takes_its_server_along():
    with Sandbox(num_slots=1) as box:
        box.run("")
        (pid,) = box.pids()
        server = server_of(pid)
        os.kill(pid, signal.SIGKILL)
        assert gone(server)
        assert box.run("print(1)").stdout == b"1\n"


TRAINER = """
import sys, threading, time
from pettingllms_envs.sandbox import Sandbox, Limits
box = Sandbox(num_slots=1, confinement={confinement!r})
box.run("")
print(*box.pids(), flush=True)
program = "import os, time\\n" + {fork} * "os.fork()\\n" + "time.sleep(100)"
from pettingllms_envs.sandbox import StdinTest
box.run_tests(program, [StdinTest("", "")], limits=Limits(wall=100.0))
"""


@pytest.mark.parametrize(
    ("confinement", "fork"),
    [
        ("namespaces", 2),
        ("landlock", 0),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("namespaces", 0), ("landlock", 2))),
    ],
)
def test_when_the_trainer_is_killed_nothing_of_it_lives_on(confinement, fork):
    with Sandbox(num_slots=1, confinement=confinement) as box:
        try:
            box.start()
        except SandboxUnavailable as error:
            pytest.skip(str(error))
        command = [sys.executable, "-c", TRAINER.format(confinement=confinement, fork=fork)]
        trainer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert trainer.stdout is not None
        supervisor = int(trainer.stdout.readline())

        class Of:
            @staticmethod
            def pids() -> list[int]:
                return [supervisor]

        deadline = time.monotonic() + 20
        while len(processes(Of)) < 4 + (fork > 0) and time.monotonic() < deadline:  # supervisor, server, job, test
            time.sleep(0.05)
        family = processes(Of)
        assert len(family) >= 4
        trainer.kill()
        trainer.wait()
        trainer.stdout.close()
        assert all(gone(pid) for pid in family)


def test_a_fork_of_the_trainer_has_servers_of_its_own_and_keeps_none_of_the_parents_alive(sandbox):
    with Sandbox(num_slots=1) as box:
        one = [Task(program="print(1)", tests=[StdinTest("", "1")])]
        assert box.run_many(one)[0].passed  # with threads, which the child will not have
        (ours,) = box.pids()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                assert box.pids() == []
                assert box.run_many(one)[0].passed
                os.write(write, str(box.pids()[0]).encode())
                box.close()
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert status == 0
        theirs = int(os.read(read, 100))
        os.close(read)
        os.close(write)
        assert theirs != ours
        assert gone(theirs)
        assert box.run("print(3)").stdout == b"3\n"
        assert box.pids() == [ours]


def test_when_it_is_closed_or_forgotten_its_processes_end(sandbox):
    box = Sandbox(num_slots=2)
    box.run_many([Task(program="", tests=[StdinTest("", "")])] * 4)
    pids = box.pids()
    assert 1 <= len(pids) <= 2
    box.close()
    assert box.pids() == []
    assert all(gone(pid) for pid in pids)
    assert box.run("print(1)").stdout == b"1\n", "a closed sandbox starts again"
    (pid,) = box.pids()
    del box
    gc.collect()
    assert gone(pid)


def test_the_process_own_sandbox_ends_with_the_process():
    program = "from pettingllms_envs import sandbox\nprint(sandbox.run('print(1)').stdout, *sandbox.default().pids())"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    output, *pids = run.stdout.rsplit(" ", 1)
    assert output == "b'1\\n'"
    assert all(gone(int(pid)) for pid in pids)


def test_open_files_do_not_add_up(sandbox):
    sandbox.run_tests("print(1)", DOUBLE)
    before = len(os.listdir("/proc/self/fd"))
    for program in ("print(1)", "1 / 0", "import os; os._exit(3)"):
        for isolation in ("per_test", "per_solution"):
            sandbox.run_tests(program, DOUBLE, isolation=isolation)
    assert len(os.listdir("/proc/self/fd")) == before


def test_unsafe_mode_runs_without_a_sandbox_and_says_so(caplog):
    box = Sandbox(num_slots=1)
    with caplog.at_level(logging.WARNING):
        report = box.run_tests("print(2 * int(input()))", DOUBLE, isolation="unsafe-subprocess")
    assert report.passed
    assert report.isolation == "none"
    assert {result.isolation for result in report.results} == {"none"}
    assert "WITHOUT A SANDBOX" in caplog.text
    assert box.pids() == []
    limits = Limits(cpu=1.0, wall=1.0)
    for program, verdict in (
        ("while True: pass", "timeout"),
        ("1 / 0", "runtime_error"),
        ("def f(:", "runtime_error"),
    ):
        assert box.run(program, limits=limits, isolation="unsafe-subprocess").verdict == verdict
    calls = box.run_tests(
        "def f(a): return a + 1", [CallTest([1], 2), CallTest([2], 2)], fn_name="f", isolation="unsafe-subprocess"
    )
    assert [str(result.verdict) for result in calls.results] == ["passed", "wrong"]
    assert (
        box.run("print('x' * 3000)", limits=Limits(output=1000), isolation="unsafe-subprocess").verdict
        == "output_limit"
    )


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"confinement": "docker"}, "confinement is 'docker'; expected one of 'namespaces'"),
        ({"min_isolation": "landlok"}, "Did you mean 'landlock'?"),
        ({"num_slots": 0}, "num_slots is 0; expected at least 1"),
    ],
)
def test_a_sandbox_that_cannot_be_is_refused_at_the_door(settings, error):
    with pytest.raises(ValueError, match=error.replace("?", r"\?")):
        Sandbox(**settings)


@pytest.mark.parametrize(
    ("arguments", "kind", "error"),
    [
        ({"tests": []}, ValueError, "there are no tests"),
        ({"isolation": "none"}, ValueError, "isolation is 'none'; expected one of 'per_test'"),
        ({"fn_name": "f"}, TypeError, "a test is a StdinTest and fn_name is 'f'"),
        ({"tests": [CallTest([1], 1)]}, TypeError, "a test is a CallTest and fn_name is None"),
        ({"tests": [CallTest([{1}], 1)], "fn_name": "f"}, TypeError, "a value that JSON does not have"),
    ],
)
def test_a_call_that_cannot_be_answered_is_refused_at_the_door(sandbox, arguments, kind, error):
    with pytest.raises(kind, match=error):
        sandbox.run_tests("print(1)", **{"tests": DOUBLE, **arguments})


@pytest.mark.parametrize(
    "limits",
    [
        {"cpu": 0},
        {"cpu": float("nan")},
        {"wall": -1},
        {"memory": 1000},
        {"memory": 1e9},
        {"output": True},
        {"processes": 0},
    ],
)
def test_limits_out_of_their_range_are_refused(limits):
    with pytest.raises(ValueError, match="expected"):
        Limits(**limits)


@pytest.mark.parametrize(
    "call",
    [
        lambda box: box.run("", limits=None),
        lambda box: box.run("", limits=None, isolation="unsafe-subprocess"),
        lambda box: box.run_tests("", DOUBLE, limits=None),
        lambda box: box.run_many([Task(program="", tests=DOUBLE)], limits=None),
        lambda _: ToolExecutor(limits=None),
    ],
)
def test_limits_that_are_none_are_refused_in_words_wherever_they_are_taken(sandbox, call):
    with pytest.raises(TypeError, match=r"^limits is None; expected Limits\. Leave it out for the defaults, or give"):
        call(sandbox)


PAIR = """
import socket
ours, theirs = socket.socketpair()
theirs.send(b"through")
print(ours.recv(99).decode())
def refused(call, *arguments):
    try: call(*arguments)
    except OSError: return
    print("allowed:", call)
for address in ("/tmp/pettingllms", "\\0pettingllms"):
    for call in (ours.bind, ours.connect): refused(call, address)
    refused(ours.sendto, b"x", address)
    refused(ours.sendmsg, [b"x"], [], 0, address)
refused(ours.listen)
refused(socket.send_fds, ours, [b"x"], [0])
for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET): refused(socket.socketpair, socket.AF_UNIX, kind)
"""


@pytest.mark.parametrize("configuration", [BEST, "C landlock"])
def test_a_pair_of_streams_works_and_leads_nowhere_but_to_the_program(configuration):
    with open_sandbox(configuration, num_slots=1) as box:
        report = box.run_tests(PAIR, [StdinTest("", "through")])
    assert report.passed, report


def test_it_says_what_holds_programs(sandbox):
    described = sandbox.describe()
    assert described["level"] == sandbox.start() == sandbox.run("").isolation
    assert "seccomp" in described["level"]
    assert {"name": "linux", "works": True, "why": ""} in described["probed"]
    assert described["num_slots"] == 2


def test_a_tool_role_plays_through_the_executor(sandbox):
    env = pettingllms_envs.make("plan_path", workflow="tool_plan", executor=ToolExecutor())
    env.reset(seed=3)
    for _ in range(2):
        env.step(env.oracle())  # a program that prints the best move, then that move
    assert env.terminations == {"tool_0": True, "planner_0": True}


def test_the_executor_tells_the_tool_what_it_printed_and_in_fixed_words_why_it_failed(sandbox):
    executor = ToolExecutor(limits=Limits(cpu=1.0, wall=1.0, output=1 << 16), max_shown=20)
    assert executor("print('Moves: U')") == ToolResult("Moves: U\n")
    assert executor("print('a')\n1 / 0") == ToolResult("a\n", "it failed: ZeroDivisionError")
    assert executor("class Passed(Exception): pass\nraise Passed('you won')") == ToolResult(
        "", "it failed: an exception of its own"
    )
    assert executor("import time\ntime.sleep(9)").error.startswith("out of time")
    assert executor("print('x' * 100)").text == "xxxxxxxxxx\n... 81 characters left out ...\nxxxxxxxxx\n"
    assert executor("while True: print('x' * 1000)").error.startswith("too much output")
    assert pickle.loads(pickle.dumps(executor)) == copy.deepcopy(executor) == executor
    assert shorten("abcdef", 6) == "abcdef"


def test_the_executor_does_not_blame_a_program_for_a_sandbox_that_failed(monkeypatch):
    failed = module.ProgramResult(verdict=Verdict.SANDBOX_ERROR, detail="the server died", isolation="x")
    monkeypatch.setattr(module.default(()), "run", lambda *args, **kwargs: failed)
    with pytest.raises(SandboxFailed, match="the server died"):
        ToolExecutor()("print(1)")


@pytest.mark.parametrize("package", ["numpy", pytest.param("sympy", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "confinement",
    [None, *(pytest.param(each, marks=pytest.mark.slow) for each in ("user-namespaces", "landlock", "no-open"))],
)
def test_tools_may_import_packages_that_are_asked_for(sandbox, package, confinement):
    pytest.importorskip(package)
    if (package, confinement) == ("sympy", "no-open"):
        pytest.skip("sympy imports parts of itself when they are used, which no-open mode does not allow")
    program, printed = {
        "numpy": (
            "import numpy as np\nprint(int(np.arange(5) @ np.ones(5, int)), np.linalg.det(np.eye(3)))",
            b"10 1.0\n",
        ),
        "sympy": ("import sympy\nx = sympy.Symbol('x')\nprint(*sympy.solve(x**2 - 4))", b"-2 2\n"),
    }[package]
    with Sandbox(num_slots=1, imports=(package,), confinement=confinement) as box:
        try:
            box.start()
        except SandboxUnavailable as error:
            pytest.skip(str(error))
        result = box.run(program, limits=Limits(cpu=20.0))
        assert result.stdout == printed, result
    assert sandbox.run(program).detail == "ModuleNotFoundError"


def test_a_resident_module_is_run_once_and_every_program_finds_it_as_it_was():
    resident = "import time\nmade = time.monotonic_ns()\ncounted = 0"
    program = "import resident\nprint(resident.counted, resident.made)\nresident.counted += 1"
    with Sandbox(num_slots=1, resident=resident) as box:
        try:
            box.start()
        except SandboxUnavailable as error:
            pytest.skip(str(error))
        first, second = (box.run(program).stdout.split() for _ in range(2))
    assert first[0] == second[0] == b"0"
    assert first[1] == second[1]


def test_a_resident_module_that_fails_is_a_fault_of_the_sandboxs_and_not_of_the_programs():
    with Sandbox(num_slots=1, resident="import no_such_module") as box:
        try:
            box.start()
        except SandboxUnavailable as error:
            pytest.skip(str(error))
        result = box.run("print(7)")
    assert result.verdict == Verdict.SANDBOX_ERROR
    assert "no_such_module" in result.detail


def test_the_other_side_imports_the_standard_library_and_itself_alone():
    folder = Path(module.__file__).parent / "inside"
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name.partition(".")[0] for alias in node.names} <= sys.stdlib_module_names, file
            elif isinstance(node, ast.ImportFrom):
                top = (node.module or "").partition(".")[0]
                assert node.level == 1 or (node.level == 0 and top in sys.stdlib_module_names | {"__future__"}), file


def test_a_program_earns_no_time_by_writing_a_byte_now_and_then_where_records_go(sandbox):
    program = (
        "import os, time\nwhile True:\n    for fd in range(3, 64):\n        try: os.write(fd, b'x')\n"
        "        except OSError: pass\n    time.sleep(0.8)"
    )
    began = time.monotonic()
    report = sandbox.run_tests(program, DOUBLE[:2], limits=Limits(wall=1.0), isolation="per_solution")
    assert time.monotonic() - began < 20.0  # a record has more than 40 bytes, which would be 32 s
    assert report.verdict in (Verdict.TIMEOUT, Verdict.VIOLATION)
