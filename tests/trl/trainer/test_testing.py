"""`pettingllms_trl.testing`: three steps of a tiny model, in environments that `pettingllms new` has written."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from pettingllms_envs import cli
from pettingllms_envs.commands import new
from pettingllms_trl.testing import train_briefly


@pytest.mark.parametrize(
    "kind", ["tool", *(pytest.param(kind, marks=pytest.mark.slow) for kind in new.KINDS if kind != "tool")]
)
def test_a_tiny_model_trains_for_three_steps_in_a_new_package(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"brief_{kind}"
    assert cli.main(["new", name, "--to", str(tmp_path), "--kind", kind]) == 0
    monkeypatch.syspath_prepend(tmp_path / name)
    trainer = train_briefly(importlib.import_module(f"{name}.{name}_v0").env, tmp_path)
    assert trainer.state.global_step == 3
