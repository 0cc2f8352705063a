"""Other machines, played by a seccomp filter that refuses what they refuse: what is chosen, and what is said.

Each runs in a process of its own, for a filter is for good.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from pettingllms_envs.sandbox import Sandbox, SandboxUnavailable
from pettingllms_envs.sandbox.layers import Probed, table


PROGRAM = """
import errno, json, sys
from pettingllms_envs.sandbox import Sandbox, SandboxUnavailable, filters
from pettingllms_envs.sandbox.filters import Instruction
from pettingllms_envs.sandbox.inside import kernel

refused, settings = json.loads(sys.argv[1]), json.loads(sys.argv[2])
answers = {number: [Instruction(0x06, 0x00050000 | error)] for number, error in refused}
allow = [Instruction(0x06, 0x7FFF0000)]
if refused:
    kernel.no_new_privileges()
    kernel.install_filter(filters._assemble("x86_64", answers, allow, allow))
# before
try:
    with Sandbox(num_slots=1, **settings) as box:
        level = box.start()
        passed = box.run("print(6 * 7)").stdout == b"42\\n"
        print(json.dumps([level, passed, [each.name for each in box.probed if each.works]]))
except SandboxUnavailable as error:
    print(json.dumps([None, str(error), None]))
"""

EPERM, ENOSYS = 1, 38
UNSHARE, MOUNT, LANDLOCK = [272, EPERM], [165, EPERM], [444, ENOSYS]
SECCOMP = [157, EPERM]  # prctl, and with it no_new_privs


def play(refused: list[list[int]], before: str = "", **settings: object) -> tuple[str | None, object, list[str]]:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("the call numbers of these filters are those of Linux on x86_64")
    command = [sys.executable, "-c", PROGRAM.replace("# before", before), json.dumps(refused), json.dumps(settings)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    level, passed, works = json.loads(run.stdout)
    return level, passed, works


@pytest.mark.parametrize(
    ("refused", "hidden_by"),
    [
        ([UNSHARE], "landlock"),  # an ordinary container: its profile refuses namespaces
        ([MOUNT], "landlock"),  # Ubuntu's AppArmor gives user namespaces without a right in them
        ([UNSHARE, LANDLOCK], "no-open"),  # the same on an older kernel
    ],
)
def test_a_machine_with_fewer_layers_gets_the_best_that_is_left(sandbox, refused, hidden_by):
    level, passed, works = play(refused)
    assert passed is True
    assert level is not None
    if "landlock" not in works:
        assert level.split("+")[0] == "no-open"
    else:
        assert level.split("+")[0] == hidden_by
    assert "namespaces" not in works
    assert "user-namespaces" not in works


def test_root_without_any_capability_runs_programs_as_itself_behind_landlock(sandbox):
    """As in Kubernetes with `drop: [ALL]` and no `runAsUser`."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    level, passed, works = play([UNSHARE], before="kernel.drop_capabilities()")
    assert "uid" not in works
    assert level == ("landlock+seccomp" if "landlock" in works else "no-open+seccomp")
    assert passed is True


def test_a_machine_without_seccomp_is_refused_and_told_why():
    level, message, _ = play([SECCOMP])
    assert level is None
    assert isinstance(message, str)
    assert message.startswith(
        "no sandbox that is good enough works here (min_isolation='no-open'); of these, one must:\n"
    )
    for name in ("namespaces", "user-namespaces", "landlock", "no-open"):
        assert f"  {name:16} no: " in message
    assert "isolation='unsafe-subprocess'" in message


def test_a_caller_who_wants_namespaces_gets_them_or_nothing():
    level, message, _ = play([UNSHARE], min_isolation="namespaces")
    assert level is None
    assert "min_isolation='namespaces'" in str(message)
    assert "landlock         no" not in str(message), "it was not asked for, so it was not tried"


def test_the_table_says_what_to_do():
    text = table([Probed("linux", True), Probed("landlock", False, "Function not implemented")])
    first, second = text.splitlines()
    assert first == "  linux            yes"
    assert second.startswith("  landlock         no: Function not implemented. To have it, use Linux 5.13 or newer")


def test_another_platform_is_refused_before_anything_is_tried(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with Sandbox(num_slots=1) as box, pytest.raises(SandboxUnavailable, match="this is darwin"):
        box.start()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with Sandbox(num_slots=1) as box, pytest.raises(SandboxUnavailable, match="this machine is riscv64"):
        box.start()


def test_a_layer_that_does_not_hold_what_it_says_is_found_out_at_the_start(monkeypatch, sandbox):
    # A confinement whose programs may open every file: the self-test reads the canary, and nothing is run.
    from pettingllms_envs.sandbox import layers

    honest = layers.confinement_of

    def with_root(plan: layers.Plan, imports: object) -> object:
        made = honest(plan, ())
        from dataclasses import replace

        return replace(made, dirs=("/",), files=())

    monkeypatch.setattr("pettingllms_envs.sandbox.slot.confinement_of", with_root)
    with Sandbox(num_slots=1, confinement="landlock") as box, pytest.raises(SandboxUnavailable) as raised:
        box.start()
    if "the kernel has no Landlock" in str(raised.value):
        pytest.skip("the kernel has no Landlock")
    assert "files are unreadable" in str(raised.value)
