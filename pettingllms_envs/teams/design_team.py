"""The members of a team that was designed, at work: they act in the order of the design, and one move is played.

`pettingllms_envs.teams.designed.Designed` has an agent write the design first. A subclass with a `design` of its
own is a team that is always the same, such as `pettingllms new NAME --kind roles --from RUN` makes it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import ClassVar

from pettingllms_envs.core import Role, ToolResult, ToolSpec, Unreadable, best_reply, check_whole
from pettingllms_envs.quoting import quote
from pettingllms_envs.replies.fences import fenced_blocks
from pettingllms_envs.teams.channels import Channel
from pettingllms_envs.teams.designs import Design, HasTools, Member
from pettingllms_envs.teams.functions import Ask, FunctionState, FunctionWorkflow, Game, Questions
from pettingllms_envs.teams.tool_calls import called, manual_of
from pettingllms_envs.tools import make_tool
from pettingllms_envs.tools.calls import Call, text_call


MEMBER = "member"
MEMBER_JOB = "You are a member of a team. Do the job that you are given."


@dataclass(frozen=True)
class DesignTeam(FunctionWorkflow):
    """A team that plays its design. A subclass has a `name` and a `design`.

    Args:
        task: The task; its move is a reply of one agent.
        num_turns: 1: one move is played.
        max_calls: Most replies of all members, those with tool calls among them, at least 1.
        reply_chars: Most characters of a reply that others read, at least 1.
        all_chars: Most characters of all members' replies, each counted as others read it, at least 1.
        palette: Names of the installed tools that members may be given, beside the task's own (`designs.HasTools`).
    """

    num_turns: int = 1
    max_calls: int = 16
    reply_chars: int = 2_000
    all_chars: int = 16_000
    palette: tuple[str, ...] = ()

    design: ClassVar[Design]
    own_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}

    def present(self, state: FunctionState) -> tuple[str, ...]:
        """The agents that have been asked so far."""
        return tuple([role for role, _, _ in state.seen])

    def __post_init__(self) -> None:
        check_whole("num_turns", self.num_turns, 1, 1)
        for name in ("max_calls", "reply_chars", "all_chars"):
            check_whole(name, getattr(self, name), 1)
        if not isinstance(self.palette, tuple) or not all(isinstance(name, str) for name in self.palette):
            raise ValueError(f"palette is {self.palette!r}; expected names of installed tools, such as ['python'].")
        names = [spec.name for spec in self.specs]
        if len(set(names)) < len(names):
            raise ValueError(f"the palette and the task have the tools {names}; expected each once. Leave one out.")

    @cached_property
    def roles(self) -> tuple[Role, ...]:  # type: ignore[override]
        """The members, who are one role."""
        count = len(self.design.members)
        return (Role(MEMBER, MEMBER_JOB, delayed=True, count=count, reply_format=""),)

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools that there are: the task's, then those of the palette."""
        of_task = tuple(self.task.tool_specs) if isinstance(self.task, HasTools) else ()
        return (*of_task, *(_tool(name).spec for name in self.palette))

    @property
    def channel(self) -> Channel:  # type: ignore[override]
        """Of the replies that members read."""
        return Channel(self.reply_chars)

    def questions(self, game: Game) -> Questions:
        """The members in order, then the move."""
        game.report(member_calls=0, cut_short=False)
        reply, author = yield from self._replies(game, self.design)
        game.play(reply, author)
        return None

    def _replies(self, game: Game, design: Design) -> Generator[Ask, str, tuple[str, str]]:
        """Ask the members; returns the last reply and who wrote it."""
        agents, last = self.roles[-1].members, len(design.members) - 1
        said: dict[int, str] = {}
        played = "", MEMBER  # a design has a member, who is asked at least once
        num_calls, num_chars = 0, 0
        turns = ((turn, *each) for turn in range(design.rounds) for each in enumerate(design.members))
        for turn, number, member in turns:
            read = [said[each] for each in (*member.reads, last) if each in said]
            notes = [f"Your job:\n{quote(member.job)}", *read, *(manual_of(self._spec(name)) for name in member.tools)]
            ending, agent = self._ending(number == last), agents[number]
            to_come = design.members[number + 1 if turn == design.rounds - 1 else 0 :]
            read_later = {last, *(each for later in to_come for each in later.reads)}
            kept = design, turn, number, {each: text for each, text in said.items() if each in read_later}
            while True:
                if num_calls == self.max_calls or num_chars >= self.all_chars:
                    game.report(cut_short=True)
                    return played
                ends = num_calls + 1 >= self.max_calls or num_chars + self.reply_chars >= self.all_chars
                best = partial(self._best_reply, game, member, is_last=number == last, ends=ends)
                reply = yield Ask(agent, game.show(*notes, ending), best, (*kept, num_calls, num_chars))
                played = reply, agent  # also a call: who uses the calls up pays for it
                num_calls += 1
                num_chars += len(self.channel.send(agent, reply).text)
                game.report(member_calls=num_calls)
                call = _call_in(reply, member)
                if call is None:
                    break
                notes.append(called(call, self._result(game, call)))
            said[number] = game.quote(f"{MEMBER}_{number}", reply)  # as the environment names it, also a lone one
        return played

    def _ending(self, is_last: bool) -> str:
        """What becomes of a member's reply."""
        if is_last:
            return "\n".join(filter(None, ("Your reply is the team's answer.", self.task.reply_format())))
        return f"Your reply is shown to members that read you, up to {self.reply_chars} characters."

    def _spec(self, name: str) -> ToolSpec:
        return next(spec for spec in self.specs if spec.name == name)

    def _result(self, game: Game, call: Call) -> ToolResult:
        """What a tool of the task, or of the palette, returns."""
        if call.name in self.palette or not isinstance(self.task, HasTools):
            return game.call(_tool(call.name), call.request)
        result: ToolResult
        game.state, result = self.task.use(game.state, call.name, call.request)
        return result

    def _best_reply(self, game: Game, member: Member, *, is_last: bool, ends: bool) -> str:
        """A call of the member's tool if it helps; else the task's best move, or what is known for the next member."""
        task = self.task
        if ends or not isinstance(task, HasTools):  # this reply may be the one that is played
            return best_reply(task, game.state)
        requests = ((name, task.best_request(game.state, name)) for name in member.tools if name not in self.palette)
        for name, request in requests:
            if request is not None:
                return text_call(Call(name, request))
        return best_reply(task, game.state) if is_last else task.best_message(game.state)


_tool = cache(make_tool)


def _call_in(reply: str, member: Member) -> Call | None:
    """The call that a reply is: exactly one block that names a tool of the member's."""
    blocks = fenced_blocks(reply, {f"call {name}".lower(): name for name in member.tools}) if member.tools else []
    return Call(*blocks[0]) if not isinstance(blocks, Unreadable) and len(blocks) == 1 else None
