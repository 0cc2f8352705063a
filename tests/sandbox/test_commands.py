"""What a caller of `Sandbox.run_command` relies on: its arguments, files, verdicts, limits, and what is refused."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from arena import BEST, open_sandbox, processes
from pettingllms_envs import sandbox as module
from pettingllms_envs.sandbox import Command, CommandResult, Limits, Sandbox, SandboxUnavailable, Verdict, slot


SHELL = "/bin/sh"
QUICK = Limits(cpu=0.5, wall=1.0, memory=1 << 28)


@pytest.fixture(scope="module")
def shell(sandbox: Sandbox) -> Iterator[Sandbox]:
    """The best sandbox of this machine, with the system's shell and `cat` as commands."""
    if not os.path.exists(SHELL) or shutil.which("cat") is None:
        pytest.skip("the machine has no shell")
    commands = (Command("sh", reads=(str(shutil.which("cat")),), path=SHELL), Command("cat"))
    with Sandbox(num_slots=2, commands=commands, scratch=1 << 20) as made:
        try:
            made.start_commands()
        except SandboxUnavailable as error:
            if not sandbox.start().startswith("no-open"):
                raise
            pytest.skip(f"native commands cannot be contained here: {error}")
        yield made


def script(shell: Sandbox, text: str, **settings: object) -> CommandResult:
    return shell.run_command(["sh", "-c", text], **{"limits": QUICK} | settings)  # type: ignore[arg-type]


def test_a_command_reads_its_input_and_its_files_and_its_outputs_are_read_back(shell):
    result = shell.run_command(
        ["sh", "-c", "read x; cat in/given.txt; echo $x > out.txt"],
        files={"in/given.txt": "given\n"},
        stdin="typed\n",
        outputs=["out.txt", "in/given.txt", "absent.txt"],
    )
    assert (result.verdict, result.exit_code, result.stdout) == (Verdict.FINISHED, 0, b"given\n")
    assert result.files == {"out.txt": b"typed\n", "in/given.txt": b"given\n"}
    assert result.isolation == shell.start_commands()


def test_no_word_of_the_command_line_is_read_by_a_shell(shell):
    words = ["$(id)", "; id", "a b", "`id`", "*", "'", '"', "é\udcff"]
    result = shell.run_command(["sh", "-c", 'for word in "$@"; do echo "$word"; done', "sh", *words])
    assert result.stdout.decode("utf-8", "surrogatepass").split("\n")[:-1] == words


def test_the_directory_is_empty_for_each_command_and_nothing_of_the_one_before_is_left(shell):
    first = script(shell, "echo secret > left.txt", outputs=["left.txt"])
    assert first.files == {"left.txt": b"secret\n"}
    for _ in range(3):
        second = script(shell, "echo *", outputs=["left.txt"])
        assert (second.stdout, second.files) == (b"*\n", {})


@pytest.mark.parametrize("configuration", [BEST, "C landlock"])
def test_files_that_are_not_removed_in_time_are_a_timeout_and_no_other_command_sees_them(
    monkeypatch, tmp_path, configuration
):
    # A command whose own time is over has none left for its files.
    patch = "from inside import command_server; command_server.CLEARING = 0.0; main(sys.argv)"
    monkeypatch.setattr(slot, "_BOOT", slot._BOOT.replace("main(sys.argv)", patch))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with open_sandbox(configuration, num_slots=1, commands=[Command("sh", path=SHELL)]) as box:
        if box.start().startswith("no-open"):
            pytest.skip("native commands cannot be contained here")
        text = "echo x > left; while :; do echo >> left; done"
        late = script(box, text, limits=Limits(cpu=9.0, wall=0.2), outputs=["left"])
        servers = set(box.pids())
        detail = "more than 0.2 s by the clock, with the removal of its files"
        assert (late.verdict, late.detail) == (Verdict.TIMEOUT, detail)
        assert late.files["left"].startswith(b"x\n"), "they are read back first"
        assert script(box, "echo *").stdout == b"*\n"
        assert not servers & set(box.pids()), "its server was replaced"
    deadline = time.monotonic() + 20.0
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)  # a process of its own removes them
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "verdict", "detail"),
    [
        ("exit 0", "finished", ""),
        ("exit 1", "runtime_error", "exit code 1"),
        ("exit 3", "runtime_error", "exit code 3"),
        ("(while :; do :; done); exit 0", "timeout", "more than 0.5 s of CPU time"),
        ("while :; do :; done & exit 0", "violation", "it left a process behind"),
        ("while :; do echo 0123456789012345678901234567890123456789; done", "output_limit", "more than 1000000 bytes"),
        ("absent", "runtime_error", "exit code 127"),
    ],
)
def test_the_verdict_says_how_it_ended(shell, text, verdict, detail):
    result = script(shell, text, limits=Limits(cpu=0.5, wall=30.0, output=1_000_000))
    assert (result.verdict, result.detail) == (verdict, detail)


