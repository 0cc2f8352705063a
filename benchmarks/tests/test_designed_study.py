"""The study of designed teams: its environments, its base models, its count of leaks; and the toy."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import designed_toy
import pytest
import torch
import yaml
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from pettingllms_envs.registry import make
from pettingllms_envs.studies.results import Cell
from pettingllms_envs.workflows.designs import read_design, write_design
from pettingllms_trl.study.plans.study_file import read_study


ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "benchmarks/studies"
sys.path.insert(0, str(STUDIES))

import designed_bases  # noqa: E402
import designed_envs  # noqa: E402
import designed_leaks  # noqa: E402


FILES = {name: STUDIES / file for name, file in designed_bases.STUDIES.items()}


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # files of studies name environments and models from there


def settings_of(name: str) -> dict[str, Any]:
    """Of the study of a task."""
    found: dict[str, Any] = yaml.safe_load(FILES[name].read_text("utf-8"))["environments"][name]["env_kwargs"]
    return found


def cell_of(method: str, name: str = "plan_path") -> Cell:
    """A run of a study."""
    return Cell(phase="evaluation", environment=name, method=method, seed=1, setting={})


def is_over(env: Any) -> bool:
    """Whether the episode has ended."""
    return bool(env.terminations[env.agent_selection] or env.truncations[env.agent_selection])


def printed(module: Any, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    """What a script prints."""
    monkeypatch.setattr("sys.argv", ["script", *arguments])
    module.main()
    return str(capsys.readouterr().out)


@pytest.mark.parametrize("name", FILES)
def test_each_fixed_team_could_be_designed_and_its_members_are_asked_as_those_of_the_designer(name: str) -> None:
    for team, design in designed_envs.TEAMS[name].items():
        own = settings_of(name) | ({"member_tools": 2} if team == "one" and name == "archives" else {})
        both = [
            make(f"{STUDIES / 'designed_envs.py'}:{name}", **own, workflow="designed"),
            make(f"{STUDIES / 'designed_envs.py'}:{name}", **own, workflow="fixed", team=team),
        ]
        for env in both:
            env.reset(seed=3)
        assert read_design(write_design(design), both[0].unwrapped.workflow.limits) == design
        both[0].step(write_design(design))
        for _ in design.members:
            asked = [(env.agent_selection, env.observe(env.agent_selection)) for env in both]
            assert asked[0] == asked[1]
            for env in both:
                env.step("What?")
        assert all(is_over(env) for env in both)


@pytest.mark.parametrize("name", FILES)
def test_every_method_of_the_studies_has_an_environment_that_is_played(name: str) -> None:
    study = read_study(FILES[name])
    for method in study.methods:
        fields = study.run(cell_of(method, name)).config["train"]
        env = make(fields["env_id"], **fields["env_kwargs"])
        env.reset(seed=1)
        while not is_over(env):
            env.step(env.oracle())
        assert (env.possible_agents[0] in env.rewards) == (fields["env_kwargs"]["workflow"] == "designed")


@pytest.mark.parametrize("name", FILES)
def test_a_base_model_is_made_with_the_tokens_of_the_committed_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    made = tmp_path / "made"
    arguments = [name, "--work", str(tmp_path), "--output", str(made), "--episodes", "0.01"]
    assert "replies to imitate" in printed(designed_bases, arguments, monkeypatch, capsys)
    of_both = [AutoTokenizer.from_pretrained(each) for each in (made, STUDIES / "bases" / f"designed_{name}")]
    assert of_both[0].get_vocab() == of_both[1].get_vocab()
    model = AutoModelForCausalLM.from_pretrained(made, dtype="float32")
    assert len(of_both[0]) == model.get_input_embeddings().num_embeddings


def test_leaks_are_counted_for_each_method_with_the_adapters_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    base, folder = STUDIES / "bases/designed_plan_path", tmp_path.joinpath("runs", *cell_of("designed").parts, "team")
    for role in ("designer", "member"):
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(target_modules="all-linear"))
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if role == "member" and "lora_B" in name:
                    weight.fill_(0.5)
        model.save_pretrained(folder / role)
    said = {}
    for team in (designed_leaks.Team(str(base), folder), designed_leaks.Team(str(base), None)):
        for role in ("designer", "member"):
            torch.manual_seed(0)
            said[role, team.has_adapters] = team.reply(role, "You are the designer.", "Go from row 1 to row 2.")
    assert said["designer", True] == said["designer", False]  # its adapter changes nothing, as before training
    assert said["member", True] != said["member", False]
    arguments = [str(FILES["plan_path"]), "--work", str(tmp_path), "--methods", "designed", "untrained"]
    text = printed(designed_leaks, [*arguments, "--number", "5"], monkeypatch, capsys)
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert [(row["method"], row["asked"]) for row in rows] == [("designed", 5), ("untrained", 5)]
    assert all(0 < row["num"] <= 5 for row in rows)


def test_the_toy_prints_its_three_tables(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    signs = printed(designed_toy, ["--only", "signs", "--rows", "20"], monkeypatch, capsys)
    assert signs.count("of 16 signs are those of the enumerated gradient") == 2
    cost = printed(designed_toy, ["--only", "cost"], monkeypatch, capsys)
    assert len(cost.splitlines()) == 8
    learning = printed(designed_toy, ["--only", "learning", "--seeds", "0", "--steps", "1"], monkeypatch, capsys)
    shares = [float(each) for each in learning.splitlines()[-1].split()[1:-1]]
    assert sum(shares) == pytest.approx(1.0, abs=0.2)
