"""Teams whose states keep too little or too much, as functions and as classes, and right ones like them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import TEAM, Role, Transition, Unreadable, play, situation, system_prompt
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.state_digest import Reported
from pettingllms_envs.teams.base import BaseWorkflow
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow


ROLES = (Role("adviser", "You advise."), Role("planner", "You plan."), Role("judge", "Your move is played."))


def memo(game: Game, right: bool) -> Questions:
    """The judge, the next but one to act, reads what the adviser wrote."""
    while game.turns_left:
        note = yield Ask("adviser", game.show(), keeps=())
        yield Ask("planner", game.show(), keeps=note if right else ())
        game.play((yield Ask("judge", game.show(note), keeps=())), "judge")


def last_turn(game: Game, right: bool) -> Questions:
    """What the adviser wrote in one turn is read in the next one."""
    note = ""
    while game.turns_left:
        new = yield Ask("adviser", game.show(), keeps=note if right else ())
        game.play((yield Ask("judge", game.show(note), keeps=new if right else ())), "judge")
        note = new


def rounds(game: Game, right: bool) -> Questions:
    """The planner is asked until it repeats itself, three times at most."""
    while game.turns_left:
        last = reply = ""
        for _ in range(3):
            last, reply = reply, (yield Ask("planner", game.show(), keeps=reply if right else ()))
            if reply == last:
                break
        game.play(reply, "planner")


def bad_replies(game: Game, right: bool) -> Questions:
    """The third unreadable reply ends the episode."""
    bad = 0
    while game.turns_left and bad < 3:
        reply = yield Ask("planner", game.show(), keeps=bad if right else ())
        bad += isinstance(game.task.parse(reply), Unreadable)
        game.play(reply, "planner")


def paid_late(game: Game, right: bool) -> Questions:
    """The length of the first reply is paid at the end."""
    first = None
    while game.turns_left:
        reply = yield Ask("planner", game.show(), keeps=first if right else ())
        first = first or len(reply)
        game.play(reply, "planner")
    game.pay_team("late", float(first or 0))


def next_speaker(game: Game, right: bool) -> Questions:
    """Who moves is decided by what the adviser wrote, after the planner was heard."""
    while game.turns_left:
        who = "judge" if "Moves" in (yield Ask("adviser", game.show(), keeps=())) else "adviser"
        yield Ask("planner", game.show(), keeps=who if right else ())
        game.play((yield Ask(who, game.show(), keeps=())), who)


def agreed(game: Game, right: bool) -> Questions:
    """Two equal replies in succession are an agreement."""
    last = None
    while game.turns_left:
        reply = yield Ask("planner", game.show(), keeps=last if right else ())
        if reply == last:
            return True
        last = reply
        game.play(reply, "planner")
    return None


def paid_once(game: Game, right: bool) -> Questions:
    """The first move of the episode that can be read is paid, later ones are not."""
    paid = False
    while game.turns_left:
        reply = yield Ask("planner", game.show(), keeps=paid if right else ())
        if not paid and not isinstance(game.task.parse(reply), Unreadable):
            game.pay_team("late", 0.1)
            paid = True
        game.play(reply, "planner")


def keeps_reply(game: Game, right: bool) -> Questions:
    """Nothing is needed but the board."""
    reply = ""
    while game.turns_left:
        reply = yield Ask("planner", game.show(), keeps=() if right else reply)
        game.play(reply, "planner")


def keeps_history(game: Game, right: bool) -> Questions:
    """Nothing is needed but the board."""
    said: list[str] = []
    while game.turns_left:
        said.append((yield Ask("planner", game.show(), keeps=() if right else said)))
        game.play(said[-1], "planner")


def keeps_length(game: Game, right: bool) -> Questions:
    """What the adviser writes is read by nobody, and its length reported alone."""
    chars = 0
    while game.turns_left:
        chars += len((yield Ask("adviser", game.show(), keeps=() if right else chars)))
        game.report(chars=chars)
        game.play((yield Ask("judge", game.show(), keeps=() if right else chars)), "judge")


FUNCTIONS: dict[str, tuple[Callable[..., Questions], str]] = {
    "a message for the next reader but one": (memo, "little"),
    "a message of the last turn": (last_turn, "little"),
    "a round": (rounds, "little"),
    "a counter of bad replies": (bad_replies, "little"),
    "what is paid at the end": (paid_late, "little"),
    "who speaks next": (next_speaker, "little"),
    "what was agreed": (agreed, "little"),
    "what was paid before": (paid_once, "little"),
    "keeps the reply": (keeps_reply, "much"),
    "keeps the history": (keeps_history, "much"),
    "keeps a length that is only reported": (keeps_length, "much"),
}


def of_function(script: Callable[..., Questions], right: bool) -> TextEnv:
    def planted(game: Game) -> Questions:
        return (yield from script(game, right))

    asked = [role for role in ROLES if f'"{role.name}"' in inspect.getsource(script)]
    return TextEnv(function_workflow(*asked, ranges={"late": (0.0, 1000.0)})(planted)(PlanPath()))


class MemoryState(NamedTuple):
    """A moment: the board, the turn, what came of the last reply, and a memory that digests see, or do not."""

    task: Any
    turn: int = 1
    feedback: str = ""
    memory: Any = ()
    hidden: Reported = Reported(memory=())


@dataclass(frozen=True)
class Remembering(BaseWorkflow[Any, Any]):
    """One planner; subclasses say what is remembered, and what comes of it."""

    is_hidden: bool = False
    num_turns: int = 5
    name: ClassVar[str] = "remembering"
    roles: ClassVar[tuple[Role, ...]] = (ROLES[1],)

    def remember(self, memory: tuple[Any, ...], reply: str) -> tuple[Any, ...]:
        return (*memory, reply)

    def shown(self, memory: tuple[Any, ...]) -> str:
        return ""

    def paid(self, memory: tuple[Any, ...]) -> float:
        return 0.0

    def ends(self, memory: tuple[Any, ...]) -> bool:
        return False

    def start(self, task_state: Any) -> MemoryState:
        return MemoryState(task_state)

    def actor(self, state: MemoryState) -> str:
        return "planner"

    def system(self, role: str) -> str:
        return system_prompt(self.task, self.roles[0])

    def observe(self, state: MemoryState, role: str) -> str:
        return situation(self, state, state.feedback, self.shown(self._memory(state)))

    def step(self, state: MemoryState, reply: str) -> Transition[MemoryState]:
        after, solved, parts, feedback = play(self.task, state.task, reply, "planner")
        memory = self.remember(self._memory(state), reply)
        over = solved or self.ends(memory) or state.turn == self.num_turns
        if over:
            parts[TEAM] = {**parts.get(TEAM, {}), "late": self.paid(memory)}
        following = MemoryState(after, state.turn + (not over), feedback)
        kept = {"hidden": Reported(memory=memory)} if self.is_hidden else {"memory": memory}
        return following._replace(**kept), parts, solved, over and not solved

    def ranges(self) -> dict[str, tuple[float, float]]:
        return {**super().ranges(), "late": (0.0, 1000.0)}

    def _memory(self, state: MemoryState) -> tuple[Any, ...]:
        found: tuple[Any, ...] = dict(state.hidden)["memory"] if self.is_hidden else state.memory
        return found


class NextButOne(Remembering):
    """The last reply but one is read."""

    def remember(self, memory: tuple[Any, ...], reply: str) -> tuple[Any, ...]:
        return (*memory, reply)[-2:]

    def shown(self, memory: tuple[Any, ...]) -> str:
        return memory[0] if len(memory) == 2 else ""  # type: ignore[no-any-return]


class BadReplies(Remembering):
    """The third unreadable reply ends the episode."""

    def remember(self, memory: tuple[Any, ...], reply: str) -> tuple[Any, ...]:
        return (sum(memory) + isinstance(self.task.parse(reply), Unreadable),)

    def ends(self, memory: tuple[Any, ...]) -> bool:
        return memory[0] == 3  # type: ignore[no-any-return]


class PaidLate(Remembering):
    """The length of the first reply is paid at the end."""

    def remember(self, memory: tuple[Any, ...], reply: str) -> tuple[Any, ...]:
        return memory or (len(reply),)

    def paid(self, memory: tuple[Any, ...]) -> float:
        return float(memory[0])


class LastReply(Remembering):
    """The last reply is kept, which nothing reads."""

    def remember(self, memory: tuple[Any, ...], reply: str) -> tuple[Any, ...]:
        return (reply,)


class ShownAtOnce(LastReply):
    """The last reply is read in the next prompt, and never again."""

    def shown(self, memory: tuple[Any, ...]) -> str:
        return memory[0] if memory else ""  # type: ignore[no-any-return]


CLASSES: dict[str, tuple[type[Remembering], str]] = {
    "a message for the next reader but one": (NextButOne, "little"),
    "a counter of bad replies": (BadReplies, "little"),
    "what is paid at the end": (PaidLate, "little"),
    "what the next prompt shows": (ShownAtOnce, "little"),
    "keeps the reply": (LastReply, "much"),
    "keeps the history": (Remembering, "much"),
}


def of_class(workflow: type[Remembering], is_hidden: bool) -> TextEnv:
    return TextEnv(workflow(PlanPath(), is_hidden=is_hidden))


PLANTED = [
    *[(f"function: {what}", partial(of_function, script), kind) for what, (script, kind) in FUNCTIONS.items()],
    # Too little is what a class hides; too much, what it does not.
    *[
        (f"class: {what}", (lambda right, w=w, kind=kind: of_class(w, right == (kind == "much"))), kind)
        for what, (w, kind) in CLASSES.items()
    ],
]
"""The name of each, what makes it (right, or not), and whether it keeps too little or too much."""
