"""A conversation about a prompt: roles speak in a given order, each reads the prompt and what was said before it.

The prompt goes to the first role as it is. Each one after it reads, in the prompt's last message, what the others (and
it itself) wrote, quoted, and who it is. A role may be named several times; it is one agent, which then speaks several
times. The last reply is the answer.

Rewards are left to a trainer's reward functions, which judge the last reply, or those of the roles that are named in
`rewarded`; what they give counts for the whole team. With a `grader` (see `prompts`) the team
is paid `progress` and `success` for the last reply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import Role, Transition, check_choice, part_ranges, play
from pettingllms_envs.environments.conversation.prompts import Prompts
from pettingllms_envs.observations import Part, Prompt
from pettingllms_envs.prompts import read_observation
from pettingllms_envs.tasks.prompt_messages import messages_of
from pettingllms_envs.tasks.rows import RowState
from pettingllms_envs.teams.base import BaseWorkflow
from pettingllms_envs.teams.channels import Channel, Sent


HISTORIES = ("all", "last", "none")
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)


class ConversationState(NamedTuple):
    """A moment of a conversation.

    Args:
        task: The row, and the answer at the end.
        replies: What was said so far, as others read it.
        turn: The number of the next reply, from 1; at the end of the last one.
    """

    task: RowState
    replies: tuple[Sent, ...] = ()
    turn: int = 1


@dataclass(frozen=True, slots=True)
class Conversation(BaseWorkflow[RowState, str]):
    """The workflow.

    Args:
        num_turns: Replies of an episode, which the roles decide: leave it out.
        roles: Names of roles in the order in which they speak, as often as they do.
        instructions: By role, what its system prompt says, after that of the row if there is one.
        history: What a role reads besides the prompt: `"all"` that was said, the `"last"` reply, or `"none"`. A
            mapping says it by role, `"all"` where it names none.
        rewarded: Roles whose replies reward functions judge, the last speaker among them; none named for the last
            reply alone.
        max_chars: Most characters of a reply that others read, at least 1; the rest is cut off.

    Raises:
        ValueError: There is no role, a name is no lower-case word or differs from another in letter case alone, or a
            setting names an unknown role or has another value.
    """

    num_turns: int = 0
    roles: tuple[Role, ...] = ("solver", "critic", "solver")  # type: ignore[assignment]  # names, made roles below
    instructions: Mapping[str, str] = field(default_factory=dict)
    history: str | Mapping[str, str] = "all"
    rewarded: tuple[str, ...] = ()
    max_chars: int = 10_000
    order: tuple[str, ...] = field(init=False, repr=False)

    name: ClassVar[str] = "conversation"
    cyclic: ClassVar[bool] = False
    leaves_rewards: ClassVar[bool] = True

    def __post_init__(self) -> None:
        order = _checked(self.roles)
        object.__setattr__(self, "order", order)
        if self.num_turns not in (0, len(order)):
            raise ValueError(
                f"num_turns is {self.num_turns!r}; expected none: the conversation has a reply for each of the "
                f"{len(order)} roles {', '.join(order)}. Leave it out, and name a role again for a further reply."
            )
        object.__setattr__(self, "num_turns", len(order))
        Channel(self.max_chars)
        histories = self.history if isinstance(self.history, Mapping) else {}
        named = {"instructions": self.instructions, "history": histories, "rewarded": self.rewarded}
        for what, names in named.items():
            if isinstance(names, str) or (unknown := [name for name in names if name not in order]):
                raise ValueError(
                    f"{what} names {names if isinstance(names, str) else unknown[0]!r}; expected roles of the "
                    f"conversation: {', '.join(dict.fromkeys(order))}. Correct the name."
                )
        if self.rewarded and order[-1] not in self.rewarded:
            raise ValueError(
                f"rewarded is {list(self.rewarded)}, but {order[-1]} speaks last, and nothing would come of that "
                f"reply; expected it among them. Add {order[-1]!r}, or leave the reply out."
            )
        for each in histories.values() if histories else (self.history,):
            check_choice("history", each, HISTORIES)
        object.__setattr__(self, "roles", tuple(map(self._role, dict.fromkeys(order))))

    def start(self, task_state: RowState) -> ConversationState:
        """The first role's turn on this row."""
        messages = messages_of(task_state.row)
        try:
            read_observation({"messages": messages}, agent=self.order[0])
        except TypeError as error:
            raise ValueError(str(error)) from None
        return ConversationState(task_state)

    def is_history(self, state: ConversationState) -> bool:
        """True: all replies are kept, also those that nobody reads again."""
        return True

    def actor(self, state: ConversationState) -> str:
        """The role that speaks next; at the end the one that spoke last."""
        return self.order[min(len(state.replies), len(self.order) - 1)]

    def system(self, role: str) -> str:
        return self.instructions.get(role, "")

    def observe(self, state: ConversationState, role: str) -> Prompt:
        """The row's prompt, with what was said so far; the first speaker's is the row's own."""
        messages = messages_of(state.task.row)
        history = self.history if isinstance(self.history, str) else self.history.get(role, "all")
        said = {"all": state.replies, "last": state.replies[-1:], "none": ()}[history]
        notes = [sent.shown for sent in said]
        if state.replies or role != self.order[0]:
            notes.append(f"You are the {role}. Write your reply.")
        if notes:
            last = messages.pop() if messages[-1]["role"] == "user" else {"role": "user", "content": ""}
            messages.append({**last, "content": _followed(last["content"], *notes)})
        if system := self.system(role):
            first = messages.pop(0) if messages[0]["role"] == "system" else {"role": "system", "content": ""}
            messages.insert(0, {**first, "content": _followed(first["content"], system)})
        return Prompt(messages)

    def step(self, state: ConversationState, reply: str) -> Transition[ConversationState]:
        """Add the acting role's reply; the last one is the answer."""
        role = self.actor(state)
        replies = (*state.replies, Channel(self.max_chars).send(role, reply))
        if len(replies) < len(self.order):
            return ConversationState(state.task, replies, len(replies) + 1), {}, False, False
        answered, _, parts, _ = play(self.task, state.task, reply, role)
        return ConversationState(answered, replies, len(replies)), parts if self.grader else {}, True, False

    def judged(self, state: ConversationState) -> bool:
        """Whether reward functions judge the last reply so far."""
        return self._is_judged(len(state.replies) - 1)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress and success, if there is a grader."""
        return part_ranges(self.task) if self.grader else {}

    @property
    def channel(self) -> Channel:
        """What of a reply others read."""
        return Channel(self.max_chars)

    @property
    def grader(self) -> str:
        assert isinstance(self.task, Prompts)
        return self.task.grader

    def _is_judged(self, place: int) -> bool:
        return self.order[place] in self.rewarded if self.rewarded else place == len(self.order) - 1

    def _role(self, name: str) -> Role:
        """A role, which is paid later if some reply of it is not judged."""
        places = [place for place, each in enumerate(self.order) if each == name]
        is_delayed = not all(map(self._is_judged, places))
        return Role(name, self.system(name), delayed=is_delayed, observes="messages", reply_format="")


def _followed(content: str | Sequence[Part], *notes: str) -> str | list[Part]:
    """A message's content with notes after it."""
    if isinstance(content, str):
        return "\n\n".join(filter(None, [content, *notes]))
    return [*content, "\n" + "\n\n".join(notes)]  # what joins neighbouring texts adds a line break


def _checked(names: Sequence[Any]) -> tuple[str, ...]:
    names = tuple(names) if not isinstance(names, str) else ()
    if not names:
        raise ValueError("roles has no names; expected those of roles in the order in which they speak: ['solver'].")
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"roles has {name!r}; expected names of letters, digits and _, such as 'solver'. Rename it."
            )
        alike = next((other for other in names if other != name and other.lower() == name.lower()), None)
        if alike is not None:
            raise ValueError(
                f"roles has {name!r} and {alike!r}, which differ in letter case alone and would be one folder on some "
                "file systems; expected one spelling of each role. Rename one of them."
            )
    if unlike := [name for name in names if name != name.lower()]:
        raise ValueError(f"roles has {unlike[0]!r}; expected lower case. Write {unlike[0].lower()!r}.")
    return names
