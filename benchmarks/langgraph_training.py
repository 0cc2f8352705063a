"""A LangGraph team learns: success on held-out instances before and after training, an adapter for each role.

    make frameworks                                                        # the environment with LangGraph, once
    .bench/langgraph/bin/python benchmarks/langgraph_training.py           # seeds 0, 1, 2
    .bench/langgraph/bin/python benchmarks/langgraph_training.py --seeds 0 --steps 2 --rows 10

A drafter and a planner walk a grid of Plan-Path for two turns, as nodes of a graph. With `--rewards "by step"` the
program posts what each reply earns, by the rules of the workflow `draft_plan`, and is trained as a tree by AT-GRPO.
With `--rewards end` it returns 1 - distance left / distance at the start, which is 1 on the goal, and is trained on
parallel episodes by `grpo`. The base model is that of the studies, which has imitated careless walks of both roles.

Each seed plays the same held-out instances (split `test`, none of which is a rotation or reflection of one that was
trained on) untrained, untrained once more, trained, and with the adapters of the two roles swapped. Intervals of
differences are Newcombe's for paired shares. What a reply that ignores the prompt is worth is counted without a model:
every walk of up to five moves is played on the same instances, and the best one is chosen on them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypedDict


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "examples/quickstart"))

import httpx
import torch
from datasets import Dataset
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from plan_path import LORA, TASK
from training import REINFORCEMENT, quiet
from transformers import AutoModelForCausalLM, AutoTokenizer

from pettingllms_envs.core import best_reply
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.evaluation.compare import difference_of_shares
from pettingllms_envs.programs import program
from pettingllms_envs.teams.draft_plan import DraftPlan
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer


ROOT = Path(__file__).resolve().parents[1]
BASE = ROOT / "benchmarks/studies/bases/plan_path"
GAME = DraftPlan(PlanPath(**TASK), num_turns=2)
ROLES = ("drafter", "planner")
# For all runs: LangChain would make two clients for each model, which load certificates for 17 ms each. Without the
# usual limit of 100 connections, since an episode that waits for a reply keeps one.
CLIENTS = {
    "http_client": httpx.Client(trust_env=False, limits=httpx.Limits()),
    "http_async_client": httpx.AsyncClient(trust_env=False),
}


class State(TypedDict):
    """What the nodes share."""

    play: Any
    is_over: bool
    reward: float


def walk(base_url: str, row: Mapping[str, Any], *, posts: bool = True) -> float | None:
    """The team: draft, plan, and once more if the goal is not reached. Posts each reply's rewards, or returns one."""

    def node(role: str) -> Any:
        model = ChatOpenAI(model=role, base_url=base_url, api_key="none", **CLIENTS)

        def act(state: State) -> dict[str, Any]:
            messages = [("system", GAME.system(role)), ("user", GAME.observe(state["play"], role))]
            play, parts, is_solved, is_last = GAME.step(state["play"], str(model.invoke(messages).content))
            if posts:
                CLIENTS["http_client"].post(f"{base_url}/reward", json={"reward": parts}).raise_for_status()
            return {"play": play, "is_over": is_solved or is_last, "reward": GAME.task.value(play.task)}

        return act

    graph = StateGraph(State)
    graph.add_node("draft", node("drafter"))
    graph.add_node("plan", node("planner"))
    graph.add_edge(START, "draft")
    graph.add_edge("draft", "plan")
    graph.add_conditional_edges("plan", lambda state: END if state["is_over"] else "draft")
    start = GAME.start(GAME.task.generate(row["seed"], row.get("split", "train")))
    found = graph.compile().invoke({"play": start, "is_over": False, "reward": 0.0})
    return None if posts else float(found["reward"])


TEAMS = {
    "by step": (program(walk, agents=ROLES, rewards="by step"), {"sampling": "tree", "learning_rate": 1e-3}),
    "end": (program(partial(walk, posts=False), agents=ROLES), {"sampling": "parallel", "learning_rate": 2e-3}),
}
"""The team by when it is paid, with settings of its training. A tree of 48 candidates a decision is six rows."""


