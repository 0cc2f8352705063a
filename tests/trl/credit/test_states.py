"""Credit that compares states: a class and a function are credited alike, and histories are not compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from datasets import Dataset

from pettingllms_envs import conversation
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import Role
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow
from pettingllms_envs.teams.single import Single
from pettingllms_trl import Completion, MultiAgentGRPOTrainer
from pettingllms_trl.credit import (
    RunningBaseline,
    at_grpo,
    check_states,
    facts_of,
    gigpo,
    grpo,
    loo,
    magrpo,
    max_rl,
    nonzero_variance,
    resolve,
    resolve_filter,
)
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.records import Sampled
from pettingllms_trl.rollout import RolloutOptions, play
from short_runs import settings


PLANNER = Role("planner", "You are the planner. Your moves are played.")


@function_workflow(PLANNER)
def kept(game: Game) -> Questions:
    while game.turns_left:
        reply = yield Ask("planner", game.show(), keeps=())
        game.play(reply, "planner")


@function_workflow(PLANNER)
def unsaid(game: Game) -> Questions:
    while game.turns_left:
        reply = yield Ask("planner", game.show())
        game.play(reply, "planner")


SECONDS = ("Moves: R", "Moves: D", "Moves: D D", "Moves: U")


def decisions(workflow: Any, sampling: str) -> list[Any]:
    """Those of four replies in the first turn that mean one move in other words, and of four moves in the second."""
    asked: dict[str, int] = {}

    def sample(requests: Any) -> list[Sampled]:
        answers = []
        for request in requests:
            prompt = request.prompt.messages[-1]["content"]
            texts = []
            for _ in range(request.num_candidates):
                k = asked[prompt] = asked.get(prompt, -1) + 1
                texts.append(f"Thought {k}.\nMoves: R" if "Turn 1 " in prompt else SECONDS[k % 4])
            completions = tuple(Completion(ids=tuple(text.encode()), text=text) for text in texts)
            answers.append(Sampled(replace(request.prompt, ids=tuple(prompt.encode())), completions))
        return answers

    options = RolloutOptions(sampling=sampling, num_candidates=4)  # type: ignore[arg-type]
    make_env = partial(TextEnv, workflow(PlanPath(), num_turns=2))
    episodes = play([{"seed": 3}], BatchedEngine(sample), options, make_env=make_env, seed="0").episodes
    return [decision for episode in episodes for decision in episode.decisions]


@pytest.mark.parametrize("workflow", [Single, kept])
def test_replies_that_mean_one_move_are_one_state_for_gigpo_and_magrpo(workflow: Any) -> None:
    steps = gigpo(decisions(workflow, "parallel"), scale="none", gamma=1.0)
    # The second moves return 0.03, 0.02, -0.08 and 0.03 more than their mean, as episodes and as steps of one state.
    assert [round(row[0], 3) for row in steps] == [0.06, 0.06, 0.04, 0.04, -0.16, -0.16, 0.06, 0.06]
    first, second = magrpo(decisions(workflow, "tree"))
    assert [round(each, 3) for each in first] == [0, 0, 0, 0]
    assert [round(each, 3) for each in second] == [0.03, 0.02, -0.08, 0.03]


def test_with_histories_gigpo_would_be_grpo() -> None:
    made = decisions(unsaid, "parallel")
    assert [row[0] for row in gigpo(made, scale="none", gamma=1.0)][1::2] == [
        row[0] for row in grpo(made, scale="none")
    ][1::2]


@pytest.mark.parametrize(
    ("credit", "sampling", "expected"),
    [
        ("gigpo", "parallel", True),
        (gigpo, "parallel", True),
        ("magrpo", "tree", True),
        ("magrpo", "parallel", False),  # each episode is continued as it was
        ("return_to_go", "tree", True),
        ("return_to_go", "parallel", False),
        *[({name: {"value": "outcome"}}, "tree", True) for name in ("at_grpo", "loo", "max_rl", "rae")],
        *[(name, "tree", False) for name in ("at_grpo", "loo", "max_rl", "rae")],
        (partial(loo, value="return_to_go"), "tree", True),
        (partial(max_rl, value="reward"), "tree", False),
        (RunningBaseline(value="outcome"), "tree", True),
        ("counterfactual", "tree", False),
        ("grpo", "parallel", False),
        ("dr_mas", "parallel", False),
    ],
)
def test_a_scheme_says_whether_it_compares_states(credit: Any, sampling: Any, expected: bool) -> None:
    scheme = resolve(credit, sampling=sampling, scale="group", num_candidates=2, num_continuations=1)
    assert facts_of(scheme, sampling).compares_states is expected


def trainer(tmp_path: Any, make_env: Callable[[], Any], rows: Any = None, **options: Any) -> MultiAgentGRPOTrainer:
    given = {name: options.pop(name) for name in ("credit", "filters") if name in options}
    # No model is loaded: the environment is refused before.
    return MultiAgentGRPOTrainer(
        "no/model", env=make_env, args=settings(tmp_path, **options), train_dataset=rows or SEEDS, **given
    )


SEEDS = Dataset.from_dict({"seed": range(8)})


@pytest.mark.parametrize(
    ("what", "sampling", "said"),
    [
        ({"credit": "gigpo"}, "parallel", "credit='gigpo' with sampling='parallel'"),
        ({"credit": "magrpo"}, "tree", "credit='magrpo' with sampling='tree'"),
        (
            {"filters": {"nonzero_variance": {"value": "return_to_go"}}},
            "tree",
            "the filter 'nonzero_variance' with sampling='tree'",
        ),
    ],
)
def test_a_function_that_does_not_say_what_it_keeps_is_refused_where_states_are_compared(
    what: dict[str, Any], sampling: str, said: str, tmp_path: Any
) -> None:
    make_env = partial(TextEnv, unsaid(PlanPath()), name="unsaid_v0")
    with pytest.raises(
        ValueError, match=r"those of unsaid_v0 are histories .* write yield Ask\(role, text, keeps="
    ) as e:
        trainer(tmp_path, make_env, sampling=sampling, **what)
    assert str(e.value).startswith(f"{said} compares states")


def test_a_conversation_about_rows_is_refused_too(tmp_path: Any) -> None:
    rows = Dataset.from_dict({"prompt": ["?"] * 8, "answer": ["0"] * 8})
    make_env = conversation(roles=["solver", "critic"], grader="exact")
    with pytest.raises(ValueError, match=r"credit='gigpo' with .* those of conversation_v\d are histories"):
        trainer(tmp_path, make_env, rows, sampling="parallel", credit="gigpo")


def test_filters_and_credit_that_compare_no_states_take_histories() -> None:
    of_rewards = [resolve_filter("nonzero_variance", sampling="tree")]
    check_states(["unsaid_v0"], at_grpo, of_rewards, "tree")
    of_returns = [resolve_filter(partial(nonzero_variance, value="outcome"), sampling="tree")]
    with pytest.raises(ValueError, match="the filter 'nonzero_variance'"):
        check_states(["unsaid_v0"], at_grpo, of_returns, "tree")
    check_states([], gigpo, of_returns, "parallel")