def test_a_command_that_waits_is_stopped_by_the_clock(shell):
    result = shell.run_command(["sh", "-c", "while [ ! -e never ]; do cat pipe; done; cat"], limits=QUICK)
    assert result.verdict == Verdict.TIMEOUT


def test_a_file_that_is_given_can_be_executed_and_one_that_is_no_binary_is_a_result(shell):
    cat = Path(str(shutil.which("cat"))).read_bytes()
    assert shell.run_command(["./bin/own"], files={"bin/own": cat}, stdin="through").stdout == b"through"
    garbage = shell.run_command(["./own"], files={"own": b"\x7fELF garbage"})
    assert (garbage.verdict, garbage.exit_code) == (Verdict.RUNTIME_ERROR, 126)
    assert garbage.stderr == b"./own: Exec format error\n"


def test_an_output_that_is_no_file_is_left_out(shell):
    result = script(shell, "mkdir folder; echo x > file", outputs=["folder", "file", "file/below", "folder/none"])
    assert result.files == {"file": b"x\n"}


def test_outputs_that_do_not_fit_are_an_output_limit_and_the_others_are_there(shell):
    files = {"a": b"a" * 600_000}
    result = script(shell, "cat a > b; echo done", files={"a": b"a" * 500_000}, outputs=["a", "a", "a"])
    assert (result.verdict, result.detail) == (
        Verdict.OUTPUT_LIMIT,
        "the file 'a' is larger than the scratch directory",
    )
    assert len(result.files["a"]) == 500_000
    full = script(shell, "cat a > b || echo full", files=files)
    assert full.stdout == b"full\n" or full.verdict == Verdict.OUTPUT_LIMIT


def test_the_environment_has_nothing_of_ours(shell, monkeypatch):
    monkeypatch.setenv("PETTINGLLMS_TEST_SECRET", "canary")
    names = {line.split(b"=")[0] for line in script(shell, "export; set").stdout.splitlines()}
    assert b"PETTINGLLMS_TEST_SECRET" not in names
    assert b"canary" not in script(shell, "export; set").stdout


def test_a_result_is_frozen_hashable_and_survives_a_pickle(shell):
    result = script(shell, "echo x > file", outputs=["file"])
    copied = pickle.loads(pickle.dumps(result))  # made here
    assert copied == result
    assert hash(copied) == hash(result)
    assert pickle.loads(pickle.dumps(Command("sh", path=SHELL))) == Command("sh", path=SHELL)


def test_commands_run_concurrently(shell):
    with ThreadPoolExecutor() as threads:
        results = list(threads.map(lambda n: shell.run_command(["cat"], stdin=str(n)), range(6)))
    assert [result.stdout for result in results] == [b"%d" % n for n in range(6)]


def test_programs_and_commands_share_a_sandbox_and_programs_still_execute_nothing(shell):
    assert script(shell, "echo 1").stdout == b"1\n"
    program = "import os\ntry: os.execv('/bin/sh', ['sh'])\nexcept OSError as error: print(type(error).__name__)"
    assert shell.run(program).stdout == b"PermissionError\n"


