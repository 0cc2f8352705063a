"""The oracle's right answers, and wrong ones, in 25 forms in every environment that plays without a network."""

from collections.abc import Callable
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.features import Competitive
from pettingllms_envs.sandbox import SandboxUnavailable


def last(reply: str, change: Callable[[str], str]) -> str:
    """The last line changed; of a program, which no mark but a fence stands around, a line before it."""
    if "```" in reply:
        return f"{change('The program: it reads and prints.')}\n{reply}"
    before, newline, line = reply.rpartition("\n")
    return f"{before}{newline}{change(line)}"


FORMS: dict[str, Callable[[str], str]] = {
    "as asked": str,
    "bold": lambda reply: last(reply, lambda line: f"**{line}**"),
    "italic": lambda reply: last(reply, lambda line: f"*{line}*"),
    "underscores": lambda reply: last(reply, lambda line: f"__{line}__"),
    "code marks": lambda reply: last(reply, lambda line: f"`{line}`"),
    "bold label": lambda reply: last(
        reply, lambda line: line.replace(":", ":**", 1).join(["**", ""]) if ": " in line else line
    ),
    "list": lambda reply: last(reply, lambda line: f"- {line}"),
    "numbered": lambda reply: last(reply, lambda line: f"1. {line}"),
    "quote": lambda reply: last(reply, lambda line: f"> {line}"),
    "heading": lambda reply: last(reply, lambda line: f"### {line}"),
    "space before colon": lambda reply: last(reply, lambda line: line.replace(": ", " : ", 1)),
    "no-break space": lambda reply: last(reply, lambda line: line.replace(": ", "\u00a0: ", 1)),
    "fenced": lambda reply: reply if "```" in reply else f"```\n{reply}\n```",
    "fenced, info": lambda reply: reply.replace("```python", "```py3") if "```" in reply else f"```text\n{reply}\n```",
    "no info": lambda reply: reply.replace("```python", "```") if "```" in reply else f"```\n{reply}\n```\n",
    "end token": lambda reply: f"{reply}<|im_end|>",
    "end tokens": lambda reply: f"{reply}</s><|endoftext|>",
    "Gemma's end": lambda reply: f"{reply}<end_of_turn>\n",
    "thoughts": lambda reply: f"<think>Let me see.</think>{reply}",
    "draft before done": lambda reply: f"{reply}\ndone.</think>\n{reply}",
    "Mistral's thoughts": lambda reply: f"[THINK]Let me see.[/THINK]{reply}",
    "tags": lambda reply: f"<answer>{reply}</answer>" if "```" not in reply else f"<answer>\n{reply}\n</answer>",
    "rule": lambda reply: f"{reply}\n\n---",
    "twice": lambda reply: f"{reply}\n\n{reply}",
    "unseen": lambda reply: f"\ufeff{reply}\u200b",
}

NAMES = tuple(name for name in pettingllms_envs.list_environments() if name not in ("kuhn_poker", "conversation"))


def successes(name: str, form: Callable[[str], str], *, strict: bool, reply: str | None = None) -> int:
    """Of the instances of two seeds those that the oracle, or one reply, solves in a form."""
    env = pettingllms_envs.make(name, strict_format=strict)
    count = 0
    for seed in range(2):
        env.reset(seed=seed, options={"split": "test"})
        for _ in env.agent_iter(400):
            _, _, terminated, truncated, info = env.last(observe=False)
            outcome = info["outcome"]
            env.step(None if terminated or truncated else form(env.oracle() if reply is None else reply))
        count += bool(outcome["success"])
    return count


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_right_answers_in_25_forms_are_right_and_wrong_ones_are_not(name: str, capsys: Any) -> None:
    env = pettingllms_envs.make(name)
    if isinstance(env.workflow.task, Competitive) or not env.metadata["has_oracle"]:
        pytest.skip("there is no success, or no oracle")
    try:
        if not successes(name, str, strict=True):
            pytest.skip("the oracle has no success here")
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    right = {
        strict: [label for label, form in FORMS.items() if successes(name, form, strict=strict) == 2]
        for strict in (False, True)
    }
    wrong = [
        reply
        for reply in env.workflow.task.blind_replies[:2]
        for form in FORMS.values()
        if successes(name, form, strict=False, reply=reply)
    ]
    with capsys.disabled():
        print(f"\n{name}: lenient {len(right[False])}, strict {len(right[True])} of {len(FORMS)}")
    assert len(FORMS) == 25
    assert len(right[False]) >= 24
    assert wrong == []
