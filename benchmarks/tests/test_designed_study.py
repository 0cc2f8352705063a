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
from pettingllms_envs.research.studies.results import Cell
from pettingllms_envs.teams.designs import Design, Member, read_design, write_design
from pettingllms_trl.research.study.plans.plan import filled
from pettingllms_trl.research.study.plans.study_file import read_study


ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "benchmarks/studies"
sys.path.insert(0, str(STUDIES))

import designed_bases  # noqa: E402
import designed_envs  # noqa: E402
import designed_leaks  # noqa: E402
import designed_play  # noqa: E402
import designed_search  # noqa: E402


STUDY = STUDIES / "designed.yaml"
ENVIRONMENTS = list(designed_bases.EPISODES)


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # files of studies name environments and models from there


def settings_of(name: str) -> dict[str, Any]:
    """Of an environment of the study."""
    found: dict[str, Any] = yaml.safe_load(STUDY.read_text("utf-8"))["environments"][name]["env_kwargs"]
    return found


def cell_of(method: str, name: str = "plan_path") -> Cell:
    """A run of the study."""
    return Cell(phase="evaluation", environment=name, method=method, seed=1, setting={})


def is_over(env: Any) -> bool:
    """Whether the episode has ended."""
    return bool(env.terminations[env.agent_selection] or env.truncations[env.agent_selection])


def printed(module: Any, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    """What a script prints."""
    monkeypatch.setattr("sys.argv", ["script", *arguments])
    module.main()
    return str(capsys.readouterr().out)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_each_fixed_team_could_be_designed_and_its_members_are_asked_as_those_of_the_designer(name: str) -> None:
    for team, design in designed_envs.TEAMS[name].items():
        own = settings_of(name) | ({"member_tools": 2} if team in ("one", "check") and name == "archives" else {})
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


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_method_of_the_study_has_an_environment_that_is_played(name: str, tmp_path: Path) -> None:
    study = read_study(STUDY)
    tmp_path.joinpath("team.json").write_text(write_design(Design((Member("Go on."),))), "utf-8")
    for method in study.methods_of(name):
        fields = filled(
            study.run(cell_of(method, name)).config["train"], seed=1, environment=name, folder=str(tmp_path)
        )
        env = make(fields["env_id"], **fields["env_kwargs"])
        env.reset(seed=1)
        while not is_over(env):
            env.step(env.oracle())
        assert (env.possible_agents[0] in env.rewards) == (fields["env_kwargs"]["workflow"] == "designed")


@pytest.mark.parametrize("name", ENVIRONMENTS)
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


@pytest.fixture(name="work")
def _work(tmp_path: Path) -> Path:
    """A folder of work with a trained team: its designer's adapter changes nothing, and its member's does."""
    base = STUDIES / "bases/designed_plan_path"
    for role in ("designer", "member"):
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(target_modules="all-linear"))
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if role == "member" and "lora_B" in name:
                    weight.fill_(0.5)
        model.save_pretrained(tmp_path.joinpath("runs", *cell_of("designed").parts, "team") / role)
    return tmp_path


def test_each_role_replies_with_its_adapter_and_to_many_prompts_as_to_one(work: Path) -> None:
    base, said = str(STUDIES / "bases/designed_plan_path"), {}
    folder = work.joinpath("runs", *cell_of("designed").parts, "team")
    for team in (designed_play.Team(base, folder), designed_play.Team(base)):
        for role in ("designer", "member"):
            torch.manual_seed(0)
            said[role, team.has_adapters] = team.replies(role, [("You are the designer.", "Go from row 1 to row 2.")])
    assert said["designer", True] == said["designer", False]
    assert said["member", True] != said["member", False]


def test_designs_that_are_given_are_played_with_the_questions_in_their_order() -> None:
    fields = read_study(STUDY).run(cell_of("untrained")).config["train"]
    designs = ["no design", write_design(designed_envs.TEAMS["plan_path"]["check"])]
    team = designed_play.Team(fields["model_name_or_path"])
    played = designed_play.play(team, fields, (5, 6), "validation", designs)
    assert [each.design for each in played] == designs
    assert [each.outcome["unreadable_design"] for each in played] == [True, False]
    assert [each.outcome["member_calls"] for each in played] == [0, 2]
    assert 0 < team.num_generated <= 2 * 24


def test_leaks_are_counted_before_and_after_training_for_each_seed_and_added(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    arguments = [str(STUDY), "plan_path", "--work", str(work), "--methods", "designed", "--seeds", "1"]
    text = printed(designed_leaks, [*arguments, "--number", "5"], monkeypatch, capsys)
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    names = [(row.pop("method"), row.pop("when"), row.pop("seed")) for row in rows]
    whens = ("before training", 1), ("before training", "all"), ("after", 1), ("after", "all")
    assert names == [("designed", *each) for each in whens]
    assert rows[0] == rows[1]  # of one seed
    assert rows[2] == rows[3]
    assert all(0 < row["readable"] == row["num"] <= row["asked"] == 5 for row in rows)


def test_the_search_finds_the_design_that_wins_with_the_tokens_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    designs = [write_design(each) for each in list(designed_envs.TEAMS["archives"].values())[:4]]
    spent = []

    class FakeTeam:
        """Counts tokens."""

        def __init__(self, base: str) -> None:
            self.num_generated = 0

    def fake_play(team: FakeTeam, fields: Any, seeds: Any, split: str, given: Any = ()) -> list[designed_play.Episode]:
        assert split == "train"
        replies = list(given) or [designs[seed % 4] for seed in seeds]
        team.num_generated += 10 * len(replies)
        spent.append(team.num_generated)
        outcomes = [{"success": each == designs[2], "unreadable_design": False} for each in replies]
        return [designed_play.Episode(*each) for each in zip(replies, outcomes, strict=True)]

    monkeypatch.setattr(designed_search, "Team", FakeTeam)
    monkeypatch.setattr(designed_search, "play", fake_play)
    monkeypatch.setattr(designed_search, "ROUNDS", 1)
    monkeypatch.setattr(designed_search, "NUM_DESIGNS", 3)
    arguments = [str(STUDY), "archives", "--seed", "1", "--output", str(tmp_path)]
    assert printed(designed_search, arguments, monkeypatch, capsys).strip() == designs[2]
    assert tmp_path.joinpath("team.json").read_text("utf-8") == designs[2]
    assert spent[-2] < read_study(STUDY).tokens <= spent[-1]


def test_the_toy_prints_its_three_tables(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    signs = printed(designed_toy, ["--only", "signs", "--rows", "20"], monkeypatch, capsys)
    assert signs.count("of 16 signs are those of the enumerated gradient") == 2
    cost = printed(designed_toy, ["--only", "cost"], monkeypatch, capsys)
    assert len(cost.splitlines()) == 8
    learning = printed(designed_toy, ["--only", "learning", "--seeds", "0", "--steps", "1"], monkeypatch, capsys)
    shares = [float(each) for each in learning.splitlines()[-1].split()[1:-1]]
    assert sum(shares) == pytest.approx(1.0, abs=0.2)
