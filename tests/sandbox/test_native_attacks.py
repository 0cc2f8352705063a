"""No attack of a compiled binary gets a secret or a foothold, in any configuration that can hold native commands.

By default each attack of `native_attacks.c` runs once, in the sandbox that a user of this machine gets, for a fifth
of a second. With `-m slow` each runs twice in every configuration, for a second.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from arena import BEST, CONFIGURATIONS, Machine, Secret, look, open_sandbox, secret
from pettingllms_envs.sandbox import CommandResult, Limits, Sandbox, SandboxUnavailable, Verdict
from pettingllms_envs.sandbox.inside.scratch import PREFIX


SOURCE = Path(__file__).parent / "native_attacks.c"
ATTACKS = re.findall(r"^ATTACK\((\w+)\)", SOURCE.read_text(), re.MULTILINE)
SCRATCH = 1 << 22
LIMITS = Limits(cpu=1.0, wall=1.5, memory=1 << 28, output=1 << 20, processes=8)
QUICK = Limits(cpu=0.15, wall=0.2, memory=1 << 28, output=1 << 20, processes=4)

HELD = [name for name in CONFIGURATIONS if "no-open" not in name]
ARENAS = [BEST, *(pytest.param(name, marks=pytest.mark.slow) for name in HELD)]

STOPPED = {
    "burn_time": "timeout",
    "burn_time_deaf_to_its_limit": "timeout",
    "burn_time_in_children": "timeout or memory",
    "sleep_for_long": "timeout",
    "wait_for_input": "timeout",
    "wait_for_ever": "timeout",
    "outlive_as_a_daemon": "violation",
    "outlive_deaf_to_signals": "violation",
    "outlive_in_another_group": "violation",
    "outlive_without_a_signal_at_its_end": "violation",
    "outlive_by_threads": "timeout",
    "hold_a_lock": "violation",
    "flood_output": "output_limit",
    "stretch_output": "output_limit",
    "take_memory_in_children": "memory or timeout",
    "take_shared_memory": "memory or timeout",
    "overflow_the_stack": "runtime_error",
    "dump_core": "runtime_error",
    "exit_as_if_killed": "runtime_error",
}
"""What must come of those that do nothing but use up what they were given."""


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The attacks, compiled."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("the machine has no C compiler")
    target = tmp_path_factory.mktemp("compiled") / "an-attack"
    subprocess.run([compiler, "-O1", "-w", "-pthread", str(SOURCE), "-o", str(target)], check=True)
    return target.read_bytes()


@dataclass(frozen=True)
class Battle:
    """What came of all attacks in one configuration."""

    results: dict[str, CommandResult]
    hidden: Secret
    before: Machine
    after: Machine
    num_servers: int
    sound: list[CommandResult]


def open_for_commands(configuration: str, num_slots: int) -> Sandbox:
    """A sandbox of a configuration that holds native commands; skips where the machine does not allow it."""
    made = open_sandbox(configuration, num_slots, scratch=SCRATCH)
    try:
        made.start_commands()
    except SandboxUnavailable as error:
        if not made.start().startswith("no-open"):
            raise
        pytest.skip(f"native commands cannot be contained here: {error}")
    return made


@pytest.fixture(scope="module", params=ARENAS)
def battle(
    request: pytest.FixtureRequest, binary: bytes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Battle]:
    quick = request.param == BEST
    limits, num_slots = (QUICK, 2) if quick else (LIMITS, 4)
    with (
        open_for_commands(request.param, num_slots) as sandbox,
        secret(tmp_path_factory.mktemp("hidden")) as hidden,
        ThreadPoolExecutor(num_slots) as threads,
    ):

        def attack(name: str) -> CommandResult:
            argv = ["./an-attack", name, str(hidden.path), str(os.getpid())]
            return sandbox.run_command(argv, files={"an-attack": binary}, outputs=["output"], limits=limits)

        def sound(_: int) -> CommandResult:
            argv = ["./an-attack", "read_the_environment", "", "1"]
            return sandbox.run_command(argv, files={"an-attack": binary}, limits=Limits())

        list(threads.map(sound, range(24)))
        before = look(sandbox)
        names = ATTACKS if quick else [*ATTACKS, *ATTACKS]
        done = list(zip(names, threads.map(attack, names), strict=True))
        results = dict(done)
        results |= {name: result for name, result in done if b"FOOTHOLD" in result.stdout}
        after = look(sandbox)
        afterwards = list(threads.map(sound, range(24)))
        yield Battle(results, hidden, before, after, len(sandbox.pids()), afterwards)


def test_there_are_more_than_sixty_attacks_of_different_names() -> None:
    assert len(set(ATTACKS)) == len(ATTACKS) > 60
    assert set(STOPPED) <= set(ATTACKS)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_native_attack_gets_neither_the_secret_nor_a_foothold(battle: Battle, name: str) -> None:
    result = battle.results[name]
    written = result.stdout + result.stderr + b"".join(result.files.values())
    assert battle.hidden.text.encode() not in written
    assert b"FOOTHOLD" not in written, result
    assert result.verdict != Verdict.SANDBOX_ERROR, result
    assert result.verdict in STOPPED.get(name, result.verdict).split(" or "), result
    assert result.wall < 10.0 + result.waited


def test_nothing_is_left_of_the_native_attacks_and_the_sandbox_lives(battle: Battle) -> None:
    # Of each server the supervisor, the server itself and the runner, which is another one after some attacks.
    assert len(battle.after.processes) <= 3 * battle.num_servers
    ours = {path for path in battle.after.entries if Path(path).name.startswith(PREFIX)}
    assert battle.after.entries - ours == {path for path in battle.before.entries if PREFIX not in path}
    assert len(ours) <= battle.num_servers
    assert battle.after.shared_memory == battle.before.shared_memory
    assert battle.hidden.path.read_text() == battle.hidden.text + "\n"
    assert {result.verdict for result in battle.sound} == {Verdict.FINISHED}


ROOT_WITHOUT_CAPABILITIES = """
import sys
from pettingllms_envs.sandbox import Sandbox
from pettingllms_envs.sandbox.inside import kernel
kernel.drop_capabilities()
with Sandbox(num_slots=1, confinement="landlock") as box:
    binary = open(sys.argv[1], "rb").read()
    for name in sys.argv[2:]:
        result = box.run_command(["./an-attack", name, "", "1"], files={"an-attack": binary})
        print(result.isolation, result.verdict, result.stdout.decode())
