"""Workflows as plain Python functions: the team's conversation written down from its beginning to its end.

    @function_workflow(
        Role("debater", "You are a debater. Argue for the best move.", count=2, delayed=True),
        Role("judge", "You are the judge. Your move is played."),
    )
    def debate(game, rounds: int = 1):
        while game.turns_left:
            said = []
            for _ in range(rounds):
                for name in ("debater_0", "debater_1"):
                    reply = yield Ask(name, game.show(*said), keeps=said)
                    said.append(game.quote(name, reply))
            reply = yield Ask("judge", game.show(*said), keeps=())
            game.play(reply, "judge")

    raw_env, env, parallel_env = assemble(PlanPath, __name__, (debate,))

The function yields a question and is sent the reply; parameters with defaults are the environment's settings. Its
snapshot is the instance and the replies so far: after each reply the function is run again from its beginning, so an
episode can be branched, copied and replayed exactly wherever it stands. Therefore it must be a function of the game
and the replies alone: no clock, no global random numbers, no tools but through `game.call`. A step takes time linear
in the replies so far.

Its state, by which `state_hash` tells moments apart, is less: what later prompts, payments and ends depend on. The
package knows the task's state, the turn, the feedback, the question and how many were asked in this turn; `keeps` is
what the function's own variables add to that. Without it, states are histories (`metadata["state"]`).
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import (
    TEAM,
    UNREADABLE_PENALTY,
    Parts,
    Role,
    Task,
    ToolResult,
    Transition,
    Unreadable,
    best_reply,
    call_tool,
    check_whole,
    part_ranges,
    play,
    system_prompt,
)
from pettingllms_envs.observations import Observation, Prompt
from pettingllms_envs.state_digest import Reported
from pettingllms_envs.teams.channels import NO_MESSAGES, Channel, Sent


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to an agent.

    Args:
        role: The agent: its role, or its own name if the role has several.
        text: What it observes.
        oracle: Makes an optimal reply; None for the task's best move. It is called only by those who ask for a
            demonstration, so it may take its time, and it must never reach an observation.
        keeps: What a later question, payment or end still needs, beside what `game` holds and this question says:
            numbers, texts, None, and lists, tuples and dictionaries of them; `()` for nothing. A function gives it in
            all of its questions or in none; `...`: it does not say, and its states are its histories.

    Raises:
        TypeError: `keeps` has something else in it.
    """

    role: str
    text: Observation
    oracle: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    keeps: Any = ...

    def __post_init__(self) -> None:
        if self.keeps is not ...:
            object.__setattr__(self, "keeps", _frozen(self.keeps))


def _frozen(value: Any) -> Any:
    """What a question keeps, as a value that nobody can change."""
    if value is None or isinstance(value, str | int | float | bytes):
        return value
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, Mapping):
        return tuple(sorted(((_frozen(key), _frozen(each)) for key, each in value.items()), key=repr))
    raise TypeError(
        f"a question keeps a {type(value).__name__}; expected numbers, texts, None, and lists, tuples, dictionaries "
        "of them. Keep what is needed of it, such as its text."
    )


Questions = Generator[Ask, str, object]
"""What a function returns, for its annotation."""

Script = Callable[..., Questions]


