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
                    reply = yield Ask(name, game.show(*said))
                    said.append(game.quote(name, reply))
            reply = yield Ask("judge", game.show(*said))
            game.play(reply, "judge")

    raw_env, env, parallel_env = assemble(PlanPath, __name__, (debate,))

The function yields a question and is sent the reply; parameters with defaults are the environment's settings. Its
state is the instance and the replies so far: after each reply the function is run again from its beginning, so an
episode can be branched, copied and replayed exactly wherever it stands. Therefore it must be a function of the game
and the replies alone: no clock, no global random numbers, no tools but through `game.call`. A step takes time linear
in the replies so far.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import (
    TEAM,
    Parts,
    Role,
    Task,
    ToolResult,
    Transition,
    best_reply,
    check_num_turns,
    part_ranges,
    play,
    system_prompt,
)
from pettingllms_envs.observations import Observation
from pettingllms_envs.workflows.channels import Channel, Sent


class Ask(NamedTuple):
    """A question to an agent.

    Args:
        role: The agent: its role, or its own name if the role has several.
        text: What it observes.
    """

    role: str
    text: Observation


Questions = Generator[Ask, str, object]
"""What a function returns, for its annotation."""

Script = Callable[..., Questions]


class Game:
    """What a function may look at and do while it is run: the task's state, moves, payments, messages.

    Args:
        task: The task.
        state: The start state of the instance.
        num_turns: Turn budget.
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
        self.feedback = ""
        self.num_messages = 0
        self.message_chars = 0
        self.results = list(results)
        self._num_calls = 0
        self._has_ended_turn = False
        self._parts: dict[str, dict[str, float]] = {}

    @property
    def solved(self) -> bool:
        """Whether the task is solved."""
        return self.task.solved(self.state)

    @property
    def turns_left(self) -> bool:
        """Whether another turn begins: the task is not solved, and the budget is not used up."""
        if self.solved or (self._has_ended_turn and self.turn == self.num_turns):
            return False
        self.turn += self._has_ended_turn
        self._has_ended_turn = False
        return True

    def show(self, *notes: str) -> str:
        """The usual prompt: the turn, the task's state, what came of the last turn, and the notes."""
        lines = (f"Turn {self.turn} of {self.num_turns}.", self.task.show(self.state), self.feedback, *notes)
        return "\n".join(filter(None, lines))

    def quote(self, sender: str, reply: str) -> str:
        """A reply as a message for another agent's prompt; see `pettingllms_envs.workflows.channels`."""
        sent: Sent = self.channel.send(sender, reply)
        self.num_messages += 1
        self.message_chars += len(sent.text)
        return sent.shown

    def play(self, reply: str, role: str) -> str:
        """Play a reply as the task's move, which ends the turn. Pays as `core.play`, and returns its words."""
        self.state, _, parts, self.feedback = play(self.task, self.state, reply, role)
        for scope, named in parts.items():
            for name, value in named.items():
                self.pay(scope, name, value)
        self._has_ended_turn = True
        return self.feedback

    def pay(self, scope: str, name: str, value: float) -> None:
        """Add a part to the reward of the last reply.

        Args:
            scope: `"team"`, or the agent.
            name: The part's name. Names other than those of `core.part_ranges` are declared in `function_workflow`.
            value: Its value.
        """
        named = self._parts.setdefault(scope, {})
        named[name] = named.get(name, 0.0) + value

    def pay_team(self, name: str, value: float) -> None:
        """Add a part to everybody's reward of the last reply."""
        self.pay(TEAM, name, value)

    def call(self, tool: Callable[[str], ToolResult], request: str) -> ToolResult:
        """The result of a tool call. It is made once and is then a part of the state."""
        if self._num_calls == len(self.results):
            self.results.append(tool(request))
        self._num_calls += 1
        return self.results[self._num_calls - 1]

    def take_parts(self) -> Parts:
        """The parts paid since the last reply."""
        parts, self._parts = self._parts, {}
        return parts


class FunctionState(NamedTuple):
    """A moment of an episode.

    Args:
        start: The start state of the instance.
        replies: All replies so far.
        task: The task's state.
        turn: The turn, from 1.
        ask: The question that the acting agent is to answer; of the last reply once the episode is over.
        results: The results of tool calls so far.
        num_messages: How many messages were quoted.
        message_chars: Their characters in total.
    """

    start: Any
    replies: tuple[str, ...]
    task: Any
    turn: int
    ask: Ask
    results: tuple[ToolResult, ...] = ()
    num_messages: int = 0
    message_chars: int = 0


