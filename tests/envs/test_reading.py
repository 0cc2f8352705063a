"""Replies are read whatever their form: the same answer with marks, in fences, after thoughts, before end tokens."""

import pickle
import time
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.core import Unreadable
from pettingllms_envs.environments.coding.live_code_bench import LiveCodeBench
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.environments.search.rules import Search, SearchMove
from pettingllms_envs.environments.sudoku.rules import Sudoku
from pettingllms_envs.programs.replies import read_reply
from pettingllms_envs.replies.fences import without_thoughts
from pettingllms_envs.replies.marks import TWO_ANSWERS
from pettingllms_envs.replies.reading import with_reading
from pettingllms_envs.tasks.base import OpenTask
from pettingllms_envs.teams.designs import Design, Limits, Member, read_design, write_design
from pettingllms_envs.tools import make_tool
from pettingllms_envs.tools.calls import Call, only_text, read_native_calls, read_text_calls


MOVES = with_reading(PlanPath(), strict=False)
CODE = with_reading(LiveCodeBench(), strict=False)

FORMS = (
    *("**Moves: R R**", "**Moves:** R R", "**Moves**: R R", "*Moves: R R*", "__Moves: R R__", "***Moves: R R***"),
    *("`Moves: R R`", "Moves: `R R`", "Moves: **R R**", "- Moves: R R", "1. Moves: R R", "> Moves: R R"),
    *("### Moves: R R", "Moves : R R", "Moves\u00a0: R R", "Moves\uff1a R R", "\ufeffMoves: R R\u200b"),
    *("```\nMoves: R R\n```", "~~~text\nMoves: R R\n~~~", "Moves: R R\n```", "Moves: R R\n\n---"),
    *("Moves: R R<|im_end|>", "Moves: R R</s> <|eot_id|>", "Moves: R R<end_of_turn>\n"),
    *("<think>Moves: U\ndone.</think>**Moves: R R**", "[THINK]Moves: U[/THINK]`Moves: R R`"),
    *("◁think▷Moves: U◁/think▷- Moves: R R", "<|channel|>analysis<|message|>Up?assistantfinalMoves: R R"),
    *("<answer>Moves: R R</answer>", "<b>Moves:</b> R R", r"\boxed{\text{Moves: R R}}", r"$\text{Moves: R R}$"),
    *('"Moves: R R"', "\u201cMoves: R R\u201d", "Moves: R R.", "**Moves: R R**\n**Moves: R R**"),
)


@pytest.mark.parametrize("reply", FORMS)
def test_marks_around_an_answer_do_not_count(reply: str) -> None:
    assert MOVES.parse(reply) == "RR"


@pytest.mark.parametrize(
    "reply",
    [
        "**Moves: U**\n**Moves: R R**",
        "Moves: U\n**Moves: R R**",
        "```\nMoves: U\n```\n\n```\nMoves: R R\n```",
        "- Moves: U\n- Moves: R",
        "`Moves: U` or `Moves: R`\n`Moves: R`\n**Moves: U**",
    ],
)
def test_two_different_answers_that_only_marks_hide_are_unreadable(reply: str) -> None:
    assert MOVES.parse(reply) == TWO_ANSWERS


@pytest.mark.parametrize("reply", ["~~Moves: U~~\n**Moves: R R**", "- Moves: ~~U~~ R R", "~~Moves: U~~ `Moves: R R`"])
def test_what_is_struck_out_is_no_answer(reply: str) -> None:
    assert MOVES.parse(reply) == "RR"
    assert isinstance(MOVES.parse("~~Moves: R R~~"), Unreadable)


@pytest.mark.parametrize("reply", ["Moves: U\nMoves: R R", "**Moves: U**\nMoves: R R", "<think>x</think>\nMoves: R R"])
def test_what_is_read_strictly_is_read_alike(reply: str) -> None:
    assert MOVES.parse(reply) == PlanPath().parse(reply) == "RR"


@pytest.mark.parametrize("reply", ["", "RR", "**R R**", "<think>Moves: R R", "Moves: R R\nI hope so.", "Moves: R*R"])
def test_what_gives_no_answer_stays_unreadable_for_the_strict_reason(reply: str) -> None:
    assert isinstance(MOVES.parse(reply), Unreadable)
    assert MOVES.parse(reply) == PlanPath().parse(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "```\nprint(1)\n```",
        "```py3\nprint(1)\n```",
        "```python title=main.py\nprint(1)\n```",
        "~~~python\nprint(1)\n~~~",
        "```{.python}\nprint(1)\n```",
        "```python\nprint(1)\n```\nOnce more:\n```python\nprint(1)\n```",
        "```python\nprint(2)\n```\ndone.</think>\n```python\nprint(1)\n```",
        "```python\nprint(1)\n```<|im_end|>",
        "```bash\npip install numpy\n```\n```Python3.11\nprint(1)\n```",
    ],
)
def test_a_program_is_read_in_any_fence(reply: str) -> None:
    assert CODE.parse(reply) == "print(1)"


@pytest.mark.parametrize(
    "reply",
    [
        "```python\nprint(1)\n```\n```python\nprint(2)\n```",
        "```cpp\nint main() {}\n```",
        "```\nprint(1)",
        "```python\nprint(1)\n```\nThat is wrong. Instead:\n```python\nprint(",
        "```\nprint(1)\n```\n```\nprint(",
    ],
)
def test_two_programs_one_in_another_language_and_one_without_an_end_are_unreadable(reply: str) -> None:
    assert isinstance(CODE.parse(reply), Unreadable)


@pytest.mark.parametrize(
    "reply", ["Answer: **Paris**", "Answer: `Paris`", "**Answer: Paris**", "**Answer:** *Paris*", "Answer : __Paris__"]
)
def test_marks_around_a_free_text_are_taken_off(reply: str) -> None:
    assert with_reading(Search(), strict=False).parse(reply) == SearchMove("answer", "Paris")