class Game:
    """What a function may look at and do while it is run: the task's state, moves, payments, messages.

    Args:
        results: Results of the tool calls so far, which are not made again.
        channel: What messages pass.
    """

    def __init__(
        self,
        task: Task[Any, Any],
        state: Any,
        num_turns: int,
        results: tuple[ToolResult, ...] = (),
        channel: Channel = Channel(),  # noqa: B008  # frozen
    ) -> None:
        self.task = task
        self.state = state
        self.num_turns = num_turns
        self.channel = channel
        self.turn = 1
        self.num_asked = 0  # in this turn
        self.feedback = ""
        self.results = list(results)
        self._num_calls = 0
        self._has_ended_turn = False
        self._unread = ""
        self._unreadable: set[str] = set()  # of this turn, charged already
        self._parts: dict[str, dict[str, float]] = {}
        self.reported = NO_MESSAGES

    @property
    def solved(self) -> bool:
        """Whether the task is solved."""
        return self.task.solved(self.state)

    @property
    def turns_left(self) -> bool:
        """Whether another turn begins: the task is not solved, and the budget is not used up."""
        if self.solved or (self._has_ended_turn and self.turn == self.num_turns):
            return False
        if self._has_ended_turn:
            self.turn, self.num_asked, self._has_ended_turn = self.turn + 1, 0, False
        return True

    def show(self, *notes: str) -> str:
        """The usual prompt: the turn if there are several, the task's state, what came of the last turn, the notes."""
        turn = f"Turn {self.turn} of {self.num_turns}." if self.num_turns > 1 else ""
        lines = (turn, self.task.show(self.state), self.feedback, *notes)
        return "\n".join(filter(None, lines))

    def quote(self, sender: str, reply: str) -> str:
        """A reply, without its thinking, as a message for another agent's prompt; see `workflows.channels`."""
        sent: Sent = self.channel.send(sender, reply)
        self.reported = self.reported.plus(messages=1, message_chars=len(sent.text))
        return sent.shown

    def read(self, reply: str, role: str, parse: Callable[[str], Any] | None = None) -> Any:
        """What `parse`, by default the task's, reads in a part of a move; None if that is `Unreadable`.

        An unreadable part costs the role that wrote it `format`, and the next turn's prompt says why. Give `play` the
        move that is made of the parts, or `end_turn` where one is missing.
        """
        found = (parse or self.task.parse)(reply)
        if not isinstance(found, Unreadable):
            return found
        self.pay(role, "format", UNREADABLE_PENALTY)
        self._unreadable.add(reply)
        self._unread += f"Last turn the {role}'s reply was unreadable: {found.reason}. "
        return None

    def play(self, reply: str, *roles: str) -> str:
        """Play a reply as the task's move, which ends the turn. Pays as `core.play`, and returns its words.

        A reply that `read` has charged for is not charged again.

        Args:
            reply: The move: an agent's reply, or a text that is made of several.
            roles: Who wrote it; each of them pays its costs.
        """
        if reply in self._unreadable and isinstance(self.task.parse(reply), Unreadable):
            return self.end_turn()
        author = " and ".join(roles)
        self.state, _, parts, words = play(self.task, self.state, reply, author)
        for scope, named in parts.items():
            for role in (TEAM,) if scope == TEAM else roles:
                for name, value in named.items():
                    self.pay(role, name, value)
        return self.end_turn(words)

    def end_turn(self, words: str = "Nothing was played.") -> str:
        """End the turn without a move. Returns what the next turn's prompt says of this one."""
        self.feedback, self._unread = f"{self._unread}{words}", ""
        self._unreadable.clear()
        self._has_ended_turn = True
        return self.feedback

    def pay(self, scope: str, name: str, value: float) -> None:
        """Add a part to the reward of the last reply.

        Args:
            scope: `"team"`, or the agent.
            name: The part's name. Names other than those of `core.part_ranges` are declared in `function_workflow`.
        """
        named = self._parts.setdefault(scope, {})
        named[name] = named.get(name, 0.0) + value

    def pay_team(self, name: str, value: float) -> None:
        """Add a part to everybody's reward of the last reply."""
        self.pay(TEAM, name, value)

    def report(self, **figures: bool | int | float | str) -> None:
        """Set figures of the episode's outcome, in addition to the task's."""
        self.reported = Reported(self.reported, **figures)

    def call(self, tool: Callable[[str], ToolResult], request: str) -> ToolResult:
        """The result of a tool call. It is made once and is then a part of the state."""
        if self._num_calls == len(self.results):
            self.results.append(call_tool(tool, request))
        self._num_calls += 1
        return self.results[self._num_calls - 1]

    def pending(self, ask: Ask) -> tuple[Any, ...]:
        """What the rest of the episode depends on while a question waits, beside the task's state and the turn."""
        held = self.feedback, self._has_ended_turn, self._unread, tuple(sorted(self._unreadable)), self.num_asked
        return ask.role, ask.text, ask.keeps, *held

    def take_parts(self) -> Parts:
        """The parts paid since the last reply."""
        parts, self._parts = self._parts, {}
        return parts


@dataclass(frozen=True, slots=True)
class FunctionState:
    """A moment of an episode.

    Args:
        rest: What else the rest of the episode depends on: see `Game.pending`, or the history; () once it is over.
        ask: The question that the acting agent is to answer; of the last reply once the episode is over.
        asked: The agents that have been asked so far, in the order of their first questions.
        reported: How many messages were quoted, their characters in total, and what the function reported.
    """

    task: Any
    turn: int
    rest: tuple[Any, ...]
    start: Any = field(repr=False)
    replies: tuple[str, ...] = field(repr=False)
    ask: Ask = field(repr=False)
    asked: tuple[str, ...] = field(repr=False)
    results: tuple[ToolResult, ...] = field(default=(), repr=False)
    reported: Reported = field(default=NO_MESSAGES, repr=False)


