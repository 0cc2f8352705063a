"""The language in which a team is designed: a graph as JSON, which is read and never run.

    {"members": [{"job": "Solve it.", "reads": [], "tools": []},
                 {"job": "Check it.", "reads": [0], "tools": ["python"]}],
     "rounds": 1}

Members act in this order, as often as there are rounds. `reads` are the numbers, from 0, of earlier members whose
replies a member is shown, and `tools` the names of tools that it may call. The last member's reply is the team's move.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pettingllms_envs.core import Unreadable
from pettingllms_envs.replies.fences import END_OF_THINKING, without_thoughts
from pettingllms_envs.tools.calls import strict_json


JOBS = (
    "Solve the task step by step.",
    "Work out the first step, and say what it gives.",
    "Use your tool, and tell what it returned.",
    "Check what you read, and correct it.",
    "Go on from what you read.",
)
"""Jobs of random designs. They fit every task, and so hold no answer."""

_OVERHEAD = 100  # characters of a member beside its job and tools
_FENCED = re.compile(r"```(?:json)?[ \t\r]*\n(.*)\n```", re.S | re.I)


@runtime_checkable
class HasDisguise(Protocol):
    """An optional feature of a task: the question with other numbers, names or another map.

    Who is shown that, such as the designer of a team, learns what kind of question it is, and cannot know its answer.
    """

    def disguised(self, state: Any) -> str:
        """What `show` could say of such a question; the same every time."""


@runtime_checkable
class HasTools(Protocol):
    """An optional feature of a task: tools that read the instance, such as a search in its archives.

    A workflow decides which of its agents may call which. `Tool`s, in contrast, know nothing of the instance.
    """

    @property
    def tool_specs(self) -> Sequence[Any]:
        """A `pettingllms_envs.core.ToolSpec` of each; its one argument is a text."""

    def use(self, state: Any, name: str, request: str) -> tuple[Any, Any]:
        """The state after a call of a tool, and its `pettingllms_envs.core.ToolResult`, whatever is requested."""

    def tools_needed(self, state: Any) -> Sequence[str]:
        """The names of the tools that an optimal team calls, in order."""

    def best_request(self, state: Any, name: str) -> str | None:
        """What an optimal agent requests of a tool now; None for nothing."""

    def best_message(self, state: Any) -> str:
        """What it tells the next one."""


class Member(NamedTuple):
    """A member of a team: its job in words, the earlier members that it reads, and its tools."""

    job: str
    reads: tuple[int, ...] = ()
    tools: tuple[str, ...] = ()


class Design(NamedTuple):
    """A team."""

    members: tuple[Member, ...]
    rounds: int = 1


class Limits(NamedTuple):
    """What a design may ask for.

    Args:
        palette: The names of the tools that there are.
        member_tools: Most tools of a member.
    """

    members: int = 4
    rounds: int = 2
    job_chars: int = 400
    palette: tuple[str, ...] = ()
    member_tools: int = 1

    @property
    def chars(self) -> int:
        """Most characters of a design: twice what it needs, for white space and escaped letters."""
        tools = sum(len(name) + len('"", ') for name in self.palette)
        return 2 * self.members * (self.job_chars + _OVERHEAD + tools)


def read_design(reply: str, limits: Limits) -> Design | Unreadable:
    """The design in a reply: one JSON object after any thinking, perhaps in a fenced block, and nothing else.

    The length is checked before anything is parsed, so a reply of any length takes time linear in it. Nothing in it is
    evaluated, and reasons are in fixed words.
    """
    # The whole reply comes first, since a job may name the end of thinking; and so may a thought.
    for said in (str, lambda text: text.partition(END_OF_THINKING)[2], without_thoughts):
        found = _read_json(said(reply).strip(), limits)
        if not isinstance(found, Unreadable):
            break
    if isinstance(found, Unreadable):
        return found
    if not isinstance(found, dict) or set(found) != {"members", "rounds"}:
        return Unreadable("its design has other fields than members and rounds")
    members, rounds = found["members"], found["rounds"]
    if not isinstance(members, list) or not 1 <= len(members) <= limits.members:
        return Unreadable(f"its members are no list of 1 to {limits.members}")
    if type(rounds) is not int or not 1 <= rounds <= limits.rounds:
        return Unreadable(f"its rounds are no whole number from 1 to {limits.rounds}")
    team: list[Member] = []
    for number, each in enumerate(members):
        member = _read_member(each, number, limits)
        if isinstance(member, Unreadable):
            return member
        team.append(member)
    return Design(tuple(team), rounds)


def _read_json(text: str, limits: Limits) -> Any:
    if len(text) > limits.chars:
        return Unreadable(f"its design is longer than {limits.chars} characters")
    fenced = _FENCED.fullmatch(text)
    try:
        return strict_json(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return Unreadable("it is not one JSON object")


def _read_member(found: Any, number: int, limits: Limits) -> Member | Unreadable:
    if not isinstance(found, dict) or set(found) != {"job", "reads", "tools"}:
        return Unreadable("a member has other fields than job, reads and tools")
    job, reads, tools = found["job"], found["reads"], found["tools"]
    if not isinstance(job, str) or not job.strip() or len(job) > limits.job_chars:
        return Unreadable(f"a job is no text of 1 to {limits.job_chars} characters")
    if not _are_distinct(reads, int) or not all(0 <= each < number for each in reads):
        return Unreadable("what a member reads is no list of earlier members, each once")
    if not _are_distinct(tools, str) or not set(tools) <= set(limits.palette) or len(tools) > limits.member_tools:
        return Unreadable(f"the tools of a member are no list of up to {limits.member_tools} of those that there are")
    return Member(job, tuple(reads), tuple(tools))


def _are_distinct(values: Any, kind: type) -> bool:
    """Whether it is a list of different values of exactly this type."""
    return isinstance(values, list) and all(type(each) is kind for each in values) and len({*values}) == len(values)


def write_design(design: Design) -> str:
    """The canonical reply that `read_design` reads as this design."""
    members = [member._asdict() for member in design.members]
    return json.dumps({"members": members, "rounds": design.rounds}, ensure_ascii=False)


def example(limits: Limits) -> str:
    """The form of a design, as designers are shown it: of two members, where that is allowed."""
    job = "..."[: limits.job_chars]
    return write_design(Design((Member(job), Member(job, (0,)))[: limits.members]))


def random_design(rng: random.Random, limits: Limits, jobs: Sequence[str] = JOBS) -> Design:
    """A readable design, drawn from all numbers of members and rounds, and all choices of whom they read."""

    def some(items: Sequence[Any], most: int) -> tuple[Any, ...]:
        return tuple(sorted(rng.sample(items, rng.randint(0, min(most, len(items))))))

    members = [
        Member(
            rng.choice(jobs)[: limits.job_chars],
            some(range(number), number),
            some(limits.palette, limits.member_tools),
        )
        for number in range(rng.randint(1, limits.members))
    ]
    return Design(tuple(members), rng.randint(1, limits.rounds))
