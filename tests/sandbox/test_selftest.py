"""The self-test of a sandbox: a layer that does not hold is found at once; an attack out of time shows nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from arena import busy
from pettingllms_envs.sandbox import ProgramResult, Sandbox, SandboxUnavailable, Verdict, selftest
from pettingllms_envs.sandbox.inside.wire import Job
from pettingllms_envs.sandbox.layers import Probed
from pettingllms_envs.sandbox.selftest import Undecided, failures
from pettingllms_envs.sandbox.slot import Work


MEMORY, FILES = "memory is limited", "files are unreadable"
OUTPUTS = {FILES: b"refused " * 4, "there is no network": b"refused " * 8, "others cannot be killed": b"refused " * 4}
VERDICTS = {
    "a sound program passes": Verdict.PASSED,
    "no process is left behind": Verdict.VIOLATION,
    MEMORY: Verdict.MEMORY,
}


class FakeSlot:
    """A server on which the attacks come to nothing, but for some of which the results are given, try by try."""

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.times: dict[str, list[tuple[float, float]]] = {}

    def run(self, job: Job, work: Work, result: Any) -> list[ProgramResult]:
        name = next(each.name for each in selftest.checks() if each.program.encode() == work.program)
        times = self.times.setdefault(name, [])
        times.append((job.cpu, job.wall))
        verdict, output = VERDICTS.get(name, Verdict.FINISHED), OUTPUTS.get(name, b"")
        for key, tries in self.given.items():
            if key in name:
                verdict, output = tries[min(len(times), len(tries)) - 1]
        return [ProgramResult(verdict=verdict, stdout=output, cpu=times[-1][0], isolation="")]


LATE = (Verdict.TIMEOUT, b"")


def test_an_attack_that_ran_out_of_time_is_tried_again_with_more():
    slot = FakeSlot(memory=[LATE, LATE, (Verdict.MEMORY, b"")])
    assert failures(slot) == []
    assert slot.times[MEMORY] == [(1.0, 3.0), (4.0, 12.0), (16.0, 48.0)]
    assert [len(times) for name, times in slot.times.items() if name != MEMORY] == [1] * 5


def test_what_runs_out_of_time_in_every_try_is_undecided_and_never_contained():
    slot = FakeSlot(memory=[LATE], sound=[LATE])
    with pytest.raises(Undecided) as raised:
        failures(slot)
    assert str(raised.value) == (
        "not over in the last of 3 tries: a sound program passes (16.0 s of CPU time, 0.0 s by the clock),"
        " memory is limited (16.0 s of CPU time, 0.0 s by the clock)"
    )
    assert [len(times) for times in slot.times.values()] == [3, 1, 1, 1, 1, 3]


def test_an_attack_that_succeeds_is_not_tried_again_and_counts_more_than_what_is_undecided():
    read = (Verdict.FINISHED, b"secret refused refused refused")
    slot = FakeSlot(unreadable=[read, (Verdict.FINISHED, OUTPUTS[FILES])], memory=[LATE])
    assert failures(slot) == [f"{FILES}: finished  b'secret refused refused refused'"]
    assert len(slot.times[FILES]) == 1
    assert failures(FakeSlot(memory=[LATE, (Verdict.FINISHED, b"taken")])) == [f"{MEMORY}: finished  b'taken'"]


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


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 8])
def test_memory_that_is_not_limited_is_found_and_refused_also_on_a_busy_machine(sandbox, monkeypatch, number):
    monkeypatch.setattr(selftest, "LIMITS", replace(selftest.LIMITS, memory=1 << 34))
    with Sandbox(num_slots=1) as box, busy(number), pytest.raises(SandboxUnavailable, match=f"{MEMORY}: "):
        box.start()