class _Run(NamedTuple):
    """What a run of a function led to.

    The state, the last reply's parts, whether the function ended, what it returned, and its last question's oracle.
    """

    state: FunctionState
    parts: Parts
    is_over: bool
    end: object
    oracle: Callable[[], str] | None


@dataclass(frozen=True)
class FunctionWorkflow:
    """The base class of workflows that `function_workflow` makes.

    Args:
        num_turns: Turn budget, at least 1.
    """

    task: Task[Any, Any]
    num_turns: int = 4

    name: ClassVar[str]
    roles: ClassVar[tuple[Role, ...]]
    script: ClassVar[Script]
    own_ranges: ClassVar[Mapping[str, tuple[float, float]]]
    channel: ClassVar[Channel]
    cyclic: ClassVar[bool] = False
    state_form: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_whole("num_turns", self.num_turns, 1)

    def is_history(self, state: FunctionState) -> bool:
        """Whether the function does not say what it keeps."""
        return state.ask.keeps is ...

    def start(self, task_state: Any) -> FunctionState:
        """The function's first question on this instance."""
        return self._run(task_state, (), (), None).state

    def actor(self, state: FunctionState) -> str:
        """The agent that was asked."""
        return state.ask.role

    def system(self, role: str) -> str:
        """The rules, the role's job, the reply format."""
        return system_prompt(self.task, next(each for each in self.roles if role in each.members))

    def observe(self, state: FunctionState, role: str) -> Observation:
        """The question, of the agent that was asked; of the others the task's state."""
        if role == state.ask.role:
            return state.ask.text
        shown = self.task.show(state.task)
        observes = next(each.observes for each in self.roles if role in each.members)
        return Prompt([{"role": "user", "content": shown}]) if observes == "messages" else shown

    def step(self, state: FunctionState, reply: str) -> Transition[FunctionState]:
        """Run the function with one more reply.

        Raises:
            ValueError: It did not ask the same as before: it depends on something else than the game and the replies.
        """
        after, parts, is_over, end, _ = self._run(state.start, (*state.replies, reply), state.results, state.ask)
        terminated = is_over and (self.task.solved(after.task) or bool(end))
        return after, parts, terminated, is_over and not terminated

    def oracle(self, state: FunctionState) -> str:
        """The best reply to the question, as it says itself; else the task's best move."""
        best = self._run(state.start, state.replies, state.results, None).oracle
        return best_reply(self.task, state.task) if best is None else best()

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress, success, format, the task's costs, and the function's own parts."""
        return {**part_ranges(self.task), **self.own_ranges}

    @property
    def bonuses(self) -> tuple[str, ...]:
        """The function's own parts."""
        return tuple(self.own_ranges)

    def questions(self, game: Game) -> Questions:
        """The function on a game, with the settings."""
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in _OWN_FIELDS}
        return type(self).script(game, **settings)

    def outcome(self, state: FunctionState) -> Mapping[str, bool | int | float | str]:
        """How many messages were quoted, their characters in total, and what the function reported."""
        return dict(state.reported)

    def _run(self, start: Any, replies: tuple[str, ...], results: tuple[ToolResult, ...], asked: Ask | None) -> _Run:
        """Run the function from its beginning to the next question.

        Args:
            results: The results of tool calls that need not be made again.
            asked: What the last one of the replies must answer; None if that is known.
        """
        game = Game(self.task, start, self.num_turns, results, self.channel)
        script, asks, is_over, end = self.questions(game), list[Ask](), False, None
        try:
            asks.append(next(script))
            game.num_asked += 1
            for reply in replies:
                game.take_parts()
                asks.append(script.send(reply))
                game.num_asked += 1
        except StopIteration as stop:
            is_over, end = True, stop.value
        if asked is not None and asks[len(replies) - 1 : len(replies)] != [asked]:
            raise ValueError(
                f"the workflow {self.name!r}, run again, asked something else after the same "
                "replies; expected a function of the game and the replies alone. Use no clock, no random numbers, no "
                "state of your own, and tools through game.call."
            )
        if not asks:
            raise ValueError(f"the workflow {self.name!r} ends before it asks anybody; expected a first `yield Ask`.")
        last, results = self._checked(asks[-1], asks[0]), tuple(game.results)
        history = (start, replies, results) if last.keeps is ... else ()
        state = FunctionState(
            game.state,
            game.turn,
            history or (() if is_over else game.pending(last)),
            start,
            replies,
            dataclasses.replace(last, oracle=None),
            tuple(dict.fromkeys(ask.role for ask in asks)),
            results,
            game.reported,
        )
        parts = game.take_parts()
        script.close()  # only now: what it does in a `finally` is no part of the episode
        return _Run(state, parts, is_over, end, last.oracle)

    def _checked(self, ask: Ask, first: Ask) -> Ask:
        """A question; `first` is the episode's first one."""
        known = [member for role in self.roles for member in role.members]
        if not isinstance(ask, Ask) or ask.role not in known:
            raise ValueError(
                f"the workflow {self.name!r} yields {ask!r}; expected Ask(role, text) with a role among "
                f"{', '.join(known)}."
            )
        if (ask.keeps is ...) != (first.keeps is ...):
            raise TypeError(
                f"the workflow {self.name!r} says what it keeps in some of its questions only: keeps={first.keeps!r} "
                f"in the first one, to {first.role}, and keeps={ask.keeps!r} in one to {ask.role}; expected it in all "
                "or in none. Write keeps=() where nothing is needed later."
            )
        return ask


