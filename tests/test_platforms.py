"""What users of macOS and of Windows get, simulated: see platforms.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


HERE = Path(__file__).parent
NEEDS_LINUX = "a model's programs run in a sandbox of Linux, and this is"


def run_on(platform, folder, *commands):
    """What each command printed, both streams, and its status."""
    command = [sys.executable, str(HERE / "platforms.py"), platform, " ; ".join(commands)]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "COLUMNS": "200"}
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    parts = [part.rpartition("status ") for part in done.stdout.split("$ ")[1:]]
    assert len(parts) == len(commands), done
    return [(printed, int(status)) for printed, _, status in parts], done.stderr.splitlines()


@pytest.fixture(scope="module")
def on_a_mac(tmp_path_factory):
    return run_on(
        "darwin",
        tmp_path_factory.mktemp("mac"),
        *("bench plan_path math search --agents oracle --limit 2", "bench math --workflow single --agents oracle"),
        *("bench math --agents oracle --limit 2", "check math --seeds 1"),
    )


def test_on_a_mac_a_suite_goes_on_and_the_cell_that_needs_the_sandbox_says_why(on_a_mac):
    [(printed, status), *_], _ = on_a_mac
    assert status == 2
    assert "[1/3] plan_path, oracle, 2 of the published test set: 100.0%" in printed
    assert f"[2/3] math, oracle, 2 of the data set: error: {NEEDS_LINUX} darwin; expected Linux" in printed
    assert "[3/3] search, oracle, 2 of the data set: 100.0%" in printed


def test_on_a_mac_what_needs_no_sandbox_plays_and_what_needs_it_ends_in_one_sentence(on_a_mac):
    [_, (printed, status), (_, of_team), (_, of_check)], errors = on_a_mac
    assert (status, of_team, of_check) == (0, 2, 2)
    assert "100.0%" in printed
    assert len(errors) == 2
    assert all(line.startswith(f"error: {NEEDS_LINUX} darwin; expected Linux on x86_64") for line in errors)


def test_on_windows_environments_import_and_play_and_other_commands_name_wsl_2(tmp_path):
    commands = (
        *("list", "play plan_path --auto oracle", "info math", "play math --auto oracle"),
        *("bench plan_path --agents oracle --limit 1", "check plan_path --seeds 1", "study study.yaml"),
    )
    played, errors = run_on("win32", tmp_path, *commands)
    assert [status for _, status in played] == [0, 0, 0, 2, 2, 2, 2]
    assert "cannot be imported" not in played[0][0]
    assert "Solved in turn 1" in played[1][0]
    assert errors[0].startswith(f"error: {NEEDS_LINUX} win32; expected")
    assert len(errors) == 4
    assert all(line.startswith("error: ") and "install WSL 2 (`wsl --install`)" in line for line in errors)


@pytest.mark.parametrize("module", ["fcntl", "yaml"])
def test_a_module_that_is_not_there_is_said_with_what_to_do(module):
    from pettingllms_envs.installing import about_missing

    error = ModuleNotFoundError(f"No module named {module!r}", name=module)
    expected = {"fcntl": "On Windows install WSL 2", "yaml": "Run pip install -e '.[trl]'"}
    assert expected[module] in about_missing(error)
