"""Training in environments as their contributors write them, for three steps each."""

from __future__ import annotations

import importlib
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_trl.testing import train_briefly


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lights_out", "council", "debate", "shop", "reach", "hosted", "pixel_path"])
def test_a_team_trains_for_three_steps(name: str, tmp_path: Path) -> None:
    if name == "reach":
        pytest.importorskip("mujoco", reason="reach_v0 needs mujoco: pip install mujoco")
    if name == "shop" and shutil.which("sqlite3") is None:
        pytest.skip("shop_v0 needs sqlite3: apt-get install sqlite3")
    trainer = train_briefly(partial(importlib.import_module(f"{name}_v0").env, num_turns=1), tmp_path)
    assert trainer.state.global_step == 3


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"workflow": "team"}, {"workflow": "single"}], ids=str)
def test_a_team_that_searches_trains_for_three_steps(settings: dict[str, Any], tmp_path: Path) -> None:
    trainer = train_briefly(partial(pettingllms_envs.make, "search", num_turns=1, **settings), tmp_path)
    assert trainer.state.global_step == 3
