"""Training rollouts on disk: what the rows say is what was played, and a resumed run goes on in them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from decisions import decision_of, episode_of
from pettingllms_envs import apps_v0, plan_path_v0
from pettingllms_envs.cli import main
from pettingllms_envs.episodes import files
from pettingllms_envs.page import page
from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.checkpoints.recorder import RolloutRecorder, header, rows
from pettingllms_trl.records import Candidate, Completion, Prompt
from short_runs import settings
from third_party import Relay


def small() -> Any:
    return plan_path_v0.env(size=5, num_turns=2)


def trainer(model: str, path: Path, *, env: Any = small, **options: Any) -> MultiAgentGRPOTrainer:
    args = settings(path, **{"max_completion_length": 4, "log_rollouts": True, "max_steps": 2, **options})
    return MultiAgentGRPOTrainer(model, env, args, Dataset.from_dict({"seed": range(64)}))


def candidate(text: str, ids: tuple[int, ...], reward: float, **more: Any) -> Candidate:
    return Candidate(
        completion=Completion(ids=ids, text=text, finish="stop" if ids[-1:] == (2,) else "length" if ids else None),
        reward=reward,
        **more,
    )


DECISION = decision_of(
    "planner_0",
    [
        candidate("up", (8, 2), 1.5, parts={"progress": 1.0, "steps": 0.5}, team=("progress",), state="s1"),
        candidate("down", (9, 9, 9), -0.5, parts={"steps": -0.5}, state="s2"),
    ],
    instance=1,
    prompt=Prompt([{"role": "system", "content": "Rules."}, {"role": "user", "content": "Go."}], (5, 6, 7)),
    state="s0",
)
EPISODE = episode_of(DECISION, instance=1, returns={"planner_0": 1.5}, outcome={"success": True})
ABOUT: dict[str, Any] = {
    "environments": {"": "plan_path_v0"},
    "teams": {"": ["drafter_0", "planner_0"]},
    "states": {"": {}},
    "policies": {"planner_0": "planner"},
}


def test_the_own_parts_of_an_agent_are_under_its_name_if_its_role_has_several() -> None:
    teams = {"teams": {"": ["planner_0", "planner_1"]}}
    (row,) = rows([EPISODE], {}, [{}, {"seed": 4}], **ABOUT | teams, step=1, before=0, first=0)
    assert row["steps"][0]["parts"] == {"team": {"progress": 1.0}, "planner_0": {"steps": 0.5}}


def test_a_row_says_what_was_played_and_every_candidate() -> None:
    data = [{"seed": 3}, {"seed": 4, "level": 2, "split": None}]
    (row,) = rows([EPISODE], {id(DECISION): [1.0, -1.0]}, data, **ABOUT, step=7, before=12, first=20)
    assert row["instance"] == {
        "index": 21,
        "env": "plan_path_v0",
        "seed": 4,
        "options": {"level": 2},
        "problem": None,
    }
    assert (row["training"], row["success"]) == ({"step": 7, "before": 12, "episodes": 1}, True)
    assert row["state"] == "s1"
    (step,) = row["steps"]
    assert (step["turn"], step["reply"], step["finish"], step["state"]) == (1, "up", "stop", "s0")
    assert step["prompt"] == {"system": "Rules.", "text": "Go."}
    assert step["tokens"] == {"prompt": 3, "completion": 2}
    assert step["parts"] == {"team": {"progress": 1.0}, "planner": {"steps": 0.5}}
    assert [(c["reply"], c["advantage"], c["chosen"], c["finish"]) for c in step["candidates"]] == [
        ("up", 1.0, True, "stop"),
        ("down", -1.0, False, "length"),
    ]
    assert row["digest"] == files.digest(row)


def test_what_is_not_trained_on_has_no_advantage() -> None:
    (row,) = rows([EPISODE], {}, [{}, {"seed": 4}], **ABOUT, step=1, before=0, first=0)
    assert [c["advantage"] for c in row["steps"][0]["candidates"]] == [None, None]


def test_the_header_keeps_settings_that_are_tuples_and_says_what_the_data_are() -> None:
    env = apps_v0.env(order=("tester", "coder"))
    about = json.loads(json.dumps(header("apps_v0", {"": env.metadata}, {}, {"seed": 3})))
    assert about["config"]["settings"] == {
        "workflow": "coder_tester",
        "num_turns": 4,
        "strict_format": False,
        "alpha": 1.0,
        "order": ["tester", "coder"],
    }
    assert apps_v0.env(**about["config"]["settings"]).workflow == env.workflow
    assert about["data"] == {"name": "own:apps", "note": "problems written for this package, not APPS"}
    assert (about["config"]["env"], about["config"]["seed"]) == ("apps_v0", 3)


def test_a_setting_that_the_log_cannot_hold_raises() -> None:
    with pytest.raises(ValueError, match=r"game_v0 has the setting board=\{1\} in its metadata, which the log"):
        header("game_v0", {"": {"name": "game_v0", "settings": {"board": {1}}}}, {}, {})


def test_of_several_environments_each_row_says_which_settings_are_its_own() -> None:
    envs = {"small": plan_path_v0.env(size=4), "large": plan_path_v0.env(size=9)}
    about = header("plan_path_v0, plan_path_v0", {name: env.metadata for name, env in envs.items()}, {}, {})
    assert about["data"] is None
    for name, size in (("small", 4), ("large", 9)):
        episode = dataclasses.replace(EPISODE, environment=name)
        known = {**ABOUT, "environments": dict.fromkeys(envs, "plan_path_v0"), "states": {key: {} for key in envs}}
        known["teams"] = {name: env.possible_agents for name, env in envs.items()}
        (row,) = rows([episode], {}, [{}, {"seed": 4}], **known, step=1, before=0, first=0)
        env, settings = files.remade(about, row)
        assert (env, settings["size"]) == ("plan_path_v0", size)


def test_a_log_begins_anew_at_the_step_that_is_written_first(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        first = RolloutRecorder(tmp_path, {"format": 1})
        assert first.begin(step) == step - 1
        first.write([{"training": {"step": step}, "of": "first"}])
    with open(tmp_path / "episodes.jsonl", "a") as stream:
        stream.write('{"training": {"st')  # a kill
    resumed = RolloutRecorder(tmp_path, {"format": 1})
    assert resumed.begin(3) == 2
    assert json.loads((tmp_path / "run.json").read_text())["written"]["episodes"] == 2
    resumed.write([{"training": {"step": 3}, "of": "resumed"}])
    assert json.loads((tmp_path / "run.json").read_text())["written"]["episodes"] == 3
    lines = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    assert [(line["training"]["step"], line["of"]) for line in lines] == [(1, "first"), (2, "first"), (3, "resumed")]


def test_a_trainings_rollouts_are_read_and_shown_as_an_evaluations_are(model_path: str, tmp_path: Path) -> None:
    trained = trainer(model_path, tmp_path)
    trained.train()
    found = files.read(tmp_path / "rollouts")
    assert [(row["training"]["step"], row["instance"]["index"]) for row in found] == [(1, 0), (1, 1), (2, 2), (2, 3)]
    for row in found:
        for step in row["steps"]:
            assert [each["chosen"] for each in step["candidates"]].count(True) == 1
            assert sum(each["advantage"] for each in step["candidates"]) == pytest.approx(0, abs=1e-5)
    assert files.read_header(tmp_path / "rollouts")["config"]["roles"] == {
        "drafter_0": "drafter",
        "planner_0": "planner",
    }
    settings = files.read_header(tmp_path / "rollouts")["config"]["settings"]
    own = {"workflow": "draft_plan", "num_turns": 2, "strict_format": False, "alpha": 1.0, "size": 5}
    assert settings == own
    replayed = plan_path_v0.env(**settings)
    first = found[0]
    replayed.reset(seed=first["instance"]["seed"], options=first["instance"]["options"])
    for step in first["steps"]:
        assert (replayed.agent_selection, replayed.state_hash()) == (step["agent"], step["state"])
        assert replayed.observe(step["agent"])["text"] == step["prompt"]["text"]
        replayed.step(step["reply"])
    assert replayed.state_hash() == first["state"]
    assert "plan_path_v0: rollouts of a training" in page(tmp_path / "rollouts")
    assert main(["replay", str(tmp_path / "rollouts")]) == 0


def test_a_resumed_training_goes_on_in_the_same_file(model_path: str, tmp_path: Path) -> None:
    trainer(model_path, tmp_path / "whole", max_steps=3).train()
    settings = {"save_strategy": "steps", "save_steps": 1}
    trainer(model_path, tmp_path / "cut", max_steps=2, **settings).train()
    resumed = trainer(model_path, tmp_path / "cut", max_steps=3, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "cut" / "checkpoint-1"))
    whole, cut = (files.read(tmp_path / name / "rollouts") for name in ("whole", "cut"))
    assert [row["digest"] for row in cut] == [row["digest"] for row in whole]


def test_a_strangers_environment_is_logged_with_what_it_says(model_path: str, tmp_path: Path) -> None:
    trainer(model_path, tmp_path, env=Relay, max_steps=1).train()
    row = files.read(tmp_path / "rollouts")[0]
    assert row["state"] is None
    assert row["steps"][0]["parts"] is None


def test_nothing_is_written_unless_asked(model_path: str, tmp_path: Path) -> None:
    trainer(model_path, tmp_path, max_steps=1, log_rollouts=False).train()
    assert not (tmp_path / "rollouts").exists()
