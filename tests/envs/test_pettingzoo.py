"""PettingZoo's own tests and registry, the parallel interface, and the space of replies."""

import copy
import os
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pettingzoo
import pytest
from pettingzoo.test import api_test, max_cycles_test, parallel_api_test, parallel_seed_test, render_test, seed_test
from pettingzoo.utils.conversions import aec_to_parallel_wrapper

import pettingllms_envs
from pettingllms_envs import plan_path_v0
from pettingllms_envs.core import Unreadable
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.observations import Image
from pettingllms_envs.spaces import ChatParts, ChatText
from pettingllms_envs.testing import check


ROOT = Path(__file__).parents[2]
both = pytest.mark.parametrize("workflow", ["single", "draft_plan"])


# What PettingZoo's tests warn about: spaces that are not arrays, and its own `options={"options": 1}`.
for_text = [
    pytest.mark.filterwarnings("ignore:Observation is not a NumPy array:UserWarning"),
    pytest.mark.filterwarnings("ignore:(Observation|Action) space for each agent probably should be:UserWarning"),
    pytest.mark.filterwarnings("ignore:plan_path_v0 ignores the reset options:UserWarning"),
]


def marked(test: Callable[..., None]) -> Callable[..., None]:
    for mark in for_text:
        test = mark(test)
    return test


@both
@marked
def test_the_wrapped_environment_passes_pettingzoos_api_test(workflow: str) -> None:
    env = plan_path_v0.env(workflow=workflow, size=5)
    for agent in env.possible_agents:
        env.action_space(agent).seed(0)
    api_test(env, num_cycles=200)


@both
def test_it_passes_pettingzoos_seed_test(workflow: str) -> None:
    seed_test(lambda: plan_path_v0.env(workflow=workflow, size=5), num_cycles=50)


@both
def test_it_passes_pettingzoos_render_test(workflow: str, capsys: pytest.CaptureFixture[str]) -> None:
    render_test(lambda render_mode: plan_path_v0.env(workflow=workflow, size=5, render_mode=render_mode))
    assert "You are at row" in capsys.readouterr().out


def far(**settings: Any) -> dict[str, Any]:
    """Too far for sampled replies, three moves at most, to end an episode early."""
    return {"size": 20, "blocked": 0.0, "min_distance": 13, **settings}


@both
def test_it_passes_pettingzoos_max_cycles_test(workflow: str) -> None:
    # A cycle in which every agent acts once is a turn, so the parallel side is PettingZoo's cycle-wise wrapper.
    def env(max_cycles: int) -> Any:
        return plan_path_v0.env(**far(workflow=workflow, max_cycles=max_cycles))

    def cycles(max_cycles: int) -> Any:
        made = env(max_cycles)
        made.metadata["is_parallelizable"] = True  # the wrapper insists; our planner then has not seen the draft
        return aec_to_parallel_wrapper(made)

    max_cycles_test(SimpleNamespace(env=env, parallel_env=cycles))


def test_max_cycles_counts_turns_so_that_each_role_takes_that_many_steps() -> None:
    env = plan_path_v0.env(**far(max_cycles=4))
    env.reset(seed=0)
    steps = 0
    while not any(env.truncations.values()):
        env.step("")
        steps += 1
    assert steps == 4 * 2  # turns, roles


def test_max_cycles_is_not_taken_where_agents_do_not_act_once_in_a_turn() -> None:
    with pytest.raises(ValueError, match=r"max_cycles is 4, but .* no cycles to count. Give num_turns"):
        plan_path_v0.env(max_cycles=4, role_tools=["python"])


def test_check_says_which_environment_it_gave_to_max_cycles_test() -> None:
    report = check(plan_path_v0.env, seeds=range(1), only=["pettingzoo"])
    said = "max_cycles_test (of make, and of PettingZoo's aec_to_parallel_wrapper around it)"
    assert said in report["pettingzoo"].detail


