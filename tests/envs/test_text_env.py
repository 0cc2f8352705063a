"""The adapter: determinism, snapshots and copies, dead steps, infos, and what it refuses."""

import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pettingllms_envs
from pettingllms_envs import plan_path_v0
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import Role
from pettingllms_envs.plan_path_v0 import raw_env


ROOT = Path(__file__).parents[2]
REPLIES = (
    "Moves: R D",
    "I go down.\nMoves: D",
    "",
    "Moves: L L L U",
    "maybe?",
    "Moves: U R",
    "Moves: R, R",
    "Moves: D D",
)
both = pytest.mark.parametrize("workflow", ["single", "draft_plan"])


def view(env: TextEnv) -> dict[str, Any]:
    """All that PettingZoo shows of an episode, copied."""
    shown = {
        "observations": {agent: env.observe(agent) for agent in env.possible_agents},
        "agents": env.agents,
        "selection": env.agent_selection,
        "rewards": env.rewards,
        "cumulative": env._cumulative_rewards,
        "terminations": env.terminations,
        "truncations": env.truncations,
        "infos": env.infos,
        "hash": env.state_hash(),
    }
    return copy.deepcopy(shown)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("debater", "debater", "judge"), r"has 2 roles called 'debater'; expected a name of its own for each"),
        (("player", "team"), r"has a role called 'team'; expected another name, since rewards of that scope"),
    ],
)
def test_roles_that_could_not_be_told_apart_raise(names: tuple[str, ...], message: str) -> None:
    roles = tuple(Role(name, "You play.") for name in names)
    workflow = SimpleNamespace(name="council", roles=roles, task=raw_env(size=4).workflow.task)
    with pytest.raises(ValueError, match=rf"the workflow 'council' {message}"):
        TextEnv(workflow)  # type: ignore[arg-type]


def finish(env: TextEnv, replies: tuple[str, ...] = REPLIES) -> list[dict[str, Any]]:
    """Play the replies in turn until the last agent has left; what was shown after each step."""
    seen, i = [], 0
    while env.agents:
        over = env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
        env.step(None if over else replies[i % len(replies)])
        i += 1
        seen.append(view(env))
    return seen


@both
def test_an_episode_is_the_same_under_a_seed_from_first_to_last(workflow: str) -> None:
    runs = []
    for _ in range(2):
        env = raw_env(size=6, workflow=workflow)
        env.reset(seed=8, options={"split": "test"})
        runs.append([view(env), *finish(env)])
    assert runs[0] == runs[1]
    assert len(runs[0]) == 1 + 4 * len(env.possible_agents) + len(env.possible_agents)


def test_another_process_with_other_hashes_plays_the_same_episode() -> None:
    program = (
        "import json\nfrom pettingllms_envs.plan_path_v0 import raw_env\n"
        "env = raw_env(size=6)\nenv.reset(seed=8, options={'split': 'test'})\nseen = []\n"
        f"for reply in {REPLIES!r}:\n"
        "    seen.append([env.observe(env.agent_selection), env.rewards, env.infos, env.state_hash()])\n"
        "    env.step(reply)\n"
        "print(json.dumps(seen))"
    )
    runs = []
    for seed in ("1", "2"):
        clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=clean)
        runs.append(json.loads(run.stdout))
    env = raw_env(size=6)
    env.reset(seed=8, options={"split": "test"})
    here = []
    for reply in REPLIES:
        here.append([env.observe(env.agent_selection), env.rewards, env.infos, env.state_hash()])
        env.step(reply)
    assert runs[0] == runs[1] == here


def test_without_a_seed_instances_differ_and_follow_from_the_last_seed_given() -> None:
    env, other = raw_env(size=6), raw_env(size=6)
    texts = []
    for each in (env, other):
        each.reset(seed=9)
        drawn = []
        for _ in range(5):
            each.reset()
            drawn.append(each.observe("drafter_0")["text"])
        texts.append(drawn)
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 5
    fresh = raw_env(size=6), raw_env(size=6)
    for each in fresh:
        each.reset()
    assert fresh[0].observe("drafter_0") != fresh[1].observe("drafter_0")


@both
@pytest.mark.parametrize("way", ["restore", "restore elsewhere", "deepcopy", "pickle"])
def test_an_episode_can_be_taken_up_exactly_at_every_step(workflow: str, way: str) -> None:
    env = raw_env(size=6, workflow=workflow)
    env.reset(seed=2)
    whole = [view(env), *finish(env)]
    env.reset(seed=2)
    for i in range(len(whole) - 1):
        copied: TextEnv
        if way == "deepcopy":
            copied = copy.deepcopy(env)
        elif way == "pickle":
            copied = pickle.loads(pickle.dumps(env))
        else:
            copied = raw_env(size=6, workflow=workflow) if way == "restore elsewhere" else env
            snapshot = pickle.loads(pickle.dumps(env.snapshot()))
            if copied is env:
                finish(env)
            copied.restore(snapshot)
        assert view(copied) == whole[i]
        rotated = tuple(REPLIES[(i + j) % len(REPLIES)] for j in range(len(REPLIES)))
        if copied is not env:
            assert finish(copied, rotated) == whole[i + 1 :]
        assert view(env) == whole[i]
        over = env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
        env.step(None if over else REPLIES[i % len(REPLIES)])
    assert view(env) == whole[-1]