def test_a_grid_is_read_in_a_fence_after_its_label() -> None:
    reply = "**Grid:**\n```\n1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1\n```"
    task = Sudoku(size=4)
    assert with_reading(task, strict=False).parse(reply) == task.parse("Grid: 1234/3412/2143/4321")


class Echo(OpenTask[str]):
    """A contributed task that is no dataclass, whose move is the reply."""

    name = "echo"


def test_a_contributed_task_reads_so_and_stays_the_same_task() -> None:
    assert with_reading(Echo(), strict=False).parse("**yes**") == "yes"
    assert with_reading(Echo(), strict=True).parse("**yes**") == "**yes**"
    task = with_reading(PlanPath(size=6), strict=False)
    assert isinstance(task, PlanPath)
    assert repr(task) == repr(PlanPath(size=6))
    again = pickle.loads(pickle.dumps(task))
    assert again == task
    assert again.parse("**Moves: R**") == "R"


@pytest.mark.parametrize(
    ("start", "piece", "end"),
    [("", "~", "`"), ("```", " ", "`"), ("", "(", "\U0001f600" + 120_000 * ")")],
)
def test_a_line_of_any_length_is_read_within_a_second(start: str, piece: str, end: str) -> None:
    begun = time.process_time()
    assert isinstance(MOVES.parse(f"{start}{piece * 120_000}{end}\nThat is it."), Unreadable)
    assert time.process_time() - begun < 1


def test_a_reply_of_any_length_is_read_in_linear_time() -> None:
    for piece in ("**Moves: U** ", "```a\n", "<think>", "<|a|>", "- - ", "**", "`", "\\text{", "((", "Moves: U\n\n"):
        assert isinstance(MOVES.parse(piece * (200_000 // len(piece)) + "x"), Unreadable)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("<think>long</think>Hello", "Hello"),
        ("long\ndone.</think>Hello", "Hello"),
        ("<thinking>long</thinking>Hello", "Hello"),
        ("[THINK]long[/THINK]Hello", "Hello"),
        ("<|channel|>analysis<|message|>long<|end|><|start|>assistant<|channel|>final<|message|>Hello", "Hello"),
        ("Hello<think>it is cut off", "Hello"),
        ("I thought of it.", "I thought of it."),
    ],
)
def test_thoughts_are_taken_off_however_they_are_marked(reply: str, said: str) -> None:
    assert without_thoughts(reply) == said


def prompt_of(env: Any) -> str:
    return str(env.observe(env.agent_selection))


@pytest.mark.parametrize("end", ["</think>", "done.</think>", "[/THINK]", "</reasoning>", "◁/think▷", "<|/think|>"])
def test_no_other_role_reads_thoughts(end: str) -> None:
    for name, options in (("hidden_bench", {}), ("conversation", {"prompt": "Say hello."})):
        env = pettingllms_envs.make(name)
        env.reset(seed=0, options=options)
        env.step(f"{'a secret thought ' * 300}{end}The message.")
        assert "The message." in prompt_of(env)
        assert "secret" not in prompt_of(env)


def test_an_environment_is_lenient_by_default_and_says_so_in_its_settings() -> None:
    for strict, form, reward in (
        (False, "leniently", -0.1),
        (True, "unreadable: its last line does not begin with 'Moves:'", -0.2),
    ):
        env = pettingllms_envs.make("plan_path", workflow="single", **({"strict_format": True} if strict else {}))
        assert env.metadata["settings"]["strict_format"] is strict
        env.reset(seed=0)
        env.step("**Moves: R**")
        assert env.reading == form
        assert env.rewards["planner_0"] == reward
    with pytest.raises(ValueError, match="strict_format is 'yes'; expected one of True, False"):
        pettingllms_envs.make("plan_path", strict_format="yes")


def test_a_record_that_does_not_say_how_replies_were_read_is_strict() -> None:
    recorded = pettingllms_envs.recorded_settings
    assert recorded("plan_path_v0", {"size": 5}) == {"size": 5, "strict_format": True}
    assert recorded("plan_path_v0", {"strict_format": False}) == {"strict_format": False}
    assert recorded("program:team.py:team", {}) == {}


CALL = f'<tool_call>{{"name": "python", "arguments": {{"{only_text(make_tool("python").spec)}": "1"}}}}</tool_call>'


@pytest.mark.parametrize("draft", ["[THINK]{}[/THINK]", "{}</reasoning>", "<|channel|>analysis{}<|channel|>final"])
def test_a_call_among_thoughts_is_no_call(draft: str) -> None:
    tools = [make_tool("python")]
    drafted = CALL.replace('"1"', '"2"')
    assert read_native_calls(draft.format(drafted), tools) == []
    assert read_native_calls(draft.format(drafted) + CALL, tools) == [Call("python", "1")]
    spec = tools[0].spec
    described = [{"type": "function", "function": {"name": spec.name, "parameters": spec.parameters}}]
    words, calls = read_reply(f"{draft.format(drafted)}I try.\n{CALL}", described, 0)
    assert words == f"{draft.format(drafted)}I try."
    assert len(calls) == 1
    fenced = "```call python\n{}\n```"
    assert read_text_calls(draft.format(fenced.format(2)) + fenced.format(1), tools) == [Call("python", "1")]


@pytest.mark.parametrize("thoughts", ["[THINK]a[/THINK]", "a</thinking>", "<think>a</think>", "a done.</reasoning>"])
def test_a_design_is_read_after_thoughts_however_they_end(thoughts: str) -> None:
    design = Design((Member("solve"),), 1)
    assert read_design(thoughts + write_design(design), Limits()) == design