@dataclass(frozen=True)
class FunctionWorkflow:
    """The base class of workflows that `function_workflow` makes.

    Args:
        task: The task.
        num_turns: Turn budget, at least 1.

    Raises:
        ValueError: `num_turns` is not a whole number of at least 1.
    """

    task: Task[Any, Any]
    num_turns: int = 4

    name: ClassVar[str]
    roles: ClassVar[tuple[Role, ...]]
    script: ClassVar[Script]
    own_ranges: ClassVar[Mapping[str, tuple[float, float]]]
    channel: ClassVar[Channel]
    cyclic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_num_turns(self.num_turns)

    def start(self, task_state: Any) -> FunctionState:
        """The function's first question on this instance."""
        game, ask, _, _ = self._run(task_state, (), ())
        if ask is None:
            raise ValueError(f"the workflow {self.name!r} ends before it asks anybody; expected a first `yield Ask`.")
        return self._state(task_state, (), game, ask)

    def actor(self, state: FunctionState) -> str:
        """The agent that was asked."""
        return state.ask.role

    def system(self, role: str) -> str:
        """The rules, the role's job, the reply format."""
        return system_prompt(self.task, next(each for each in self.roles if role in each.members))

    def observe(self, state: FunctionState, role: str) -> Observation:
        """The question, of the agent that was asked; of the others the task's state."""
        return state.ask.text if role == state.ask.role else self.task.show(state.task)

    def step(self, state: FunctionState, reply: str) -> Transition[FunctionState]:
        """Run the function with one more reply."""
        replies = (*state.replies, reply)
        game, ask, parts, ended = self._run(state.start, replies, state.results)
        after = self._state(state.start, replies, game, state.ask if ask is None else ask)
        if ask is not None:
            return after, parts, False, False
        terminated = game.solved or bool(ended)
        return after, parts, terminated, not terminated

    def oracle(self, state: FunctionState) -> str:
        """The task's best move, for every agent."""
        return best_reply(self.task, state.task)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress, success, format, the task's costs, and the function's own parts."""
        return {**part_ranges(self.task), **self.own_ranges}

    @property
    def bonuses(self) -> tuple[str, ...]:
        """The function's own parts."""
        return tuple(self.own_ranges)

    def outcome(self, state: FunctionState) -> Mapping[str, int]:
        """How many messages were quoted, and their characters in total."""
        return {"messages": state.num_messages, "message_chars": state.message_chars}

    def _run(
        self, start: Any, replies: tuple[str, ...], results: tuple[ToolResult, ...]
    ) -> tuple[Game, Ask | None, Parts, object]:
        """The game after the replies, the next question (None at the end), the last reply's parts, the end's value."""
        game = Game(self.task, start, self.num_turns, results, self.channel)
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in _OWN_FIELDS}
        run = type(self).script(game, **settings)
        try:
            ask = next(run)
            for reply in replies:
                game.take_parts()
                ask = run.send(reply)
        except StopIteration as end:
            return game, None, game.take_parts(), end.value
        return game, self._checked(ask), game.take_parts(), None

    def _checked(self, ask: Ask) -> Ask:
        known = [member for role in self.roles for member in role.members]
        if not isinstance(ask, Ask) or ask.role not in known:
            raise ValueError(
                f"the workflow {self.name!r} yields {ask!r}; expected Ask(role, text) with a role among "
                f"{', '.join(known)}."
            )
        return ask

    @staticmethod
    def _state(start: Any, replies: tuple[str, ...], game: Game, ask: Ask) -> FunctionState:
        results = tuple(game.results)
        return FunctionState(
            start, replies, game.state, game.turn, ask, results, game.num_messages, game.message_chars
        )


_OWN_FIELDS = frozenset({"task", "num_turns"})


def function_workflow(
    *roles: Role,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    channel: Channel = Channel(),  # noqa: B008  # frozen
) -> Callable[[Script], type[FunctionWorkflow]]:
    """Make a workflow of a generator function.

    The decorated name becomes a class of workflows for `pettingllms_envs.assembly.assemble`, named as the function is.
    The function takes a `Game` and settings with defaults and annotations, yields `Ask`s and is sent the replies. Once
    it ends, the episode is over: terminated if the task is solved or it returns something true (an agreement), else
    truncated.

    Args:
        roles: The roles of the team.
        ranges: Least and greatest value, in one step, of each part that the function pays itself, by name.
        channel: What messages pass that the function quotes; it must not show replies in another way.

    Raises:
        TypeError: It is no generator function, or a setting has no default.
    """

    def make(script: Script) -> type[FunctionWorkflow]:
        name = script.__name__
        if not inspect.isgeneratorfunction(script):
            raise TypeError(f"function_workflow got {name!r}, which never yields; expected `reply = yield Ask(...)`.")
        _, *settings = inspect.signature(script).parameters.values()
        for each in settings:
            if each.default is each.empty:
                raise TypeError(f"the setting {each.name!r} of {name!r} has no default; expected one. Give it one.")
        hints = inspect.get_annotations(script, eval_str=True)
        fields = [(each.name, hints.get(each.name, Any), dataclasses.field(default=each.default)) for each in settings]
        namespace = {
            "name": name,
            "roles": roles,
            "script": staticmethod(script),
            "own_ranges": dict(ranges or {}),
            "channel": channel,
            "__doc__": script.__doc__ or f"The workflow {name}.",
            "__module__": script.__module__,
        }
        made = dataclasses.make_dataclass(name, fields, bases=(FunctionWorkflow,), namespace=namespace, frozen=True)
        made.__module__, made.__qualname__ = script.__module__, script.__qualname__
        return made

    return make
