"""When and by which command a run was started."""

from __future__ import annotations

from datetime import datetime

import pytest

from pettingllms_envs.episodes.origin import command, origin


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["/usr/bin/pettingllms", "bench", "plan_path"], "pettingllms bench plan_path"),
        (["train.py", "--hub_token", "hf_abc", "--seed", "1"], "train.py --hub_token ... --seed 1"),
        (["p", "--agents", "api:m,api_key=sk-1,max_tokens=5"], "p --agents api:m,api_key=...,max_tokens=5"),
        (["p", "--api-key=sk-1"], "p --api-key=..."),
        (["p", "--push_to_hub", "--output", "a b"], "p --push_to_hub --output 'a b'"),
    ],
)
def test_a_command_is_written_without_secrets(argv: list[str], shown: str) -> None:
    assert command(argv) == shown


def test_a_run_says_when_it_was_started() -> None:
    found = origin(["pettingllms"])
    assert datetime.fromisoformat(found["started"]).utcoffset() is not None
    assert found["command"] == "pettingllms"