def trainer_of(
    model: Any, adapters: Mapping[str, str], output: Path, *, rewards: str, seed: int, steps: int
) -> MultiAgentGRPOTrainer:
    """A trainer of the team on the model; `adapters` has the name of each role's."""
    team, settings = TEAMS[rewards]
    args = MultiAgentGRPOConfig(
        output_dir=str(output),
        num_generations=8,
        per_device_train_batch_size=64 if rewards == "end" else 48,
        max_completion_length=24,
        max_steps=steps,
        seed=seed,
        **settings,
        **REINFORCEMENT,
    )
    return MultiAgentGRPOTrainer(
        model,
        team,
        args,
        Dataset.from_dict({"seed": range(100_000)}),
        processing_class=AutoTokenizer.from_pretrained(BASE),
        policies=adapters,
        credit="grpo" if rewards == "end" else "at_grpo",
        peft_config=None if hasattr(model, "peft_config") else LORA,
    )


def base() -> Any:
    """The base model."""
    return AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)


def held_out(trainer: MultiAgentGRPOTrainer, number: int, name: str = "held out") -> list[bool]:
    """Which of the held-out instances succeed."""
    rows = [{"seed": seed, "split": "test"} for seed in range(number)]
    return [bool(episode.outcome["success"]) for episode in trainer.play(rows, name=name)]


def change(one: Sequence[bool], other: Sequence[bool]) -> tuple[float, float, float]:
    """In points: the difference of two shares on the same instances, and its interval."""
    shares = [[Fraction(success) for success in each] for each in (one, other)]
    low, high = difference_of_shares(*shares)
    return round(100 * (sum(other) - sum(one)) / len(one), 1), round(100 * low, 1), round(100 * high, 1)


def train(rewards: str, seed: int, steps: int, number: int, output: Path) -> dict[str, Any]:
    """Play, train, play again. Returns shares and changes in points."""
    began, cpu = time.perf_counter(), time.process_time()
    make = partial(trainer_of, rewards=rewards, seed=seed, steps=steps)
    trainer = make(base(), {role: role for role in ROLES}, output / "run")
    plays = {"untrained": held_out(trainer, number), "untrained again": held_out(trainer, number, "again")}
    trainer.train()
    plays["trained"] = held_out(trainer, number)
    swapped = make(trainer.model, dict(zip(ROLES, ROLES[::-1], strict=True)), output / "swapped")
    plays["trained, adapters swapped"] = held_out(swapped, number)
    first = plays["untrained"]
    return {
        "seed": seed,
        "success": {name: round(100 * sum(found) / number, 1) for name, found in plays.items()},
        "change": {name: change(first, found) for name, found in plays.items() if found is not first},
        "seconds": round(time.perf_counter() - began),
        "cpu_seconds": round(time.process_time() - cpu),
    }


def without_a_model(number: int) -> dict[str, Any]:
    """What the best constant reply and the oracle get on the held-out instances, in percent."""
    task = GAME.task
    starts = [task.generate(seed, "test") for seed in range(number)]
    walks = ["".join(letters) for length in range(1, 6) for letters in product("UDLR", repeat=length)]

    def successes(move: str) -> int:
        once = [task.apply(start, move) for start in starts]
        return sum(task.solved(state) or task.solved(task.apply(state, move)) for state in once)

    best = max(walks, key=successes)
    oracle = sum(task.solved(task.apply(s, task.parse(best_reply(task, s)))) for s in starts)  # type: ignore[arg-type]
    return {
        "best constant reply": round(100 * successes(best) / number, 1),
        "that reply": task.write(best),
        "constant replies tried": len(walks),
        "oracle": round(100 * oracle / number, 1),
    }


def main() -> None:
    """Train every seed and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rewards", choices=TEAMS, default="by step", help="when the program is paid")
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps (60)")
    parser.add_argument("--rows", type=int, default=300, help="held-out instances (300)")
    parser.add_argument("--output", type=Path, default=ROOT / "outputs/langgraph_training")
    parser.add_argument("--results", type=Path, help="a folder for the figures, a file for each seed")
    options = parser.parse_args()
    quiet()
    given = {"rewards": options.rewards, "steps": options.steps, "rows": options.rows, **without_a_model(options.rows)}
    print(json.dumps(given), flush=True)
    for seed in options.seeds:
        found = {**given, **train(options.rewards, seed, options.steps, options.rows, options.output / f"seed-{seed}")}
        print(json.dumps(found), flush=True)
        if options.results:
            options.results.mkdir(parents=True, exist_ok=True)
            (options.results / f"seed-{seed}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
