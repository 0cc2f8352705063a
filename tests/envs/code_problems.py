"""Problems small enough to work out by hand, and environments that play on them."""

from typing import Any

from pettingllms_envs.aec import Snapshot, TextEnv
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.environments.coding.apps import Apps
from pettingllms_envs.environments.coding.rules import CodingState
from pettingllms_envs.sandbox import CallTest, StdinTest


RIGHT = "print(int(input()) ** 2)"
SIGNED = "n = int(input())\nprint(n * abs(n))"  # right but for -4: passes 3 of 4 tests
DOUBLED = "print(int(input()) * 2)"  # right for 0 only: passes 1 of 4 tests
SQUARE = CodeProblem(
    source="hand",
    id="square",
    statement="Read a whole number n and print its square.\n\nExample\n\nInput\n3\n\nOutput\n9\n",
    tests=(StdinTest("3\n", "9\n"), StdinTest("5\n", "25\n"), StdinTest("-4\n", "16\n"), StdinTest("0\n", "0\n")),
    num_public=1,
    solutions=(RIGHT,),
    wrong=(SIGNED, DOUBLED),
)

UNIQUE = CodeProblem(
    source="hand",
    id="unique",
    statement="Given a list, return it without repetitions.\nInput: a = [1, 1, 2]\nOutput: [1, 2]",
    tests=(CallTest([[1, 1, 2]], [1, 2]), CallTest([[]], []), CallTest([[2, 1, 2]], [2, 1])),
    num_public=1,
    fn_name="unique",
    starter_code="def unique(a):\n    ",
    solutions=("def unique(a):\n    return list(dict.fromkeys(a))",),
    wrong=("def unique(a):\n    return sorted(set(a))",),
)


def block(text: str, word: str = "python") -> str:
    return f"```{word}\n{text}\n```"


def cases(*pairs: tuple[str, str]) -> str:
    return "\n".join(f"{block(given, 'input')}\n{block(wanted, 'output')}" for given, wanted in pairs)


def playing(workflow: Any, problem: CodeProblem, split: str = "test", **settings: Any) -> TextEnv:
    """An environment in the first turn on a problem."""
    task = Apps(**{key: settings.pop(key) for key in ("train_tests", "cpu") if key in settings})
    env = TextEnv(workflow(task=task, **settings))
    counted = task.counted_tests(problem) if split == "train" else None
    state = CodingState(problem, len(problem.tests if counted is None else counted), sampled=counted is not None)
    play = env.workflow.start(state)
    agents = tuple(env.possible_agents)
    zeros = (0.0,) * len(agents)
    first = f"{env.workflow.actor(play)}_0"
    env.restore(Snapshot(env._name, env._config, play, agents, first, zeros, zeros))
    return env