class JoiningFunctionWorkflow(FunctionWorkflow):
    """The base class of those with `join_when_asked`."""

    def present(self, state: FunctionState) -> tuple[str, ...]:
        """The agents that have been asked so far."""
        return state.asked


_OWN_FIELDS = frozenset({"task", "num_turns"})
_RESERVED = _OWN_FIELDS | {*vars(FunctionWorkflow), *vars(FunctionWorkflow)["__annotations__"], "present"}


def function_workflow(
    *roles: Role,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    channel: Channel = Channel(),  # noqa: B008  # frozen
    num_turns: int = 4,
    join_when_asked: bool = False,
) -> Callable[[Script], type[FunctionWorkflow]]:
    """Make a workflow of a generator function.

    The decorated name becomes a class of workflows for `pettingllms_envs.assembly.assemble`, named as the function is.
    The function takes a `Game` and settings with defaults and annotations, yields `Ask`s and is sent the replies. Once
    it ends, the episode is over: terminated if the task is solved or it returns something true (an agreement), else
    truncated.

    Args:
        ranges: Least and greatest value, in one step, of each part that the function pays itself, by name.
        channel: What messages pass that the function quotes; it must not show replies in another way.
        num_turns: Turn budget where the setting `num_turns` is not given.
        join_when_asked: Whether an agent takes part only from its first question on. For functions that do not ask
            every agent in every episode: one that was not asked is not paid, and no agent of the episode.

    Raises:
        TypeError: It is no generator function, or a setting has no default, or a name that workflows use themselves.
    """

    def make(script: Script) -> type[FunctionWorkflow]:
        name = script.__name__
        if not inspect.isgeneratorfunction(script):
            raise TypeError(f"function_workflow got {name!r}, which never yields; expected `reply = yield Ask(...)`.")
        _, *settings = inspect.signature(script).parameters.values()
        for each in settings:
            if each.default is each.empty:
                raise TypeError(f"the setting {each.name!r} of {name!r} has no default; expected one. Give it one.")
            if each.name in _RESERVED:
                raise TypeError(
                    f"the setting {each.name!r} of {name!r} has the name of something that every workflow has; "
                    "expected another. Rename it; the turn budget is game.num_turns, and the task game.task."
                )
        hints = inspect.get_annotations(script, eval_str=True)
        fields: list[tuple[str, Any, Any]] = [("num_turns", int, dataclasses.field(default=num_turns))]
        fields += [
            (each.name, hints.get(each.name, Any), dataclasses.field(default=each.default)) for each in settings
        ]
        namespace = {
            "name": name,
            "roles": roles,
            "script": staticmethod(script),
            "own_ranges": dict(ranges or {}),
            "channel": channel,
            "__doc__": script.__doc__ or f"The workflow {name}.",
            "__module__": script.__module__,
        }
        base = JoiningFunctionWorkflow if join_when_asked else FunctionWorkflow
        made = dataclasses.make_dataclass(name, fields, bases=(base,), namespace=namespace, frozen=True)
        made.__module__, made.__qualname__ = script.__module__, script.__qualname__
        return made

    return make
