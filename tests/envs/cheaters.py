"""Ways of cheating that need to know the workflow, beside those of the conformance suite; and what comes of all."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pettingllms_envs.environments.coding.text import answer_table, write_cases, write_program
from pettingllms_envs.graders.cases import CodeCase, as_test
from pettingllms_envs.testing.pairs import Cheat, Content, Times, cheats, contents, margins
from pettingllms_envs.testing.play import Policy, Start, best, first_replies


MAX_STEPS = 64
Script = Mapping[str, tuple[Content, Times]]  # what an agent says instead of the oracle's reply, and when


def until(n: int) -> Times:
    """In the replies before this number."""
    return lambda i: i < n


def at(*numbers: int) -> Times:
    """In the replies of these numbers, from 0."""
    return lambda i: i in numbers


def wrong_cases(env: Any, agent: str, said: Sequence[str]) -> str:
    """The oracle's test cases, each with an output that nothing right gives."""
    return re.sub(r"(```output\n).*?(\n```)", r'\g<1>"no such thing"\g<2>', best(env, agent), flags=re.S)


def one_case(env: Any, agent: str, said: Sequence[str]) -> str:
    """The first of the oracle's test cases."""
    return "```output".join(best(env, agent).split("```output")[:2]).split("\n```\n```input\n")[0]


def gullible(env: Any, agent: str, said: Sequence[str]) -> str:
    """A program that gives what the tester's last cases ask for, and nothing else."""
    play = env.unwrapped.snapshot().play
    problem = play.task.problem
    cases, *_ = play.ask.keeps
    tests = tuple(as_test(problem, CodeCase(*case)) for case in cases)
    return write_program(answer_table(replace(problem, tests=tests)) if tests else "print('?')")


def broken(env: Any, agent: str, said: Sequence[str]) -> str:
    """Another wrong program every time."""
    return write_program(f"print({len(said)}, 'is wrong')")


def cases_that_pass(env: Any, agent: str, said: Sequence[str]) -> str:
    """The inputs of the oracle's cases with what the program now gives for them, whatever is right."""
    env = env.unwrapped
    state = env.snapshot().play.task
    best_cases = env.workflow.task.best_cases(state, 4)
    if not state.program:
        return best(env, agent)
    runs = env.workflow.task.run(state, best_cases)
    return write_cases([c._replace(output=r.printed or '""') for c, r in zip(best_cases, runs, strict=True)])


def another_answer(env: Any, agent: str, said: Sequence[str]) -> str:
    """The oracle's answer with one more term, another one every time; also as a program that prints it."""
    return re.sub(r"\}('\)\n```)?$", rf" + {len(said) + 1}}}\1", best(env, agent))


def one_move_printed(env: Any, agent: str, said: Sequence[str]) -> str:
    """A program that prints the oracle's move cut after its first part, or, of the planner, the oracle's move."""
    return re.sub(r"print\('(\S+ \S+?),?( .*)?'\)", r"print('\1')", best(env, agent))


TOOLS: Mapping[str, Script] = {
    "the program prints the first move only": {"tool_0": (one_move_printed, until(99))},
    "at first the program prints the first move only": {"tool_0": (one_move_printed, at(0))},
    "the program prints the first move only, and it is played": {
        "tool_0": (one_move_printed, until(99)),
        "planner_0": (lambda env, agent, said: " ".join(best(env, agent).split(" ")[:2]), until(3)),
    },
}
CODING: Mapping[str, Script] = {
    "wrong cases make the coder break a right program": {
        "tester_0": (wrong_cases, at(0)),
        "coder_0": (gullible, at(1)),
    },
    "wrong cases, and the coder breaks its program in every second turn": {
        "tester_0": (wrong_cases, at(0, 2)),
        "coder_0": (gullible, at(1, 3)),
    },
    "wrong cases for an honest coder": {"tester_0": (wrong_cases, at(0))},
    "wrong cases to the end": {"tester_0": (wrong_cases, until(99))},
    "a wrong program first": {"coder_0": (broken, at(0))},
    "three wrong programs first": {"coder_0": (broken, until(3))},
    "right, then wrong": {"coder_0": (broken, at(1)), "tester_0": (wrong_cases, at(0))},
    "they agree on a wrong program": {"coder_0": (broken, until(99)), "tester_0": (cases_that_pass, until(99))},
    "they agree on what a gullible coder gives": {"coder_0": (gullible, until(99))},
    "one case": {"tester_0": (one_case, until(99))},
    "one case, and a wrong program first": {"tester_0": (one_case, at(1)), "coder_0": (broken, at(0))},
}
ANSWERING: Mapping[str, Script] = {
    "a wrong output": {"tool_0": (another_answer, until(99))},
    "a wrong output first": {"tool_0": (another_answer, at(0))},
    "right, then a wrong output": {"tool_0": (another_answer, at(1)), "reasoner_0": (another_answer, at(0))},
    "a wrong answer until the last turn": {"reasoner_0": (another_answer, until(3))},
    "the answer flips": {"reasoner_0": (another_answer, at(0, 2))},
    "both flip": {"tool_0": (another_answer, at(0, 2)), "reasoner_0": (another_answer, at(1, 3))},
    "they agree on a wrong answer": {
        "tool_0": (another_answer, until(99)),
        "reasoner_0": (another_answer, until(99)),
    },
}


def scripted(script: Script) -> Callable[[], Policy]:
    """What makes the policy of one episode."""

    def make() -> Policy:
        replies: dict[str, list[str]] = {}

        def policy(env: Any, agent: str) -> str:
            said = replies.setdefault(agent, [])
            content, times = script.get(agent, (None, None))
            cheated = content is not None and times is not None and times(len(said))
            said.append(content(env, agent, said) if cheated and content is not None else best(env, agent))
            return said[-1]

        return policy

    return make


class Row(NamedTuple):
    """A line of the table: what was played, and the most that anybody gained."""

    env: str
    workflow: str
    cheats: int
    instances: int
    most: float
    total: float
    worst: str


def play(env: Any, starts: Sequence[Start], scripts: Mapping[str, Script]) -> Row:
    """Every way of cheating on every instance."""
    most, total, worst, ways = float("-inf"), float("-inf"), "", []
    for i, start in enumerate(starts):
        elsewhere = first_replies(env, starts[i - 1], MAX_STEPS)
        ways = [*cheats(env.possible_agents, contents(env.workflow.task.blind_replies, elsewhere))]
        ways += [Cheat(name, tuple(script), scripted(script)) for name, script in scripts.items()]
        for margin in margins(env, start, ways, MAX_STEPS):
            if max(margin.most, margin.total) > max(most, total):
                worst = f"{margin.cheat.name} (seed {start.seed})"
            most, total = max(most, margin.most), max(total, margin.total)
    settings = {k: v for k, v in env.metadata["settings"].items() if k in ("order", "tools") and v}
    workflow = " ".join([env.workflow.name, *map(str, settings.values())])
    return Row(env.metadata["name"], workflow, len(ways), len(starts), most, total, worst)