def test_a_branch_disturbs_no_sibling() -> None:
    env = raw_env(size=6)
    env.reset(seed=2)
    env.step("Moves: R")
    root = env.snapshot()
    before = view(env)
    branches = []
    for reply in REPLIES:
        env.restore(root)
        assert view(env) == before
        env.step(reply)
        env.infos["planner_0"]["rewards"]["progress"] = 99.0  # what a caller writes into a dictionary stays there
        env.rewards["planner_0"] = 99.0
        env.infos["drafter_0"].clear()
        branches.append(env.snapshot())
    for reply, branch in zip(REPLIES, branches, strict=True):
        env.restore(branch)
        alone = raw_env(size=6)
        alone.restore(root)
        alone.step(reply)
        assert view(env) == view(alone)
    with pytest.raises(AttributeError):
        root.selection = "planner_0"  # type: ignore[misc]


def test_a_wrapped_environment_can_be_restored_before_any_reset_and_copied_mid_episode() -> None:
    env = plan_path_v0.env(size=6)
    env.reset(seed=2)
    env.step("Moves: R")
    fresh = plan_path_v0.env(size=6)
    fresh.restore(env.snapshot())
    for other in (fresh, copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert other.state_hash() == env.state_hash()
        assert other.last() == env.last()
        assert next(iter(other.agent_iter())) == "planner_0"


def test_the_hash_tells_states_apart_and_forgets_the_rewards() -> None:
    env = raw_env(size=6, workflow="single")
    env.reset(seed=2)
    start = env.snapshot()
    hashes = {env.state_hash()}
    for reply in ("Moves: U", "Moves: D", "Moves: L", "Moves: R", "?"):
        env.restore(start)
        env.step(reply)
        hashes.add(env.state_hash())
    assert len(hashes) == 6  # feedback and turn are part of the state, for the next prompt shows them
    assert all(len(h) == 64 and int(h, 16) for h in hashes)
    env.restore(start)
    richer = raw_env(size=6, workflow="single", alpha=2)
    richer.reset(seed=2)
    assert richer.state_hash() != env.state_hash()


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(
    st.lists(
        st.one_of(st.text(), st.text("UDLR ,[]"), st.text("UDLR ").map("Moves: {}".format)), min_size=8, max_size=8
    ),
    st.sampled_from(["single", "draft_plan"]),
)
def test_every_string_is_a_legal_step(replies: list[str], workflow: str) -> None:
    env = raw_env(size=5, workflow=workflow)
    env.reset(seed=0)
    for shown in finish(env, tuple(replies)):
        for seen in shown["observations"].values():
            assert env.observation_space("planner_0").contains(seen)
        assert "action_mask" not in str(shown["infos"])


def test_the_agents_leave_one_after_the_other_and_then_the_episode_is_over() -> None:
    env = raw_env(size=5, num_turns=1)
    env.reset(seed=0)
    env.step("Moves: U")
    env.step("Moves: U")
    assert env.agent_selection == "drafter_0"
    with pytest.raises(ValueError, match="the episode is over for drafter_0; expected None, got str"):
        env.step("Moves: U")
    reward = env.last()[1]
    assert reward == env._cumulative_rewards["drafter_0"]
    env.step(None)
    assert (env.agents, env.agent_selection, env.rewards) == (["planner_0"], "planner_0", {"planner_0": 0.0})
    env.step(None)
    assert env.agents == []
    assert env.infos == {}
    with pytest.raises(RuntimeError, match=r"step\(\) came after the last agent left. Call reset\(\)"):
        env.step(None)


def test_infos_have_parts_outcome_and_turn_and_nothing_else() -> None:
    env = raw_env(size=5)
    env.reset(seed=0)
    outcome = env.infos["planner_0"]["outcome"]
    assert env.infos["planner_0"] == {"rewards": {}, "team_rewards": [], "outcome": outcome, "turn": 1}
    assert set(outcome) == {"success", "regret", "moves", "optimal", "distance"}
    env.step("Moves: U")
    assert env.infos["planner_0"]["turn"] == 1
    env.step("Moves: U")
    assert {agent: env.infos[agent]["team_rewards"] for agent in env.agents} == {
        "drafter_0": ["progress"],
        "planner_0": ["progress"],
    }
    env.reset(seed=0)
    env.step("Moves: U")
    env.step("Moves: Q")
    assert env.infos["planner_0"]["turn"] == 2
    assert env.metadata["reset_options"] == {
        "split": ("train", "validation", "test"),
        "level": (1, 2, 3, 4, 5),
        "board": (),
    }


def test_unknown_reset_options_are_named_in_a_warning_and_ignored() -> None:
    env = raw_env(size=5)
    with pytest.warns(
        UserWarning, match=r"plan_path_v0 ignores the reset options \['difficulty'\]; it knows split, level, board"
    ):
        env.reset(seed=1, options={"difficulty": 3, "split": "test"})
    seen = env.observe("drafter_0")
    env.reset(seed=1, options={"split": "test"})
    assert env.observe("drafter_0") == seen
    env.reset(seed=1, options={"split": "test", "level": None})  # an empty cell of a data set
    assert env.observe("drafter_0") == seen
    env.reset(seed=1)
    assert env.observe("drafter_0") != seen


def replace_config(env: TextEnv) -> None:
    other = raw_env(size=7)
    other.reset(seed=0)
    env.restore(other.snapshot())


@pytest.mark.parametrize("name", ["blocksworld", "causal_graphs", "eight_queens", "laws", "plan_path", "sokoban"])
def test_a_level_of_a_column_that_lacks_values_is_the_whole_number(name: str) -> None:
    whole, decimal = pettingllms_envs.make(name), pettingllms_envs.make(name)
    whole.reset(seed=1, options={"level": 2})
    decimal.reset(seed=1, options={"level": 2.0})
    assert repr(decimal.snapshot().play) == repr(whole.snapshot().play)


@pytest.mark.parametrize(
    ("mistake", "error", "message"),
    [
        (lambda env: env.step(3), TypeError, r"step\(\) got int for drafter_0; expected a str"),
        (lambda env: env.step(None), TypeError, r"step\(\) got NoneType for drafter_0"),
        (lambda env: env.step(b"Moves: U"), TypeError, r"step\(\) got bytes"),
        (lambda env: env.reset(seed="7"), TypeError, "got the seed '7'; expected a whole number"),
        (lambda env: env.reset(seed=1.5), TypeError, "got the seed 1.5"),
        (lambda env: env.reset(options=["split"]), TypeError, "options of type list; expected a mapping"),
        (
            lambda env: env.reset(options={"split": "tset"}),
            ValueError,
            "split is 'tset'; expected one of 'train', 'val",
        ),
        (lambda env: env.reset(options={"level": 6}), ValueError, "level is 6; expected one of 1, 2, 3, 4, 5"),
        (lambda env: env.reset(options={"board": 5}), ValueError, r"rows of \[1\] cells; expected 5 rows of 5"),
        (lambda env: env.reset(options={"board": "@G"}), ValueError, r"rows of \[2\] cells; expected 5 rows of 5"),
        (lambda env: env.observe("judge_0"), ValueError, "no agent 'judge_0'; expected one of drafter_0, planner_0"),
        (lambda env: env.restore(None), TypeError, r"restore\(\) got NoneType; expected what snapshot\(\) returned"),
        (
            replace_config,
            ValueError,
            r"the snapshot is of plan_path_v0 with .*size=7.*; expected plan_path_v0 with .*size=5",
        ),
    ],
)
def test_a_callers_mistake_is_refused_and_changes_nothing(
    mistake: Callable[[TextEnv], None], error: type[Exception], message: str
) -> None:
    env = raw_env(size=5)
    env.reset(seed=0)
    before = view(env)
    with pytest.raises(error, match=message):
        mistake(env)
    assert view(env) == before


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        (
            {"workflow": "debate"},
            ValueError,
            "workflow is 'debate'; expected one of 'draft_plan', 'single', 'tool_plan'",
        ),
        ({"num_turns": 0}, ValueError, "num_turns is 0; expected a whole number of at least 1"),
        ({"num_turns": 2.0}, ValueError, "num_turns is 2.0"),
        ({"alpha": -1}, ValueError, "alpha is -1; expected"),
        ({"alpha": float("nan")}, ValueError, "alpha is nan; expected"),
        ({"render_mode": "svg"}, ValueError, "render_mode is 'svg'; expected one of 'human', 'ansi', 'rgb_array'"),
        (
            {"executor": print},
            ValueError,
            "the workflow 'draft_plan' got executor=.*, which is a setting of",
        ),
        ({"size": 1}, ValueError, "size is 1"),
        ({"sise": 5}, TypeError, "a setting of PlanPath is 'sise'; expected one of .* Did you mean 'size'?"),
    ],
)
def test_bad_settings_are_refused_when_the_environment_is_made(
    kwargs: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        pettingllms_envs.make("plan_path", **kwargs)


def test_nothing_can_be_asked_of_an_environment_that_was_not_reset() -> None:
    env = raw_env(size=5)
    for ask in (env.snapshot, env.state_hash, lambda: env.step("Moves: U"), lambda: env.observe("planner_0")):
        with pytest.raises(
            RuntimeError, match=r"plan_path_v0 has no episode yet. Call reset\(\) or restore\(\) first"
        ):
            ask()


def test_rendering_without_a_mode_says_how_to_get_one() -> None:
    env = raw_env(size=5)
    env.reset(seed=0)
    with pytest.warns(
        UserWarning, match="needs a render_mode; make the environment with one of 'human', 'ansi', 'rgb_array'"
    ):
        assert env.render() is None
