"""`pettingllms train --estimate`, as a person in a terminal meets it; its child is in `tests/accelerator`."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pettingllms_trl.cli import __main__ as cli
from pettingllms_trl.cli import estimate


def child(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any] | None, said: str = "") -> list[list[str]]:
    """The child process leaves this, or nothing, and what it says of errors; returns its commands."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        commands.append(command)
        if found is not None:
            Path(command[3]).write_text(json.dumps(found))
        return SimpleNamespace(stderr=said, returncode=1)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_what_fits_is_printed_with_the_options_that_a_child_is_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = child(monkeypatch, {"text": "A table.", "problems": []})
    assert cli.main(["train", "--config", "run.yaml", "--estimate"]) == 0
    assert capsys.readouterr().out == "A table.\n\nIt fits.\n"
    assert commands[0][1:3] == ["-c", estimate.CHILD]
    assert commands[0][4:] == ["--config", "run.yaml", "--estimate"]


@pytest.mark.parametrize(
    ("found", "said", "expected"),
    [
        ({"text": "A table.", "problems": ["too large.", "less."]}, "", "error: too large. less."),
        (None, "Traceback\nKeyError: 'x'", "error: a step of this training fails on the simulated GPU: KeyError: 'x'"),
        (None, "", "ended with status 1"),
    ],
)
def test_what_does_not_is_an_error(
    found: Any, said: str, expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    child(monkeypatch, found, said)
    assert cli.main(["train", "--estimate"]) == 2
    assert expected in capsys.readouterr().err


def test_an_older_torch_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "version", lambda _: "2.12.1")
    assert cli.main(["train", "--estimate"]) == 2
    assert "torch 2.12.1 is installed; --estimate expects 2.13 or later" in capsys.readouterr().err


def help_of(option: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        cli.main(["train", option])
    return capsys.readouterr().out


def test_help_shows_our_fields_first_and_help_all_those_of_trl_too(capsys: pytest.CaptureFixture[str]) -> None:
    short, whole = help_of("--help", capsys), help_of("--help-all", capsys)
    assert 3 * len(short.splitlines()) < len(whole.splitlines())
    assert short.index("--credit") < short.index("--canary") < short.index("--learning_rate")
    assert "--lr_scheduler_kwargs" not in short
    assert "--lr_scheduler_kwargs" in whole
    assert set(re.findall(r"^  (--\w+)", short, re.M)) < set(re.findall(r"^  (--\w+)", whole, re.M))


def test_help_shows_the_options_of_the_estimate_and_their_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["train", "--help"])
    assert done.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("usage: pettingllms train --config FILE [--field value ...]")
    for option, default in {"gpu": "h100", "num_gpus": "1", "sharding": "ddp", "prompt_tokens": "500"}.items():
        assert re.search(rf"  ?--{option} {option.upper()}.*? With --estimate: [^()]*\(default: {default}\)", shown)
    assert "--estimate [ESTIMATE]" in shown
