"""Runs to make pages of: real games, scripted replies, one error, one rollout of a training."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.episodes import files


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


def write_run(folder: Path, made: list[dict[str, Any]], kind: str = "bench") -> Path:
    """The run's two files."""
    env = pettingllms_envs.make(made[0]["instance"]["env"])
    roles = {agent: agent.removesuffix("_0") for agent in env.possible_agents}
    config = {"env": made[0]["instance"]["env"], "settings": {}, "roles": roles}
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
