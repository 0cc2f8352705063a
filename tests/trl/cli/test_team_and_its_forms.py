"""A trained team with an adapter for each role, compared with its forms by `pettingllms cooperation`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

import pettingllms_envs
from pettingllms_envs import cli
from pettingllms_envs.episodes import files
from pettingllms_trl.testing import train_briefly


TINY = {"workflow": "pair", "size": 4, "wording": "symbols"}


@pytest.mark.slow
def test_a_trained_team_is_compared_with_its_forms_at_equal_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    trainer = train_briefly(partial(pettingllms_envs.make, "archives", **TINY), tmp_path, num_steps=1)
    trainer.save_model("team")
    settings = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]
    own = f"full=transformers:{tmp_path}/model,max_tokens=8"
    line = ["cooperation", "archives", *settings, "--team", "team", "--arm-agents", own, "--limit", "2"]
    assert cli.main([*line, "--output", "o"]) == 0
    numbers = json.loads(Path("o/cooperation.json").read_text())
    adapters = {arm["name"]: {each.get("adapter") for each in arm["agents"].values()} for arm in numbers["arms"]}
    assert adapters.pop("full") == {None}
    assert set(map(frozenset, adapters.values())) == {frozenset({"team/librarian"})}
    for arm in numbers["arms"]:
        assert arm["most_tokens"] <= numbers["generated_tokens"]
        assert arm["num_out_of_tokens"] == 0  # as many replies as the team, each of at most as many tokens
        assert {len(row["steps"]) for row in files.read(Path("o") / arm["name"])} == {6}  # three turns of two
    assert "Every arm may generate" in capsys.readouterr().out
