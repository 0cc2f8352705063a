"""Runs to make pages of: real games, scripted replies, one error, one rollout of a training."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs import cli
from pettingllms_envs.episodes import files
from pettingllms_envs.teams.designs import Design, Member, write_design


HOSTILE = "</script><script>document.title = 'taken'</script><b>bold</b> \ud800 …"


def rows(name: str, num: int, *, num_candidates: int = 1) -> list[dict[str, Any]]:
    """Episodes of a game in which every reply is the oracle's, a blind one, or hostile."""
    env = pettingllms_envs.make(name)
    rng = random.Random(0)
    blind = list(env.workflow.task.blind_replies)
    made = []
    for index in range(num):
        options = {"level": 1 + index % 2, "split": "test"}
        env.reset(seed=index, options=options)
        steps: list[dict[str, Any]] = []
        returns = dict.fromkeys(env.possible_agents, 0.0)
        while not (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            agent, before, state = env.agent_selection, env.snapshot(), env.state_hash()
            turn, seen, group = env.infos[agent]["turn"], dict(env.observe(agent)), []
            for _ in range(num_candidates):
                env.restore(before)
                drawn = rng.random()
                reply = env.oracle() if drawn < 0.4 else rng.choice(blind) if drawn < 0.9 else HOSTILE
                env.step(reply)
                parts = {scope: dict(values) for scope, values in env.snapshot().parts.items()}
                group.append({"reply": reply, "reward": env.rewards[agent], "parts": parts, "chosen": False})
            mean = sum(each["reward"] for each in group) / len(group)
            best = max(group, key=lambda each: each["reward"])
            best["chosen"] = True
            env.restore(before)
            env.step(best["reply"])
            for each, reward in env.rewards.items():
                returns[each] += reward
            step = {
                "agent": agent,
                "turn": turn,
                "state": state,
                "prompt": seen,
                "reply": best["reply"],
                "tokens": {"prompt": 100, "completion": 7},
                "finish": "stop",
                "rewards": dict(env.rewards),
                "parts": best["parts"],
            }
            if num_candidates > 1:
                step["candidates"] = [{**each, "advantage": each["reward"] - mean} for each in group]
            steps.append(step)
        outcome = dict(env.infos[env.possible_agents[0]]["outcome"])
        made.append(
            {
                "format": 1,
                "instance": {
                    "index": index,
                    "env": env.metadata["name"],
                    "seed": index,
                    "options": options,
                    "problem": None,
                },
                "sample": 0,
                "steps": steps,
                "success": outcome["success"],
                "outcome": outcome,
                "returns": returns,
                "state": env.state_hash(),
                "error": None,
                **({"training": {"step": 1 + index // 4}} if num_candidates > 1 else {}),
            }
        )
    return made


def write_run(
    folder: Path, made: list[dict[str, Any]], kind: str = "bench", settings: dict[str, Any] | None = None
) -> Path:
    """The run's two files."""
    env = pettingllms_envs.make(made[0]["instance"]["env"], **(settings or {}))
    roles = {agent: agent.rpartition("_")[0] for agent in env.possible_agents}
    config = {"env": made[0]["instance"]["env"], "settings": settings or {}, "roles": roles}
    folder.mkdir(parents=True, exist_ok=True)
    files.write_rows(folder / "episodes.jsonl", made)
    files.write_json(folder / "run.json", files.header(kind, config, {}))
    return folder


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """24 episodes of Sokoban, the fourth of which ended in an error."""
    made = rows("sokoban", 24)
    made[3].update(
        success=None, error={"kind": "unreachable", "message": "connection reset", "agent": None, "step": 0}
    )
    return write_run(tmp_path / "bench", made)


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    """8 trees of Plan-Path with 4 candidates, of two training steps."""
    return write_run(tmp_path / "rollouts", rows("plan_path", 8, num_candidates=4), "rollouts")


@pytest.fixture
def many(tmp_path: Path) -> Callable[[int], Path]:
    """A run of so many episodes, which are a few over and over."""

    def make(num: int) -> Path:
        few = rows("plan_path", 40)
        made = [
            {**few[index % 40], "instance": {**few[index % 40]["instance"], "index": index}} for index in range(num)
        ]
        return write_run(tmp_path / "many", made)

    return make


TEAM = Design((Member("Find the source."), Member(HOSTILE, (0,), ("archive_0",)), Member("Answer.", (0, 1))), 2)


@pytest.fixture
def designs(tmp_path: Path) -> Path:
    """Two episodes of teams that were designed: one plays, and of the other nobody can read the design.

    As in a training, the first design was one of two, and the other one was played to its end twice.
    """
    replies = [write_design(TEAM), HOSTILE, "```call archive_0\nwho\n```", *["I see."] * 4, "Answer: nobody"]
    made = [designed(tmp_path / str(index), own) for index, own in enumerate((replies, [HOSTILE]))]
    made[1]["instance"]["index"] = 1
    design, *members = made[0]["steps"]
    other = {"reply": write_design(Design((Member("Go."),))), "parts": None, "chosen": False, "advantage": -0.5}
    member = members[0] | {"candidates": [candidate(members[0])]}
    turns = [{"return": value, "steps": [member]} for value in (1.25, -0.01)]
    design["candidates"] = [candidate(design), other | {"reward": -0.01, "continuations": turns}]
    return write_run(tmp_path / "designs", made, "rollouts", {"workflow": "designed", "size": 8})


def designed(folder: Path, replies: list[str]) -> dict[str, Any]:
    """An episode with these replies."""
    folder.mkdir()
    (folder / "replies.json").write_text(json.dumps(replies))
    options = "--workflow designed --set size=8 --limit 1 --output"
    agents = f"scripted:{folder / 'replies.json'}"
    assert cli.main(["bench", "archives", "--agents", agents, *options.split(), str(folder / "run")]) == 0
    (row,) = files.read(folder / "run")
    return row


def candidate(step: dict[str, Any]) -> dict[str, Any]:
    """A step as the candidate that was played on."""
    reward = step["rewards"][step["agent"]]
    return {"reply": step["reply"], "reward": reward, "parts": None, "chosen": True, "advantage": 0.5}
