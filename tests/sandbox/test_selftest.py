"""The self-test of a sandbox: a layer that does not hold is found at once; an attack out of time shows nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from arena import busy
from pettingllms_envs.sandbox import CommandResult, Limits, Sandbox, SandboxUnavailable, Verdict, selftest
from pettingllms_envs.sandbox.commands import CommandRequest
from pettingllms_envs.sandbox.layers import Probed
from pettingllms_envs.sandbox.selftest import Undecided, command_failures


OUTPUTS = {
    "a sound command works in its directory": b"made",
    "files are unreadable to commands": b"refused " * 4,
    "commands write nowhere else": b"refused " * 3,
    "commands cannot kill others": b"refused " * 2,
}
MEMORY, FILES = "a command's memory is limited", "files are unreadable to commands"
VERDICTS = {"no process of a command is left behind": Verdict.VIOLATION, MEMORY: Verdict.MEMORY}


class FakeSlot:
    """A server on which the attacks come to nothing, but for some of which the results are given, try by try."""

    scratch = 1 << 20

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.times: dict[str, list[tuple[float, float]]] = {}

    def run_command(self, request: CommandRequest, _: str) -> CommandResult:
        name = next(each.name for each in selftest.command_checks() if each.program == request.meta["argv"][2])
        times = self.times.setdefault(name, [])
        times.append((request.job.cpu, request.job.wall))
        verdict, output = VERDICTS.get(name, Verdict.FINISHED), OUTPUTS.get(name, b"")
        for key, tries in self.given.items():
            if key.replace("_", " ") in name:
                verdict, output = tries[min(len(times), len(tries)) - 1]
        return CommandResult(verdict=verdict, stdout=output, cpu=times[-1][0], isolation="")


LATE = (Verdict.TIMEOUT, b"")


def test_an_attack_that_ran_out_of_time_is_tried_again_with_more():
    slot = FakeSlot(memory=[LATE, LATE, (Verdict.MEMORY, b"")])
    assert command_failures(slot) == []
    assert slot.times[MEMORY] == [(1.0, 3.0), (4.0, 12.0), (16.0, 48.0)]
    assert [len(times) for name, times in slot.times.items() if name != MEMORY] == [1] * 5


def test_what_runs_out_of_time_in_every_try_is_undecided_and_never_contained():
    slot = FakeSlot(memory=[LATE], sound=[LATE])
    with pytest.raises(Undecided) as raised:
        command_failures(slot)
    assert str(raised.value) == (
        "not over in the last of 3 tries: a sound command works in its directory (16.0 s of CPU time, 0.0 s by the"
        " clock), a command's memory is limited (16.0 s of CPU time, 0.0 s by the clock)"
    )
    assert [len(times) for times in slot.times.values()] == [3, 1, 1, 1, 1, 3]


def test_an_attack_that_succeeds_is_not_tried_again_and_counts_more_than_what_is_undecided():
    read = (Verdict.FINISHED, b"secret refused refused refused")
    slot = FakeSlot(unreadable=[read, (Verdict.FINISHED, OUTPUTS[FILES])], memory=[LATE])
    assert command_failures(slot) == [f"{FILES}: finished  b'secret refused refused refused'"]
    assert len(slot.times[FILES]) == 1
    assert command_failures(FakeSlot(memory=[LATE, (Verdict.FINISHED, b"taken")])) == [f"{MEMORY}: finished  b'taken'"]


@pytest.fixture
def first_try_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """So short that the shell is late on any machine; the last one is as long as ever."""
    monkeypatch.setattr(selftest, "LIMITS", Limits(cpu=1.0, wall=0.01, memory=1 << 28))
    monkeypatch.setattr(selftest, "TRIES", (1, 1600))


def test_a_start_that_takes_longer_than_a_try_is_no_failed_containment(sandbox, first_try_is_too_short):
    with Sandbox(num_slots=1) as box:
        if box.start().startswith("no-open"):
            pytest.skip("native commands cannot be contained here")
        assert box.start_commands() == box.start()


def test_a_machine_that_is_too_slow_to_tell_is_refused_and_told_so_and_may_try_again(sandbox, monkeypatch):
    with Sandbox(num_slots=1) as box:
        if box.start().startswith("no-open"):
            pytest.skip("native commands cannot be contained here")
        with monkeypatch.context() as slow:
            slow.setattr(selftest, "LIMITS", Limits(cpu=1e-6, wall=1e-6))
            slow.setattr(selftest, "TRIES", (1, 2))
            with pytest.raises(SandboxUnavailable) as raised:
                box.start_commands()
        assert str(raised.value).startswith("it cannot be told whether native commands are contained here (")
        assert str(raised.value).endswith("Try again when this machine is less busy.")
        assert box.start_commands() == box.start()


def test_a_confinement_that_is_undecided_is_not_taken_and_its_line_says_what_helps(sandbox, monkeypatch):
    def undecided(_: object) -> list[str]:
        raise Undecided("not over in the last of 3 tries: files are unreadable (1 s of CPU time, 2.0 s by the clock)")

    monkeypatch.setattr(selftest, "failures", undecided)
    with Sandbox(num_slots=1) as box, pytest.raises(SandboxUnavailable) as raised:
        box.start()
    tried = [line for line in str(raised.value).splitlines() if "cannot be told" in line]
    assert tried
    for line in tried:
        assert line.endswith("2.0 s by the clock). To have it, try again when this machine is less busy")
    assert str(Probed("landlock", False, "x")).endswith("(boot option lsm=landlock,...)")


@pytest.mark.parametrize("number", [0, pytest.param(8, marks=pytest.mark.slow)])
def test_memory_that_is_not_limited_is_found_and_refused_also_on_a_busy_machine(sandbox, monkeypatch, number):
    honest = selftest.request_command

    def with_much(*args: Any, **settings: Any) -> CommandRequest:
        settings["limits"] = replace(settings["limits"], memory=1 << 32)
        return honest(*args, **settings)

    monkeypatch.setattr(selftest, "request_command", with_much)
    with Sandbox(num_slots=1) as box, busy(number):
        if box.start().startswith("no-open"):
            pytest.skip("native commands cannot be contained here")
        with pytest.raises(SandboxUnavailable, match=rf"contained here \(.*\): {MEMORY}: finished  b'taken\\n'"):
            box.start_commands()