def test_the_processs_own_sandbox_executes_given_files(shell):
    cat = Path(str(shutil.which("cat"))).read_bytes()
    assert module.run_command(["./cat"], files={"cat": cat}, stdin="x").stdout == b"x"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"argv": []}, "expected at least one word"),
        ({"argv": ["sh", "a\0b"]}, "none with a null character"),
        ({"argv": ["/bin/sh"]}, "there is no command '/bin/sh'; expected one of this sandbox's"),
        ({"argv": ["./absent"], "files": {"there": b""}}, r"'sh', 'cat', './there'. Declare it: Sandbox\(commands="),
        ({"argv": ["sh"], "files": {"/etc/x": b""}}, "'/etc/x'; expected a relative name"),
        ({"argv": ["sh"], "files": {"a/../../x": b""}}, "expected a relative name"),
        ({"argv": ["sh"], "outputs": ["../x"]}, "expected a relative name"),
        ({"argv": ["sh"], "outputs": [""]}, "expected a relative name"),
        ({"argv": ["sh"], "files": {"x" * 256: b""}}, "expected a relative name"),
        ({"argv": ["sh"], "files": {"x": b"x" * (1 << 21)}}, "need 2097152 bytes; expected fewer than 4096 of both"),
        ({"argv": ["sh"], "files": {f"{n}": b"x" for n in range(257)}}, "257 files in 0 folders need 1052672 bytes"),
        ({"argv": ["sh"], "files": {f"{n}": b"" for n in range(4096)}}, "expected fewer than 4096 of both together"),
        ({"argv": ["sh"], "files": {"a": b"", "a/b": b""}}, "the files have a file 'a' and one below it"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(shell, settings, message):
    with pytest.raises(ValueError, match=message):
        shell.run_command(**settings)


def test_each_command_has_its_own_limits(shell):
    def verdict(seconds: float, memory: int) -> Verdict:
        text = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
        return script(shell, text, limits=Limits(cpu=seconds, memory=memory)).verdict

    assert [verdict(*each) for each in [(0.01, 1 << 28), (5.0, 1 << 28), (0.01, 1 << 27), (5.0, 1 << 27)]] == [
        Verdict.TIMEOUT,
        Verdict.FINISHED,
        Verdict.TIMEOUT,
        Verdict.FINISHED,
    ]


def test_a_runner_that_was_killed_is_replaced(shell):
    assert script(shell, "exit 0").verdict == Verdict.FINISHED
    for pid in processes(shell) - set(shell.pids()):
        if processes_below(pid) == set():
            os.kill(pid, signal.SIGKILL)
    assert [script(shell, "exit 0").verdict for _ in range(3)] == [Verdict.FINISHED] * 3


def processes_below(pid: int) -> set[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return set(map(int, text.split()))


@pytest.mark.slow
def test_a_runner_is_replaced_before_its_own_time_is_a_commands_limit(shell):
    runners: set[int] = set()
    for _ in range(5000):
        result = shell.run_command(["cat"], files={"x": b"x" * 1_000_000}, limits=Limits(cpu=0.1, wall=5.0))
        assert result.verdict == Verdict.FINISHED, result
        runners |= {pid for pid in processes(shell) - set(shell.pids()) if processes_below(pid) == set()}
        if len(runners) > 2:  # those of the tests before are among them
            return
    pytest.fail("one runner ran all of them")


def test_the_least_memory_is_enough_to_start_a_command(shell):
    assert shell.run_command(["cat"], stdin="x", limits=Limits(memory=1 << 24)).stdout == b"x"


def test_a_command_line_in_one_string_is_refused(shell):
    with pytest.raises(TypeError, match=r"expected a list of words, since no shell reads it. Use argv=\['sh'\]"):
        shell.run_command("sh")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Command("no-such-binary"),
            "there is no executable 'no-such-binary' on PATH; expected one. Install it",
        ),
        (lambda: Command("sh", path="/no/sh"), "no executable 'sh' at /no/sh"),
        (lambda: Command("sh", path="/etc"), "no executable 'sh' at /etc"),
        (lambda: Command("a/b"), "expected a name without '/'"),
        (lambda: Command("sh", reads=("/no/such/path",)), "expected the absolute path of a file or directory that"),
        (lambda: Command("sh", reads=("etc",)), "expected the absolute path"),
        (lambda: Command("sh", reads=("/",)), "not all of the machine"),
        (lambda: Command("sh", reads=("/proc/self",)), "expected no path in /proc, /sys, /dev"),
        (lambda: Command("sh", reads=("/usr/../dev/shm",)), "expected no path in /proc, /sys, /dev"),
        (lambda: Sandbox(commands=(Command("sh"), Command("sh"))), "expected each name once"),
        (lambda: Sandbox(scratch=0), "scratch is 0; expected bytes, from 65536"),
    ],
)
def test_a_command_that_cannot_be_run_is_refused_when_it_is_created(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_where_no_file_can_be_opened_commands_are_refused_in_words_and_programs_run():
    with open_sandbox("E no-open", num_slots=1) as box:
        with pytest.raises(SandboxUnavailable, match="native commands cannot be contained here: no-open mode holds"):
            box.run_command(["./x"], files={"x": b""})
        assert box.run("print(1)").stdout == b"1\n"


def test_a_plan_that_hides_no_files_from_commands_is_noticed_before_the_first(monkeypatch, shell):
    from dataclasses import replace

    from pettingllms_envs.sandbox import layers

    honest = layers.confinement_of_commands
    everything = lambda *args: replace(honest(*args), dirs=("/",), files=(), hidden=())  # noqa: E731
    monkeypatch.setattr("pettingllms_envs.sandbox.command_slot.confinement_of_commands", everything)
    with open_sandbox("C landlock", num_slots=1) as box, pytest.raises(SandboxUnavailable) as raised:
        box.start_commands()
    assert "files are unreadable to commands: finished" in str(raised.value)
