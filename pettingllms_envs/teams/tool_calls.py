"""Workflow `ToolCalls`: lets roles of any workflow call tools before they reply.

A reply with tool calls is a step of the environment, and so a decision of its own: the calls are run, and the same
agent is to act again, shown what they returned. Its first reply without a call, or the one after its last call, goes
to the workflow. So a completion contains only tokens that the model sampled.

Rewards: those of the workflow. A step with calls is paid nothing; one whose calls cannot be read, or are more than
`MOST_CALLS`, `format`, -0.2, for the role, and counts as a call. Roles with tools are therefore `delayed`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import (
    TOOL_CALLS,
    UNREADABLE_PENALTY,
    Role,
    Task,
    Tool,
    ToolResult,
    ToolSpec,
    Transition,
    Unreadable,
    Workflow,
    call_tool,
    check_choice,
    check_whole,
)
from pettingllms_envs.features import (
    ChangingTeam,
    HasBonuses,
    HasBotRoles,
    HasBots,
    HasHistories,
    HasOutcome,
    HasStateForm,
    LeavesRewards,
    ShowsEarlier,
)
from pettingllms_envs.observations import Message, Part, Prompt, in_texts
from pettingllms_envs.quoting import escape, quote_headings, quote_inline, shorten
from pettingllms_envs.state_digest import Reported
from pettingllms_envs.teams.tools import MAX_SHOWN, ran, shown
from pettingllms_envs.tools.calls import Call, arguments_of, call_id, read_native_calls, read_text_calls, text_call


MOST_CALLS = 16
"""Calls in a reply. One with more is unreadable: each may take a program's time, and all results are shown."""
_NAME = re.compile(r"[\w.:/-]+", re.ASCII)


class CallRound(NamedTuple):
    """The calls of one reply with their results.

    Args:
        words: Why the calls could not be read, or empty.
        calls: The calls, none if they could not be read.
    """

    words: str
    calls: tuple[Call, ...] = ()
    results: tuple[ToolResult, ...] = ()


class ToolCallState(NamedTuple):
    """The workflow's state, the rounds of calls since its last step, and how many calls the outcome reports."""

    play: Any
    rounds: tuple[CallRound, ...] = ()
    reported: Reported = Reported(tool_calls=0)

    @property
    def task(self) -> Any:
        return self.play.task

    @property
    def turn(self) -> int:
        turn: int = self.play.turn
        return turn


