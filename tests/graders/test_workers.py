"""math-verify behind its door: what hangs ends, what is killed is asked again, verdicts are always the same."""

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pettingllms_envs.graders import workers
from pettingllms_envs.graders.math import MathGrader, Verdict
from pettingllms_envs.graders.verdicts import Finding, Question
from pettingllms_envs.graders.workers import MathVerify
from pettingllms_envs.sandbox import SandboxUnavailable


ROOT = Path(__file__).parents[2]

# Gold, answer, verdict; math-verify is needed for all but the last two.
CASES = [
    (r"2\sqrt{2}", r"\sqrt{8}", "correct"),
    ("x^2+2x+1", "(x+1)^2", "correct"),
    (r"\frac{1}{\sqrt{3}}", r"\frac{\sqrt{3}}{3}", "correct"),
    (r"\ln 2", r"\ln 3", "incorrect"),
    ("[0,1]", r"0 \le x \le 1", "correct"),
    (r"(-\infty,0)\cup(1,2)", "x<0", "incorrect"),
    (r"\binom{2n}{n}", r"\frac{(2n)!}{n!n!}", "correct"),
    (r"\lfloor\frac{n}{2}\rfloor", r"\lceil\frac{n}{2}\rceil", "incorrect"),
    ("3", r"\log_2 8", "correct"),
    ("2x+4y=3", r"y=-\frac{1}{2}x+\frac{3}{4}", "correct"),
    ("7", r"\begin{", "unparsed"),
    ("7", "7.0", "correct"),
    ("(1,2)", "(2,1)", "incorrect"),
]
EXPECTED = [verdict for _, _, verdict in CASES]


def verdicts(verify):
    """Each case by a grader that remembers nothing of the others."""
    return [MathGrader(verify).grade(answer, gold).verdict for gold, answer, _ in CASES]


def patience():
    """Five seconds on a machine of one's own; three times that elsewhere, or as its load makes everything longer."""
    return 5.0 * max(3.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


@pytest.fixture(scope="module")
def warm(verify):
    with ThreadPoolExecutor(2) as threads:  # both slots
        list(threads.map(lambda _: verify([[Question("x", "y", None)]]), range(4)))
    return verify


HANGING = [
    r"\dfrac{5^{(5^{(5^{(5^5)})} - 4)} - 5}{16}",
    "9^{9^9}",
    "9^{9^{9^9}}",
    r"\frac{1}{" * 150 + "2" + "}" * 150,
    "{" * 20_000,
    r"\{" + ",".join(f"{number}.0" for number in range(250)) + r"\}",
    "x" * 2000,
    "7" * (1 << 20),
    r"\boxed{" * 100_000,
]
SLOW = [
    "(10^9)!",
    r"\binom{10^8}{5*10^7}",
    "10^{10^{10}}",
    "2^{2^{100}}",
    "3^{2^{30}}",
    "999999999!",
    "(x+1)^{1000}",
    "(x+y+z)^{99}",
    r"\int e^{-x^2} \sin(x) dx",
    r"\sum_{k=1}^{100000000} \frac{1}{k^2}",
    r"\prod_{k=1}^{1000000} k",
    r"\frac{(x+1)^{300}}{(x-1)^{300}}",
    "1+" * 999 + "1",
    "-" * 1999 + "7",
    r"\sin(" * 59 + "x" + ")" * 59,
    ",".join(rf"\sqrt{{{number}}}+1" for number in range(100)),
]


@pytest.mark.parametrize("answer", [*HANGING, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)])
@pytest.mark.parametrize("gold", [r"2\sqrt{2}", pytest.param("(x+1)^{20}", marks=pytest.mark.slow)])
def test_every_answer_has_a_verdict_within_seconds(warm, answer, gold):
    grader = MathGrader(warm)
    began = time.perf_counter()
    verdict = grader.grade(answer, gold).verdict
    assert time.perf_counter() - began < patience()
    assert verdict != Verdict.CORRECT


@pytest.mark.parametrize("letter", ["m", "g", "s", "h"])
def test_a_letter_that_may_be_a_unit_is_not_dropped(warm, letter):
    questions = [Question(f"6{letter}", "6", None), Question("6", f"6{letter}", None)]
    assert warm([questions]) == [[Finding.DIFFERENT] * 2]


def test_a_set_of_many_numbers_is_compared_as_numbers(warm):
    numbers = range(250)
    gold = ",".join(map(str, numbers))
    answer = r"\{" + ",".join(f"{number}.0" for number in reversed(numbers)) + r"\}"
    assert MathGrader(warm).grade(answer, gold, multiple=True).correct