"""


def test_root_without_capabilities_gets_none_by_executing(binary: bytes, tmp_path: Path, sandbox: Sandbox) -> None:
    if os.geteuid() != 0 or "landlock" not in sandbox.start():
        pytest.skip("needs root and Landlock")
    (tmp_path / "an-attack").write_bytes(binary)
    names = ["have_capabilities", "become_another_user", "make_a_root_of_its_own"]
    command = [sys.executable, "-c", ROOT_WITHOUT_CAPABILITIES, str(tmp_path / "an-attack"), *names]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["landlock+seccomp", "finished"] * 3


def test_the_files_of_commands_are_gone_with_their_servers(binary: bytes) -> None:
    parent = Path(tempfile.gettempdir())
    with open_for_commands("C landlock", num_slots=1) as sandbox:
        before = {path.name for path in parent.iterdir() if path.name.startswith(PREFIX)}
        argv = ["./an-attack", "remove_the_secret", "", "1"]
        assert sandbox.run_command(argv, files={"an-attack": binary}).verdict == Verdict.FINISHED
        during = {path.name for path in parent.iterdir() if path.name.startswith(PREFIX)}
        assert len(during - before) == 1
    after = {path.name for path in parent.iterdir() if path.name.startswith(PREFIX)}
    assert not after & (during - before)
