"""What a shell offers after `pettingllms`, and `pettingllms` without a command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pettingllms_envs import cli


ROOT = Path(__file__).parents[2]


def offered(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert cli.main(["completion", "--words", *words]) == 0
    return capsys.readouterr().out.split()


def test_commands_options_choices_and_environments_are_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"bench", "train", "completion"} <= set(offered(capsys, "be"))
    assert {"--model", "--workflow", "--help"} <= set(offered(capsys, "bench", "plan_path", "--mo"))
    assert {"game", "roles"} <= set(offered(capsys, "new", "lights", "--kind", ""))
    assert {"plan_path", "sokoban"} <= set(offered(capsys, "bench", "pl"))
    assert offered(capsys, "bench", "plan_path", "--model", "") == []  # a value that nobody knows
    assert offered(capsys, "view", "") == []  # a file: the shell's own


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    command = tmp_path / "pettingllms"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pettingllms_envs "$@"\n')
    command.chmod(0o755)
    script = (
        'eval "$(pettingllms completion bash)"\n'
        "COMP_WORDS=(pettingllms bench plan_path --wor); COMP_CWORD=3\n"
        '_pettingllms pettingllms --wor plan_path; printf "%s\\n" "${COMPREPLY[@]}"\n'
        "complete -p pettingllms"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "--workflow",
        "complete -o bashdefault -o default -F _pettingllms pettingllms",
    ]


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: pettingllms")
    assert "benchmark agents on an environment" in out