def test_what_hangs_does_not_stay(warm):
    def busy():
        return [pid for pid in os.listdir("/proc") if pid.isdigit() and _runs(int(pid), warm.sandbox.pids())]

    assert MathGrader(warm).grade("9^{9^9}", r"2\sqrt{2}").verdict == Verdict.TIMEOUT
    deadline = time.monotonic() + 10  # of a computation that would take years
    while busy() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert busy() == []


def _runs(pid, supervisors):
    """Whether a process below one of these supervisors is running now."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        parent = int(fields[1])
        above = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1]) if parent else 0
    except OSError:  # it has ended
        return False
    return fields[0] == "R" and above in supervisors


@pytest.mark.parametrize("num_threads", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_the_verdicts_are_the_same_in_more_threads_than_slots(warm, num_threads):
    assert verdicts(warm) == EXPECTED
    with ThreadPoolExecutor(num_threads) as threads:
        assert list(threads.map(lambda _: verdicts(warm), range(num_threads))) == [EXPECTED] * num_threads


def test_the_verdicts_are_the_same_while_the_machine_is_busy(warm):
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        assert verdicts(warm) == EXPECTED
    finally:
        for each in burning:
            each.kill()
            each.wait()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_the_verdicts_are_the_same_in_a_fork_of_this_process(warm):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(write, " ".join(verdicts(warm)).encode())
            warm.close()
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as said:
        assert said.read().split() == EXPECTED
    assert os.waitpid(child, 0)[1] == 0
    assert verdicts(warm) == EXPECTED  # the parent's servers are still its own


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from pettingllms_envs.graders.workers import MathVerify
from test_workers import verdicts
verify = MathVerify(num_slots=1)
print(*verdicts(verify), flush=True)
print(*verify.sandbox.pids(), flush=True)
sys.stdin.read()
"""


def test_another_process_finds_the_same_and_takes_its_servers_along_when_it_is_killed(warm):
    program = PROGRAM.format(tests=str(Path(__file__).parent))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        pids = [int(word) for word in process.stdout.readline().split()]
        process.kill()
    assert said == EXPECTED
    assert pids
    deadline = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.mark.slow
def test_servers_that_are_killed_change_no_verdict():
    verify = MathVerify(num_slots=1)
    try:
        verify.sandbox.start()
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox works here: {error}")
    assert verdicts(verify) == EXPECTED
    over = threading.Event()
    served: list[int] = verify.sandbox.pids()  # one that is still starting would be a second failure in a row
    killed: list[int] = []

    def kill_what_has_served():
        while not over.wait(0.03):
            while served:
                killed.append(served.pop())
                os.kill(killed[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill_what_has_served)
    killer.start()
    try:
        found = []
        while len(killed) < 2:
            found.append(verdicts(verify))
            served += verify.sandbox.pids()
    finally:
        over.set()
        killer.join()
        verify.close()
    assert found == [EXPECTED] * len(found)


@pytest.mark.slow
@pytest.mark.parametrize("confinement", ["user-namespaces", "landlock", "no-open"])
def test_the_verdicts_are_the_same_in_every_confinement(confinement):
    verify = MathVerify(num_slots=1, confinement=confinement)
    try:
        verify.sandbox.start()
    except SandboxUnavailable as error:
        pytest.skip(f"{confinement} does not work here: {error}")
    assert verdicts(verify) == EXPECTED
    verify.close()


def leaks(verify, num_calls):
    """How much this process and its servers grew over so many calls, after a tenth of them: files, and bytes."""

    def size():
        pages = [
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in (os.getpid(), *verify.sandbox.pids())
        ]
        return len(os.listdir("/proc/self/fd")), sum(pages) * os.sysconf("SC_PAGE_SIZE")

    grader = MathGrader(verify, num_remembered=64)
    before = (0, 0)
    for number in range(num_calls):
        if number == num_calls // 10:
            before = size()
        correct = grader.grade(rf"\sqrt{{{number}^2+1}}", rf"(({number})^2+1)^{{\frac{{1}}{{2}}}}").correct
        assert correct, number
    after = size()
    return after[0] - before[0], after[1] - before[1]


def test_nothing_is_left_of_a_call(warm):
    files, size = leaks(warm, 40)
    assert files <= 0
    assert size < 4 << 20


@pytest.mark.slow
def test_nothing_is_left_of_ten_thousand_calls(warm):
    faulthandler.cancel_dump_traceback_later()  # with a load of 12 it took 23 minutes; the suite ends a test after 10
    files, size = leaks(warm, 10_000)
    assert files <= 0
    assert size < 16 << 20


def test_math_verify_runs_where_it_can_do_no_harm(warm):
    program = "import os, resident\ntry: open('/etc/passwd')\nexcept OSError: print(len(os.environ) < 9)"
    assert warm.sandbox.run(program).stdout == b"True\n"


def test_a_missing_math_verify_is_named(monkeypatch):
    monkeypatch.setattr(workers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install math-verify"):
        MathVerify()
