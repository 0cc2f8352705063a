"""Workflow `single` of tasks with an answer: the first box ends the episode; with tools, programs come before it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms_envs.core import TEAM
from pettingllms_envs.datasets.problems import MathProblem
from pettingllms_envs.environments.mathematics.math import Math
from pettingllms_envs.environments.mathematics.single_reasoner import SingleReasoner
from posed import SUM, block, parts, posed


RIGHT = {TEAM: {"progress": 1.0, "success": 1.0}}
WRONG = {TEAM: {"progress": 0.0}}
UNREADABLE = {"reasoner": {"format": -0.2}}
RAN = {"reasoner": {}}
JUNK = "I do not know."


@pytest.mark.parametrize(
    ("tools", "replies", "paid", "standing"),
    [
        (False, ["So \\boxed{5}."], [RIGHT], "solved"),
        (False, ["\\boxed{6}"], [WRONG], "settled"),
        (False, [JUNK, "\\boxed{5}"], [UNREADABLE, RIGHT], "solved"),
        (False, [block("print(5)"), JUNK], [UNREADABLE, UNREADABLE], "out of turns"),
        (True, ["\\boxed{5}"], [RIGHT], "solved"),
        (True, [block("print(5)"), "\\boxed{5}"], [RAN, RIGHT], "solved"),
        (True, [block("1 / 0"), "\\boxed{6}"], [RAN, WRONG], "settled"),
        (True, [block("print(5)") + "\nSo \\boxed{6}."], [WRONG], "settled"),
        (True, ["\\boxed{6}? Let me see.\n" + block("print(5)"), "\\boxed{5}"], [RAN, RIGHT], "solved"),
        (True, [block("print(r'So \\boxed{5}')"), JUNK], [RAN, UNREADABLE], "out of turns"),
        (True, ["```\n\\boxed{5}\n```"], [RIGHT], "solved"),
        (True, ["```python\nprint(r'\\boxed{5}')", "\\boxed{5}"], [UNREADABLE, RIGHT], "solved"),
        (True, ["<think>\n```python\nprint(\n</think>\nSo \\boxed{5}."], [RIGHT], "solved"),
    ],
)
def test_every_reply_is_paid_as_worked_out_by_hand(
    tools: bool, replies: list[str], paid: list[dict[str, dict[str, float]]], standing: str
) -> None:
    env = posed(workflow="single", tools=tools, num_turns=2)
    for reply, expected in zip(replies, paid, strict=True):
        assert env.standing() == ""
        env.step(reply)
        assert parts(env) == expected
    assert env.standing() == standing
    assert env.infos["reasoner_0"]["outcome"]["success"] is (standing == "solved")


def test_with_tools_the_next_prompt_shows_the_program_and_what_it_printed() -> None:
    env = posed(workflow="single", tools=True)
    env.step("First I compute.\n" + block("print(6)"))
    assert env.observe("reasoner_0")["text"] == (
        "Turn 2 of 4.\nThe problem:\nWhat is $2 + 3$?\n"
        "Last turn you had this program run:\n```python\nprint(6)\n```\nIt printed:\n```\n6\n```"
    )


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        (False, "Your last reply was unreadable: it has no \\boxed{} that is closed."),
        (
            True,
            "Your last reply was unreadable: it has no \\boxed{} that is closed, and it has no blocks of Python, and"
            " one is expected.",
        ),
    ],
)
def test_an_unreadable_reply_is_told_why(tools: bool, words: str) -> None:
    env = posed(workflow="single", tools=tools)
    env.step(JUNK)
    assert env.observe("reasoner_0")["text"].splitlines()[-1] == words


def test_only_an_agent_with_tools_reads_of_them() -> None:
    plain, tooled = (posed(workflow="single", tools=tools).observe("reasoner_0")["system"] for tools in (False, True))
    assert "Python" not in plain
    assert "one block of Python" in tooled
    assert [plain.split("\n")[i] for i in (0, 2)] == [tooled.split("\n")[i] for i in (0, 2)]


def test_tools_need_an_executor() -> None:
    assert SingleReasoner(Math()).executor is None
    with pytest.raises(ValueError, match=r"the workflow single got no executor; expected one that runs a model's"):
        SingleReasoner(Math(), tools=True)


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(
    st.lists(st.sampled_from([block("print(5)"), block("1 / 0"), JUNK, "\\boxed{5}", "\\boxed{6}"]), max_size=4),
    st.booleans(),
)
def test_what_is_shown_and_when_it_ends_do_not_depend_on_the_golden_answer(replies: list[str], tools: bool) -> None:
    courses = []
    for answer in ("5", "6"):
        problem = MathProblem(source="by hand", id="sum", statement=SUM.statement, answer=answer)
        env = posed(problem, workflow="single", tools=tools)
        course = [env.observe("reasoner_0")]
        for reply in replies:
            if env.standing():
                break
            env.step(reply)
            course += [env.observe("reasoner_0"), env.terminations, env.truncations]
        courses.append(course)
    assert courses[0] == courses[1]
