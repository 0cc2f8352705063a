"""A run killed in the middle of an episode of a program goes on to the weights of one never killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from mortal import exit_status, go_on, mortal
from twin_teams import FOUR, PAIR, WAIT, as_program, fan_out, sequence


STEPS = 5
WAYS: dict[str, dict[str, Any]] = {
    "parallel": {"sampling": "parallel", "credit": "grpo"},
    "tree": {"sampling": "tree", "credit": "at_grpo"},
}
PLAIN = {"sequence": sequence, "fan-out": fan_out}

LANGGRAPH_MARKS = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]


def targets(library: str) -> Mapping[str, Any]:
    """The teams as functions, or as graphs."""
    if library == "none":
        return PLAIN
    from langgraph_teams import TARGETS

    return TARGETS


def live(model: str, path: Path, library: str, name: str, way: str, kill_at: int) -> None:
    """Train from the newest checkpoint. The first run to end after `kill_at` others, if not 0, kills the process."""
    numbers, play = count(1), targets(library)[name]

    def target(base_url: str, row: Mapping[str, Any]) -> None:
        number = next(numbers)
        play(base_url, row)
        if 0 < kill_at <= number:  # its rewards are posted, and its end is not known yet
            os.kill(os.getpid(), signal.SIGKILL)

    options = WAYS[way]
    trainer = mortal(model, path, steps=STEPS, env=as_program(name, {name: target}, WAIT), **options)
    go_on(trainer, path)


def weights(path: Path, name: str) -> dict[str, bytes]:
    last = path / f"checkpoint-{STEPS}"
    return {role: (last / role / "adapter_model.safetensors").read_bytes() for role in roles(name)}


def roles(name: str) -> tuple[str, ...]:
    return PAIR if name == "sequence" else ("writer", FOUR[-1])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(
    "library", [pytest.param("none", marks=pytest.mark.slow), pytest.param("langgraph", marks=LANGGRAPH_MARKS)]
)
def test_a_run_killed_in_an_episode_of_a_program_ends_with_the_weights_of_one_never_killed(
    library: str, name: str, way: str, model_path: str, tmp_path: Path
) -> None:
    if library != "none":
        pytest.importorskip(library)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert exit_status(live, model_path, whole, library, name, way, 0) == 0
    deaths = 0
    for kill_at in (20, 5, 30):
        deaths += exit_status(live, model_path, killed, library, name, way, kill_at) == -signal.SIGKILL
    assert exit_status(live, model_path, killed, library, name, way, 0) == 0
    assert deaths >= 2
    assert weights(killed, name) == weights(whole, name)
    first = load_file(whole / "checkpoint-1" / "writer" / "adapter_model.safetensors")
    last = load_file(whole / f"checkpoint-{STEPS}" / "writer" / "adapter_model.safetensors")
    assert not all(last[key].equal(value) for key, value in first.items())