@marked
def test_the_parallel_form_of_a_lone_agent_passes_pettingzoos_tests() -> None:
    alone = far(workflow="single")
    parallel_api_test(plan_path_v0.parallel_env(**alone), num_cycles=50)
    parallel_seed_test(lambda: plan_path_v0.parallel_env(**alone), num_cycles=50)
    module = SimpleNamespace(
        env=lambda max_cycles: plan_path_v0.env(**alone, max_cycles=max_cycles),
        parallel_env=lambda max_cycles: plan_path_v0.parallel_env(**alone, max_cycles=max_cycles),
    )
    max_cycles_test(module)


def test_a_team_that_acts_one_after_another_has_no_parallel_form() -> None:
    with pytest.raises(ValueError, match=r"plan_path_v0 has no parallel form .* take workflow='single'"):
        plan_path_v0.parallel_env(size=5)


def test_environments_are_made_by_name() -> None:
    files = Path(pettingllms_envs.__file__).parent.glob("*_v*.py")
    assert pettingllms_envs.list_environments() == tuple(sorted(file.stem.rpartition("_v")[0] for file in files))
    assert str(pettingllms_envs.make("plan_path").unwrapped) == "plan_path_v0"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "plan_pth",
            "no environment 'plan_pth'. Did you mean 'plan_path'. There are: .*, search, .*, verilog.",
        ),
        ("xiangqi", "no environment 'xiangqi'. There are: .*, search, .*, verilog."),
        (7, "no environment 7. There are: .*, search, .*, verilog."),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pettingllms_envs.make(name)


def test_pettingzoos_registry_makes_it_too() -> None:
    env = pettingzoo.make("aec", "pettingllms/plan_path-v0", size=5, max_cycles=2)
    env.reset(seed=0)
    assert env.observe("drafter_0")["text"].startswith("Turn 1 of 2.")
    alone = pettingzoo.make("parallel", "pettingllms/plan_path-v0", size=5, workflow="single")
    assert alone.reset(seed=0)[0].keys() == {"planner_0"}


def test_registering_imports_no_environment() -> None:
    program = "import sys, pettingllms_envs; print(*[m for m in sys.modules if m.startswith('pettingllms')])"
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=clean)
    assert set(run.stdout.split()) == {"pettingllms_envs", "pettingllms_envs.doors"}


def test_every_string_is_in_the_text_space_and_samples_repeat_under_a_seed() -> None:
    space = ChatText(seed=3)
    for text in ("", "\x00\ud800", "x" * 1_000_000):
        assert text in space
    for other in (b"x", 3, None, ["x"]):
        assert other not in space
    space, again = (ChatText(seed=3, replies=PlanPath().blind_replies) for _ in range(2))
    samples = [space.sample() for _ in range(200)]
    assert samples == [again.sample() for _ in range(200)]
    task = PlanPath()
    assert 50 < sum(isinstance(task.parse(sample), Unreadable) for sample in samples) < 150  # half of them are moves
    assert ChatText() == space
    assert hash(ChatText()) == hash(space)
    assert space != object()
    assert [pickle.loads(pickle.dumps(space)).sample()] == [copy.deepcopy(space).sample()] == [space.sample()]
    with pytest.raises(ValueError, match="Every str is legal"):
        space.sample(mask=1)


def test_the_space_of_parts_has_texts_and_images_in_a_list_or_a_tuple() -> None:
    space = ChatParts()
    (text, image) = space.sample()
    assert isinstance(image, Image)
    assert all(parts in space for parts in ([text, image], (image, text), [], [text]))
    assert all(parts not in space for parts in (text, image, [1], [text, None], {text: image}))


def test_an_open_loop_of_random_play_through_the_wrapper_warns_of_nothing() -> None:
    env = pettingllms_envs.make("plan_path", size=5)
    rng = random.Random(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(20):
            env.reset(seed=seed)
            for agent in env.agent_iter():
                _, _, terminated, truncated, _ = env.last()
                env.step(
                    None
                    if terminated or truncated
                    else rng.choice(("Moves: R D", "Moves: U", "Moves: L, L", "perhaps", ""))
                )
                assert agent in env.possible_agents
