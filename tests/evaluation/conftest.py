"""What tests of commands share: a command in an empty folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pettingllms_envs import cli


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The exit status, the output with single spaces, and the error output, of a command in an empty folder."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "PETTINGLLMS_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def command(line: str) -> tuple[int, str, str]:
        status = cli.main(line.split())
        out, err = capsys.readouterr()
        return status, "\n".join(" ".join(each.split()) for each in out.splitlines()), err

    return command
