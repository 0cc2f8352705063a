"""Several environments in one run: rows go where their column says, agents are joined, figures are kept apart."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, IterableDataset

from decisions import episode_of
from pettingllms_envs import plan_path_v0, sokoban_v0
from pettingllms_trl import Curriculum, Episode, MultiAgentGRPOTrainer
from pettingllms_trl.records import EnvironmentFailure
from pettingllms_trl.rollout.curriculum import Curricula, Progress, by_environment
from pettingllms_trl.rollout.env_pool import EnvPool
from pettingllms_trl.trainer.collector import Played
from pettingllms_trl.trainer.episode_metrics import EpisodeMetrics
from plays import play
from schedules import Patient, Whimsical, babble
from short_runs import settings
from third_party import OneShot, Relay


PLAN_PATH = partial(plan_path_v0.env, size=4, num_turns=1)
SOKOBAN = partial(sokoban_v0.env, size=6, boxes=1, num_turns=1)
MIXED = {"relay": Relay, "oneshot": OneShot}


class Broken(OneShot):
    """Fails at every step."""

    def step(self, action: str | None) -> None:
        raise OSError("the game server is gone")


def rows(*names: str) -> list[dict[str, Any]]:
    return [{"environment": name, "seed": seed} for seed, name in enumerate(names)]


# ---- Which row is played where --------------------------------------------------------------------------------------


def test_a_row_is_reset_with_its_own_fields_and_neither_with_its_environment_nor_with_what_is_none() -> None:
    env_pool = EnvPool({"a": Relay, "b": Relay}, None, default_seed=9)
    first = env_pool.reset_args({"environment": "a", "seed": 5, "level": 2, "board": None})
    assert (first.environment, first.seed, first.options) == ("a", 5, {"level": 2})
    second = env_pool.reset_args({"environment": "b", "seed": None, "board": "#"})
    assert (second.environment, second.seed, second.options) == ("b", 9, {"board": "#"})


def test_one_environment_alone_may_have_an_option_of_that_name() -> None:
    reset_args = EnvPool(Relay, None, default_seed=0).reset_args({"seed": 1, "environment": "forest"})
    assert (reset_args.environment, reset_args.options) == ("", {"environment": "forest"})


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"seed": 1}, "a row has no environment; expected one of 'a', 'b', the names in env="),
        ({"environment": "c"}, "a row has 'c' for its environment; expected one of 'a', 'b'"),
    ],
)
def test_a_row_of_no_environment_is_refused(row: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EnvPool({"a": Relay, "b": Relay}, None, default_seed=0).reset_args(row)


@pytest.mark.parametrize("seed", range(3))
def test_every_row_is_played_in_its_environment_whatever_the_order_of_answers(seed: int) -> None:
    given = rows("relay", "oneshot", "oneshot", "relay", "oneshot")
    found = play(
        given,
        make_env=MIXED,
        engine=Whimsical(babble, random.Random(seed)),
        sampling="parallel",
        num_candidates=2,
        seed="s",
        max_envs=3,
    ).episodes
    assert [(e.instance, e.environment) for e in found] == [
        (i, r["environment"]) for i, r in enumerate(given) for _ in "12"
    ]
    for episode in found:
        agents = {"relay": ["opener_0", "closer_0"] * 2, "oneshot": ["solver_0"]}[episode.environment]
        assert [decision.agent for decision in episode.decisions] == agents
        assert {decision.environment for decision in episode.decisions} == {episode.environment}


def test_a_row_of_several_environments_is_played_as_it_would_be_alone() -> None:
    options: dict[str, Any] = {"sampling": "tree", "num_candidates": 3, "seed": "s", "num_continuations": 1}
    mixed = play(rows("relay", "relay"), make_env=MIXED, engine=Patient(babble), **options)
    alone = play([{"seed": 0}, {"seed": 1}], make_env=Relay, engine=Patient(babble), **options)
    assert [e.returns for e in mixed.episodes] == [e.returns for e in alone.episodes]
    assert [[d.candidates for d in e.decisions] for e in mixed.episodes] == [
        [d.candidates for d in e.decisions] for e in alone.episodes
    ]


def test_environments_go_back_to_the_pool_of_their_kind_and_no_more_are_made_than_are_in_play() -> None:
    made = []

    def making(kind: type) -> Any:
        def make() -> Any:
            made.append(kind)
            return kind()

        return make

    pool: dict[str, list[Any]] = {"relay": [], "oneshot": []}
    for _ in range(2):  # the second time, all come from the pool
        play(
            rows("relay", "oneshot", "relay", "oneshot", "relay"),
            make_env={"relay": making(Relay), "oneshot": making(OneShot)},
            pool=pool,
            engine=Patient(babble),
            sampling="parallel",
            num_candidates=1,
            seed="s",
            max_envs=2,
        )
    assert {name: {type(env) for env in envs} for name, envs in pool.items()} == {
        "relay": {Relay},
        "oneshot": {OneShot},
    }
    assert made.count(Relay) <= 2
    assert made.count(OneShot) <= 2
    assert len(made) == sum(map(len, pool.values()))


def test_an_environment_that_fails_is_tried_anew_on_fresh_ones_of_its_kind_and_its_instance_alone_dropped() -> None:
    made = []

    def broken() -> Broken:
        made.append(1)
        return Broken()

    options: dict[str, Any] = {"sampling": "parallel", "num_candidates": 1, "seed": "s"}
    given = rows("relay", "broken", "relay")
    found = play(given, make_env={"relay": Relay, "broken": broken}, engine=Patient(babble), **options)
    assert list(found.dropped) == [1]
    assert len(made) == 3  # once, and twice anew
    assert [e.instance for e in found.episodes] == [0, 2]
    with pytest.raises(EnvironmentFailure, match="the game server is gone"):
        play(
            rows("broken", "broken", "relay"),
            make_env={"relay": Relay, "broken": broken},
            engine=Patient(babble),
            **options,
        )


# ---- At the door ----------------------------------------------------------------------------------------------------


def trainer(model: str, path: Path, env: Any, data: Any, **options: Any) -> MultiAgentGRPOTrainer:
    own = {
        name: options.pop(name) for name in ("curriculum", "policies", "eval_dataset", "schedule") if name in options
    }
    args = settings(path, **{"num_generations": 2, "max_steps": 2, **options})
    return MultiAgentGRPOTrainer(model, env, args, data, **own)


GAMES = {"plan_path": PLAN_PATH, "sokoban": "pettingllms/sokoban-v0"}
GOOD = {"environment": ["plan_path", "sokoban"], "seed": [0, 1]}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no column": ({"data": {"seed": [0, 1]}}, r"a row has no environment; expected one of 'plan_path', 'sokoban'"),
    "unknown name": (
        {"data": {"environment": ["plan_path", "sokobann"]}},
        r"a row has 'sokobann' for its environment; expected one of 'plan_path', 'sokoban'",
    ),
    "no name": ({"data": {"environment": ["plan_path", None]}}, r"a row has no environment; expected"),
    "field that its environment does not take": (
        {"data": {**GOOD, "puzzle": [None, "x"]}},
        r"rows of 'sokoban' have the fields \['puzzle'\], which that environment does not take\. Known: seed, .* None",
    ),
    "wrong rows to evaluate on": (
        {"data": GOOD, "eval_dataset": Dataset.from_dict({"environment": ["soko"]})},
        r"a row has 'soko' for its environment",
    ),
    "a stream": (
        {"data": IterableDataset.from_generator(lambda: iter([{"seed": 1}])), "max_steps": 1},
        r"a row has no environment",
    ),
    "empty": ({"env": {}, "data": GOOD}, r"env has the names \[\]; expected strings"),
    "unknown environment": ({"env": {"a": "pettingllms/sokobann-v0"}}, r"Did you mean 'sokoban'\?"),
    "a made environment": ({"env": {"a": Relay()}}, r"env is a Relay, expected an id .*or a dict of them by name"),
    "unknown agent": ({"data": GOOD, "policies": {"drafter": "d", "planer": "p"}}, r"Did you mean 'planner'\?"),
    "one curriculum": (
        {"data": GOOD, "curriculum": Curriculum(levels=(1,))},
        r"one curriculum for the environments plan_path, sokoban, .*curriculum=\{name: Curriculum",
    ),
    "curriculum of nothing": (
        {"data": GOOD, "curriculum": {"sudoku": Curriculum(levels=(1,))}},
        r"curriculum has the names \['sudoku'\]; expected some of those in env: plan_path, sokoban",
    ),
    "unknown levels": (
        {"data": GOOD, "curriculum": {"sokoban": Curriculum(levels=(99,))}},
        r"the curriculum has the levels \[99\]; the environment's level is one of",
    ),
}


@pytest.mark.parametrize(("given", "said"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_refused_before_any_model_is_loaded(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    options = dict(given)
    data = options.pop("data", GOOD)
    data = Dataset.from_dict(data) if isinstance(data, dict) else data
    with pytest.raises((ValueError, TypeError), match=said):
        trainer(str(tmp_path / "no model"), tmp_path, options.pop("env", GAMES), data, **options)


def test_the_first_row_of_each_environment_is_tried(tmp_path: Path) -> None:
    class Picky(OneShot):
        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
            if options == {"word": "b"}:
                raise KeyError("no such word")
            super().reset(seed, options)

    data = {"environment": ["relay", "picky"], "seed": [0, 1], "word": [None, "b"]}
    with pytest.raises(KeyError, match="no such word"):
        trainer(str(tmp_path / "no model"), tmp_path, {"relay": Relay, "picky": Picky}, Dataset.from_dict(data))


# ---- A run ----------------------------------------------------------------------------------------------------------


def test_a_run_trains_the_agents_of_all_its_environments_and_logs_each(model_path: str, tmp_path: Path) -> None:
    data = Dataset.from_list([{"environment": name, "seed": i} for i in range(8) for name in ("relay", "oneshot")])
    run = trainer(model_path, tmp_path, MIXED, data, policies="lora", eval_dataset=data.select(range(2)), max_steps=3)
    assert list(run.routing.of_agent) == ["opener_0", "closer_0", "solver_0"]
    before = {name: p.detach().clone() for name, p in run.model.named_parameters() if "lora_B" in name}
    run.train()
    moved = {
        name.split("lora_B.")[1].split(".")[0]
        for name, p in run.model.named_parameters()
        if name in before and (p != before[name]).any()
    }
    assert moved == {"opener", "closer", "solver"}
    logs = [log for log in run.state.log_history if "loss" in log]
    keys = {key for log in logs for key in log}
    assert {"env/relay/agent/opener_0/reward", "env/oneshot/agent/solver_0/return", "rollout/decisions"} <= keys
    evaluated = run.evaluate()
    assert evaluated["eval_env/relay/rollout/decisions"] == 4
    assert evaluated["eval_env/oneshot/rollout/decisions"] == 1
    assert evaluated["eval_rollout/decisions"] == 2.5  # the mean over both episodes


def episode(instance: int, environment: str, *, success: bool) -> Episode:
    return episode_of(instance=instance, outcome={"success": success}, environment=environment)


def test_figures_of_each_environment_stand_beside_those_of_all() -> None:
    episodes = [episode(0, "a", success=True), episode(1, "b", success=False), episode(2, "a", success=True)]
    metrics = EpisodeMetrics([])
    metrics.add(Played(episodes=episodes, scores={}, counts={}))
    found = metrics.of_generation()
    assert found["outcome/success"] == [1.0, 0.0, 1.0]
    assert found["env/a/outcome/success"] == [1.0, 1.0]
    assert found["env/b/outcome/success"] == [0.0]


# ---- Curricula ------------------------------------------------------------------------------------------------------


def test_each_environment_goes_up_its_own_levels_and_one_without_a_curriculum_has_none() -> None:
    given = {"a": Curriculum(levels=(1, 2), window=2, advance_at=1.0), "b": Curriculum(levels=("x", "y"), window=2)}
    curricula = Curricula(by_environment(given, ["a", "b", "c"]))
    rows = [{"environment": name} for name in "abcab"]
    played = curricula.assign(rows, "s")
    assert played == [
        {"environment": "a", "level": 1},
        {"environment": "b", "level": "x"},
        {"environment": "c"},
        {"environment": "a", "level": 1},
        {"environment": "b", "level": "x"},
    ]
    ended = [episode(i, row["environment"], success=row["environment"] == "a") for i, row in enumerate(rows)]
    curricula.advance(played, ended)
    assert curricula.progress == {"a": Progress(1), "b": Progress(0, (False, False))}


@pytest.mark.slow
def test_the_progress_of_every_environment_is_resumed(model_path: str, tmp_path: Path) -> None:
    data = Dataset.from_list([{"environment": name, "seed": i} for i in range(8) for name in ("plan_path", "sokoban")])
    games = {"plan_path": PLAN_PATH, "sokoban": SOKOBAN}
    curriculum = {"sokoban": Curriculum(levels=(1, 2), window=8)}
    run = trainer(model_path, tmp_path, games, data, curriculum=curriculum, save_strategy="steps", save_steps=1)
    run.collector.curricula.progress["sokoban"] = Progress(1, (True, False))
    run.train()
    reached = run.collector.curricula.progress["sokoban"]
    assert reached.index == 1
    assert reached.latest[:2] == (True, False)
    assert len(reached.latest) > 2
    assert [log["env/sokoban/curriculum/level"] for log in run.state.log_history if "loss" in log] == [2.0, 2.0]
    again = trainer(model_path, tmp_path, games, data, curriculum=curriculum)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert again.collector.curricula.progress == {"sokoban": reached}
