"""Real problems through the environments: golden answers succeed, perturbed ones fail, examples solve nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pettingllms_envs
from data_files import PUBLIC, needs_public
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import Unreadable
from pettingllms_envs.datasets import MathProblem, load
from pettingllms_envs.environments.mathematics.rules import AnswerState


FILES = {
    "aime24": ("aime", "aime", 30),
    "aime25": ("aime", "aime", 30),
    "olympiadbench_math_en": ("olympiad_bench", "olympiad_bench", 675),
}


def perturbed(problem: MathProblem) -> Iterator[tuple[str, str]]:
    """Wrong answers that look like the golden one, each with its name."""
    gold = problem.answer
    yield "one more", f"{gold}+1"
    if problem.kind == "integer":
        yield "the next", str(int(gold) + 1)
    items = top_level(gold)
    if len(items) > 1:
        yield "one missing", ",".join(items[:-1])
        yield "one too many", f"{gold},123457"
    elif gold.strip("0. ") and r"\pm" not in gold:
        yield "other sign", f"-({gold})"
    if len(items) == 1 and gold.startswith("(") and gold.endswith(")"):
        inside = top_level(gold[1:-1])
        if len(set(inside)) > 1:
            yield "another order", f"({','.join([*inside[1:], inside[0]])})"


def top_level(text: str) -> list[str]:
    """What stands between the commas that are in no bracket."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def started(file: str, seed: int) -> TextEnv:
    name, layout, _ = FILES[file]
    env = pettingllms_envs.make(name, data=str(PUBLIC / f"{file}.jsonl"), layout=layout, workflow="single")
    env.reset(seed=seed, options={"split": "test"})
    return env


def succeeds(env: TextEnv, answer: str) -> bool:
    """Whether an answer to the problem at hand is a success; the episode stays where it is."""
    start = env.snapshot()
    env.step(f"So it is \\boxed{{{answer}}}.")
    assert env.terminations == {"reasoner_0": True}
    success = env.infos["reasoner_0"]["outcome"]["success"]
    assert env.rewards == {"reasoner_0": 2.0 * success}
    env.restore(start)
    return bool(success)


@needs_public
@pytest.mark.parametrize("file", ["aime24", "aime25", pytest.param("olympiadbench_math_en", marks=pytest.mark.slow)])
def test_every_golden_answer_succeeds_and_every_perturbed_one_fails(file: str) -> None:
    played, wrong = set(), []
    for seed in range(FILES[file][2]):
        env = started(file, seed)
        problem = env.snapshot().play.task.problem
        played.add(problem.id)
        if not succeeds(env, problem.answer):
            wrong.append(f"{problem.id}: {problem.answer} fails")
        wrong += [f"{problem.id}: {how}, {each}" for how, each in perturbed(problem) if succeeds(env, each)]
    assert len(played) == FILES[file][2]
    assert wrong == []


@needs_public
@pytest.mark.parametrize(
    ("file", "layout"),
    [
        ("aime24", "aime"),
        ("aime25", "aime"),
        pytest.param("olympiadbench_math_en", "olympiad_bench", marks=pytest.mark.slow),
        pytest.param("math_train_sample", "math", marks=pytest.mark.slow),
    ],
)
def test_the_example_in_a_prompt_solves_no_known_problem(file: str, layout: str) -> None:
    task = pettingllms_envs.make(layout).workflow.task
    example = task.parse(task.reply_format())
    assert not isinstance(example, Unreadable)
    for problem in load(PUBLIC / f"{file}.jsonl", layout=layout).problems:
        assert isinstance(problem, MathProblem)
        assert not task.solved(task.apply(AnswerState(problem), example)), problem


@needs_public
def test_an_exam_is_no_training_set() -> None:
    env = pettingllms_envs.make("aime", data=str(PUBLIC / "aime24.jsonl"), layout="aime")
    for options in ({}, {"split": "train"}, {"split": "validation"}):
        with pytest.raises(ValueError, match=r"aime24.jsonl has no '(train|validation)' split; expected 'test'"):
            env.reset(seed=0, options=options)
