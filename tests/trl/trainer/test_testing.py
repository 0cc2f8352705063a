"""`pettingllms_trl.testing`: three steps of a tiny model, in environments that `pettingllms new` has written."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pettingllms_envs import cli
from pettingllms_envs.commands import new
from pettingllms_trl.testing import train_briefly


@pytest.fixture
def make_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Makes the environment of a new package of a kind."""

    def make(kind: str) -> Any:
        name = f"brief_{kind}"
        assert cli.main(["new", name, "--to", str(tmp_path), "--kind", kind]) == 0
        monkeypatch.syspath_prepend(tmp_path / name)
        return importlib.import_module(f"{name}.{name}_v0").env

    return make


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in new.KINDS if kind != "game"])
def test_a_tiny_model_trains_for_three_steps_in_a_new_package(
    kind: str, make_env: Callable[[str], Any], tmp_path: Path
) -> None:
    assert train_briefly(make_env(kind), tmp_path).state.global_step == 3


def test_three_steps_in_a_new_game_move_the_weights(make_env: Callable[[str], Any], tmp_path: Path) -> None:
    trainer = train_briefly(make_env("game"), tmp_path)
    assert trainer.state.global_step == 3
    assert trainer.state.log_history[-1]["rollout/frac_rows_updated"] > 0
    weights = dict(trainer.model.named_parameters())
    assert any("lora_B" in name and weight.any() for name, weight in weights.items())  # which began at 0