@dataclass(frozen=True)
class ToolCalls:
    """A workflow whose roles may call tools.

    Args:
        tools: The tools of each role, by the role's name.
        style: How calls are written: `"text"`, as fenced blocks, which every model can write; `"native"`, as the
            model's chat template has it, with the tools and their results as chat messages.
        max_calls: Most replies with calls before each reply to the workflow, at least 1.

    Raises:
        ValueError: A role does not exist, has no tools or two of one name; or a value is not as above.
    """

    workflow: Workflow[Any]
    tools: Mapping[str, tuple[Tool, ...]] = field(repr=False)
    style: str = "text"
    max_calls: int = 4
    cyclic: ClassVar[bool] = False  # a turn may have several replies
    identity: tuple[tuple[str, str, str], ...] = field(init=False)  # role, tool, digest: for the environment's config

    def __post_init__(self) -> None:
        check_choice("tool_calls", self.style, TOOL_CALLS)
        check_whole("max_tool_calls", self.max_calls, 1)
        of_name = {role.name: role for role in self.workflow.roles}
        for role, tools in self.tools.items():
            check_choice("the role of tools", role, tuple(of_name))
            if self.style == "text" and of_name[role].observes == "messages":
                raise ValueError(
                    f"the role {role!r} has tools that are called by text, and observes chat messages; expected calls "
                    "through the chat template. Set tool_calls='native'."
                )
            names = [tool.spec.name for tool in tools]
            if not names or len(set(names)) < len(names):
                raise ValueError(f"the role {role!r} has the tools {names}; expected one at least, each once.")
            if unfit := [name for name in names if not _NAME.fullmatch(name)]:
                raise ValueError(
                    f"the role {role!r} has the tool {unfit[0]!r}; expected a name of letters, digits and _.:/- that a"
                    " prompt can show. Rename the tool."
                )
        identity = [(role, tool.spec.name, tool.digest) for role, tools in self.tools.items() for tool in tools]
        object.__setattr__(self, "identity", tuple(identity))

    @property
    def name(self) -> str:
        return self.workflow.name

    @property
    def task(self) -> Task[Any, Any]:
        return self.workflow.task

    @property
    def num_turns(self) -> int:
        """The workflow's turn budget; calls are not counted."""
        return self.workflow.num_turns

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """The workflow's roles; those with tools are delayed, and observe messages if calls are native."""
        observes = {"observes": "messages"} if self.style == "native" else {}
        return tuple(
            replace(role, delayed=True, **observes) if role.name in self.tools else role  # type: ignore[arg-type]
            for role in self.workflow.roles
        )

    @cached_property
    def _of_member(self) -> dict[str, tuple[Tool, ...]]:
        return {member: self.tools.get(role.name, ()) for role in self.workflow.roles for member in role.members}

    def start(self, task_state: Any) -> ToolCallState:
        """The workflow's first state, with no calls."""
        return ToolCallState(self.workflow.start(task_state))

    def present(self, state: ToolCallState) -> Sequence[str]:
        """The agents that take part in the workflow."""
        inner = self.workflow
        return inner.present(state.play) if isinstance(inner, ChangingTeam) else tuple(self._of_member)

    def actor(self, state: ToolCallState) -> str:
        return self.workflow.actor(state.play)

    def system(self, role: str) -> str:
        """The workflow's system prompt; if calls are text, with the tools."""
        prompt = self.workflow.system(role)
        if self.style == "native" or not (tools := self._of_member[role]):
            return prompt
        lines = [prompt, f"Before you reply you may call a tool, up to {self.max_calls} times:"]
        return "\n".join([*lines, *(manual_of(tool.spec) for tool in tools)])

    def observe(self, state: ToolCallState, role: str) -> Any:
        """The workflow's observation, and for the acting agent its calls with their results."""
        seen = self.workflow.observe(state.play, role)
        tools = self._of_member[role]
        if not tools:
            return seen
        rounds = state.rounds if state.rounds and role == self.actor(state) else ()  # at the end, nobody is to act
        calls_left = self.max_calls - len(rounds)
        if self.style == "native":
            return self._prompt(role, seen, rounds, tools if calls_left else ())
        if not rounds:
            return seen
        note = "" if calls_left else "You have no calls left. Reply without one.\n"
        texts = [*map(_as_text, rounds), f"{note}Reply now, or call a tool." if calls_left else note.rstrip()]
        media = [image for each in rounds for result in each.results for image in result.media]
        if isinstance(seen, str) and not media:
            return "\n".join([seen, *texts])
        return (*((seen,) if isinstance(seen, str) else seen), *texts, *media)

    def shown(self, state: ToolCallState, role: str) -> Any:
        """The task's state that the agent observes."""
        inner = self.workflow
        return inner.shown(state.play, role) if isinstance(inner, ShowsEarlier) else state.play.task

    def step(self, state: ToolCallState, reply: str) -> Transition[ToolCallState]:
        """Run the calls in the reply, or give it to the workflow."""
        role = self.actor(state)
        tools = self._of_member[role]
        if tools and len(state.rounds) < self.max_calls:
            read = read_native_calls if self.style == "native" else read_text_calls
            calls = read(reply, tools)
            if not isinstance(calls, Unreadable) and len(calls) > MOST_CALLS:
                calls = Unreadable(f"it has {len(calls)} calls, and at most {MOST_CALLS} are allowed")
            if isinstance(calls, Unreadable):
                made = CallRound(f"Your tool call was unreadable: {quote_inline(calls.reason)}.")
                after = state._replace(rounds=(*state.rounds, made))
                return after, {role: {"format": UNREADABLE_PENALTY}}, False, False
            if calls:
                by_name = {tool.spec.name: tool for tool in tools}
                results = tuple(call_tool(by_name[call.name], call.request) for call in calls)
                made = CallRound("", tuple(calls), results)
                reported = state.reported.plus(tool_calls=len(calls))
                return ToolCallState(state.play, (*state.rounds, made), reported), {}, False, False
        play, parts, terminated, truncated = self.workflow.step(state.play, reply)
        return ToolCallState(play, (), state.reported), parts, terminated, truncated

    def oracle(self, state: ToolCallState) -> str:
        """The workflow's oracle, which calls no tool."""
        return self.workflow.oracle(state.play)

    @property
    def bots(self) -> Sequence[str]:
        return self.workflow.bots if isinstance(self.workflow, HasBots) else ()

    @property
    def bot_roles(self) -> Sequence[str]:
        inner = self.workflow
        return inner.bot_roles if isinstance(inner, HasBotRoles) else [role.name for role in inner.roles]

    def bot(self, state: ToolCallState, name: str) -> str:
        """The workflow's bot, which calls no tool."""
        assert isinstance(self.workflow, HasBots)  # or it has no names
        return self.workflow.bot(state.play, name)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """The workflow's, and format."""
        ranges = dict(self.workflow.ranges())
        low, high = ranges.get("format", (0.0, 0.0))
        return {**ranges, "format": (min(low, UNREADABLE_PENALTY), high)}

    @property
    def bonuses(self) -> Sequence[str]:
        return self.workflow.bonuses if isinstance(self.workflow, HasBonuses) else ()

    @property
    def state_form(self) -> int:
        """One more than the workflow's, for the calls that were counted in it."""
        return 1 + (self.workflow.state_form if isinstance(self.workflow, HasStateForm) else 1)

    def is_history(self, state: ToolCallState) -> bool:
        return isinstance(self.workflow, HasHistories) and self.workflow.is_history(state.play)

    def outcome(self, state: ToolCallState) -> Mapping[str, Any]:
        """The workflow's, and `tool_calls`, how many there were."""
        inner = self.workflow
        more = inner.outcome(state.play) if isinstance(inner, HasOutcome) else {}
        return {**more, **dict(state.reported)}

    @property
    def leaves_rewards(self) -> bool:
        return isinstance(self.workflow, LeavesRewards) and self.workflow.leaves_rewards

    def judged(self, state: ToolCallState) -> bool:
        """Whether the workflow's reward functions judge the last reply; a call is none."""
        return not state.rounds and isinstance(self.workflow, LeavesRewards) and self.workflow.judged(state.play)

    def described(self) -> dict[str, list[dict[str, Any]]]:
        """The tools of each role: name, digest, and whether they are deterministic."""
        return {
            role: [
                {"name": tool.spec.name, "digest": tool.digest, "deterministic": tool.deterministic} for tool in tools
            ]
            for role, tools in self.tools.items()
        }

    def _prompt(self, role: str, seen: Any, rounds: Sequence[CallRound], tools: Sequence[Tool]) -> Prompt:
        """The chat of an agent whose calls are native."""
        specs = {tool.spec.name: tool.spec for tool in self._of_member[role]}
        if isinstance(seen, Prompt):
            messages = list(seen.messages)
        else:
            system: list[Message] = [{"role": "system", "content": self.workflow.system(role)}]
            messages = [*system, {"role": "user", "content": seen if isinstance(seen, str) else list(seen)}]
        for number, each in enumerate(rounds):
            if each.words:
                messages.append({"role": "user", "content": each.words})
                continue
            ids = [call_id(number, index) for index in range(len(each.calls))]
            functions = [{"name": call.name, "arguments": arguments_of(call, specs[call.name])} for call in each.calls]
            calls = [
                {"id": key, "type": "function", "function": function}
                for key, function in zip(ids, functions, strict=True)
            ]
            messages.append({"role": "assistant", "content": "", "tool_calls": calls})
            for key, call, result in zip(ids, each.calls, each.results, strict=True):
                content = _result_content(result)
                messages.append({"role": "tool", "tool_call_id": key, "name": call.name, "content": content})
        as_functions = [{"type": "function", "function": in_texts(tool.spec._asdict(), escape)} for tool in tools]
        return Prompt(messages, as_functions)


def manual_of(spec: ToolSpec) -> str:
    """What a tool does and how it is called by text, for a prompt."""
    what, example = quote_headings(spec.description), text_call(Call(spec.name, "..."))
    end = "\n" if "\n" in what else " "  # a description may end with a block
    return f"{what}{end}To call it, reply with such a block and nothing else:\n{example}"


def called(call: Call, result: ToolResult) -> str:
    """A call by text and what it returned, for a prompt."""
    return f"You called {call.name}:\n{shown(call.request)}\n{ran(result.text, result.error)}"


def _result_content(result: ToolResult) -> str | list[Part]:
    text = escape(shorten(result.text, MAX_SHOWN))
    if result.error:
        text = f"{text}\nError: {quote_inline(result.error)}.".lstrip("\n")
    return [text, *result.media] if result.media else text


def _as_text(made: CallRound) -> str:
    """A round of calls for a prompt without chat messages."""
    if made.words:
        return made.words
    return "\n".join(map(called, made.calls, made.results))
