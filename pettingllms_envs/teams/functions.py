"""Workflows as plain Python functions: the team's conversation written down from its beginning to its end.

    @function_workflow(Role("adviser", "Advise the player.", delayed=True), Role("player", "You play."))
    def advised(game):
        while game.turns_left:
            said = yield Ask("adviser", game.show(), keeps=())
            reply = yield Ask("player", game.show(game.quote("adviser", said)), keeps=())
            game.play(reply, "player")

    raw_env, env, parallel_env = assemble(PlanPath, __name__, (advised,))

The function yields a question and is sent the reply; parameters with defaults are the environment's settings. While an
episode is played on, so is the function. Its snapshot is the instance and the replies so far: where the episode was
branched, copied or restored, the function is run again from its beginning, with the replies and the results of tools
that are kept. Therefore it must be a function of the game and the replies alone: no clock, no global random numbers,
no tools but through `game.call`. `pettingllms check` branches everywhere, and a function that asks something else when
it is run again raises.

An agent is shown its own questions and nothing else: while another one is asked, it observes its last question, or
nothing. `game.show` is for what every agent may see.

Its state, by which `state_hash` tells moments apart, is less: what later prompts, payments and ends depend on. The
package knows the task's state, the turn, the feedback, the question and how many were asked in this turn; `keeps` is
what the function's own variables add to that. Without it, states are histories (`metadata["state"]`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

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
    check_choice,
    check_whole,
    part_ranges,
    play,
    system_prompt,
)
from pettingllms_envs.observations import Observation, Prompt
from pettingllms_envs.replies.reading import NOTES
from pettingllms_envs.state_digest import Reported
from pettingllms_envs.teams.channels import NO_MESSAGES, Channel, Sent


T = TypeVar("T")

NO_CHANNEL = Channel()
PLAIN = (str, int, float, bytes, type(None))
LONG = 4_000
"""Characters of a prompt above which its digest stands for it where states are written."""


class Ask(NamedTuple):
    """A question to an agent.

    Args:
        role: The agent: its role, or its own name if the role has several.
        text: What it observes; or a function that makes it, where that takes long: it is called at once, but not while
            earlier replies are repeated.
        oracle: Makes an optimal reply; None for the task's best move. It is called only by those who ask for a
            demonstration, so it may take its time, and it must never reach an observation.
        keeps: What a later question, payment or end still needs, beside what `game` holds and this question says:
            numbers, texts, None, and lists, tuples and dictionaries of them; `()` for nothing. A function gives it in
            all of its questions or in none; `...`: it does not say, and its states are its histories.
        private: Texts in it that no other agent may be shown unless somebody says them; `pettingllms check` looks.
    """

    role: str
    text: Observation | Callable[[], Observation]
    oracle: Callable[[], str] | None = None
    keeps: Any = ...
    private: Sequence[str] = ()


def _asked(ask: Ask) -> Ask:
    """A question as it was asked, which nobody can change: with its text, and without its oracle."""
    role, text, _, keeps, private = ask
    kept = keeps if keeps is ... or keeps == () or type(keeps) is float else _frozen(keeps)
    return tuple.__new__(Ask, (role, text() if callable(text) else text, None, kept, tuple(private)))


def _frozen(value: Any) -> Any:
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (list, tuple)):  # in half the time: `list | tuple` is an object of its own at each call
        return tuple([_frozen(each) for each in value])
    if isinstance(value, Mapping):
        pairs = [(_frozen(key), _frozen(each)) for key, each in value.items()]
        return tuple(sorted(pairs, key=repr) if len(pairs) > 1 else pairs)
    raise TypeError(
        f"a question keeps a {type(value).__name__}; expected numbers, texts, None, and lists, tuples, dictionaries "
        "of them. Keep what is needed of it, such as its text."
    )


Questions = Generator[Ask, str, Any]
"""What a function returns, for its annotation."""

Script = Callable[..., Questions]


class Game:
    """What a function may look at and do while it is run: the task's state, moves, payments, messages.

    Args:
        results: Results of the tool calls so far, and of what else is computed once; they are not made again.
        channel: What messages pass.
        members: The agents, as questions name them, in the order of the roles.
        reported: The figures that the outcome has from the start; without `messages`, messages are not counted.
    """

    def __init__(
        self,
        task: Any,
        state: Any,
        num_turns: int,
        results: tuple[Any, ...] = (),
        channel: Channel = Channel(),  # noqa: B008  # frozen
        *,
        members: tuple[str, ...] = (),
        reported: Reported = NO_MESSAGES,
    ) -> None:
        self.task = task
        self.state = state
        self.num_turns = num_turns
        self.channel = channel
        self.members = members
        self.turn = 1
        self.kept: Any = None  # by the question with which this turn began, where the function is run from there
        self.num_asked = 0  # in this turn
        self.feedback = ""
        self.results = results
        self._num_calls = self._calls_before = 0  # and before the turn
        self._has_ended_turn = False
        self._unread = ""
        self._unreadable: set[str] = set()  # of this turn, charged already
        self._parts: dict[str, Mapping[str, float]] = {}
        self._pays = True  # not while replies are repeated, which were paid when they came
        self.reported = reported

    @property
    def solved(self) -> bool:
        return bool(self.task.solved(self.state))

    @property
    def is_over(self) -> bool:
        """Whether the task is solved, or the turn that was ended the last one."""
        return bool(self.task.solved(self.state)) or (self._has_ended_turn and self.turn == self.num_turns)

    @property
    def turns_left(self) -> bool:
        """Whether another turn begins: the task is not solved, and the budget is not used up."""
        if not self._has_ended_turn:
            return not self.task.solved(self.state)
        if self.turn == self.num_turns or self.task.solved(self.state):
            return False
        self.turn, self.num_asked, self._has_ended_turn = self.turn + 1, 0, False
        self._calls_before = self._num_calls
        return True

    def turns(self) -> Iterator[int]:
        """The turns to the last, solved or not, from the first; or from the one from which the function is run."""
        for turn in range(self.turn, self.num_turns + 1):
            self.turn, self._calls_before = turn, self._num_calls
            yield turn

    def show(self, *notes: str) -> str:
        """The usual prompt: the turn if there are several, the task's state, what came of the last turn, the notes.

        It has what every agent may see; what some may not, their own prompts leave out.
        """
        if self.num_turns > 1:
            return self.situation(*notes)
        return "\n".join(filter(None, (self.task.show(self.state), self.feedback, *notes)))

    def situation(self, *notes: str) -> str:
        """The same, with the turn even if there is only one."""
        text = f"Turn {self.turn} of {self.num_turns}.\n{self.task.show(self.state)}"
        for note in (self.feedback, *notes):
            if note:
                text = f"{text}\n{note}"
        return text

    def quote(self, sender: str, reply: str) -> str:
        """A reply, without its thinking, as a message for another agent's prompt; see `teams.channels`."""
        return self.send(sender, reply).shown

    def send(self, sender: str, reply: str) -> Sent:
        """The same, before it is quoted: what arrives of it, and who wrote it."""
        sent = self.channel.send(sender, reply)
        if self.reported:
            self.reported = self.reported.plus(messages=1, message_chars=len(sent.text))
        return sent

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

    def play(self, reply: str, *roles: str, pays: Sequence[str] | None = None) -> str:
        """Play a reply as the task's move, which ends the turn. Pays as `core.play`, and returns its words.

        A reply that `read` has charged for is not charged again.

        Args:
            reply: The move: an agent's reply, or a text that is made of several.
            roles: Who wrote it; each of them pays its costs.
            pays: The parts that are paid; None for all.
        """
        if reply in self._unreadable and isinstance(self.task.parse(reply), Unreadable):
            return self.end_turn()
        author = roles[0] if len(roles) == 1 else " and ".join(roles)
        self.state, _, parts, words = play(self.task, self.state, reply, author)
        if pays is None and not self._parts and self._pays and author in roles:
            self._parts = parts
            return self.end_turn(words)
        for scope, named in parts.items() if self._pays else ():
            for role in (TEAM,) if scope == TEAM else roles:
                for name, value in named.items():
                    if pays is None or name in pays:
                        self.pay(role, name, value)
        return self.end_turn(words)

    def end_turn(self, words: str = "Nothing was played.") -> str:
        """End the turn without a move. Returns what the next turn's prompt says of this one."""
        if self._unreadable:
            words, self._unread = f"{self._unread}{words}", ""
            self._unreadable.clear()
        self.feedback, self._has_ended_turn = words, True
        return words

    def advance(self, state: Any) -> float:
        """Take a state as the task's, and pay the team `progress`, the change of the potential, which is returned."""
        change: float = self.task.value(state) - self.task.value(self.state)
        self.state = state
        self.pay_team("progress", change)
        return change

    def closes(self, over: bool) -> bool:
        """Whether the episode ends, by `over` or with the last turn. The team is paid `success` if it ends solved."""
        over = over or self.turn == self.num_turns
        if over and self.solved:
            self.pay_team("success", 1.0)
        return over

    def win(self) -> None:
        """Pay the team `progress` and `success`, 1 each, if the task is solved, whose potential was 0 before."""
        if self.solved:
            self.pay_team("progress", 1.0)
            self.pay_team("success", 1.0)

    def pay(self, scope: str, name: str, value: float) -> None:
        """Add a part to the reward of the last reply.

        Args:
            scope: `"team"`, or the agent.
            name: The part's name. Names other than those of `core.part_ranges` are declared in `function_workflow`.
        """
        if self._pays:
            named = self._parts.get(scope)
            self._parts[scope] = {**named, name: named.get(name, 0.0) + value} if named else {name: value}

    def pay_team(self, name: str, value: float) -> None:
        """Add a part to everybody's reward of the last reply."""
        self.pay(TEAM, name, value)

    def report(self, **figures: bool | int | float | str) -> None:
        """Set figures of the episode's outcome, in addition to the task's."""
        self.reported = Reported(self.reported, **figures)

    def call(self, tool: Callable[[str], ToolResult], request: str) -> ToolResult:
        """The result of a tool call. It is made once and is then a part of the state."""
        return self.once(call_tool, tool, request)

    def once(self, compute: Callable[..., T], *args: Any) -> T:
        """What a function of the arguments returns, where that takes long: computed once, and then kept as well."""
        if self._num_calls == len(self.results):
            self.results = (*self.results, compute(*args))
        self._num_calls += 1
        return self.results[self._num_calls - 1]  # type: ignore[no-any-return]

    def take_parts(self) -> Parts:
        """The parts paid since the last reply."""
        parts, self._parts, self._pays = self._parts, {}, True
        return parts


_Run = tuple[Game, Questions, Ask]
"""A game, its function, which waits for the reply to a question, and that question."""


class _Runs(list[_Run]):
    """The function of a state that waits there, at most one. Copies and pickles have none: there it is run again.

    Taking it out is a single operation, so that only one thread has it.
    """

    __slots__ = ("are_same",)
    are_same: bool  # once it was run again, and asked the same

    def __reduce__(self) -> tuple[type[_Runs], tuple[()]]:
        return _Runs, ()

    def __eq__(self, other: object) -> bool:
        return type(other) is _Runs

    def __hash__(self) -> int:  # type: ignore[override]
        return 0


class FunctionState(NamedTuple):
    """A moment of an episode.

    Args:
        rest: What else the rest of the episode depends on: see `_waiting`, or the history; () once it is over.
        ask: The question that the acting agent is to answer; of the last reply once the episode is over.
        seen: Of each agent that has been asked so far: its last question, and the task's state then.
        runs: The function, unless it has gone on to another state; every two are equal.
        reported: How many messages were quoted, their characters in total, and what the function reported.
        begin: Where `replies` begin, if with a turn from which the function can be run: its task's state, turn,
            feedback, figures, numbers of tool calls and of questions, and what was kept. `None`: with the episode.
    """

    task: Any
    turn: int
    rest: tuple[Any, ...]
    start: Any
    replies: tuple[str, ...]
    ask: Ask
    seen: tuple[tuple[str, Observation, Any], ...]
    runs: _Runs
    results: tuple[Any, ...] = ()
    reported: Reported = NO_MESSAGES
    feedback: str = ""
    begin: tuple[Any, ...] | None = None

    def __repr__(self) -> str:
        """What determines the rest of the episode, for digests; of a long prompt its own digest."""
        rest = self.rest
        if len(rest) > 3 and isinstance(rest[1], str) and len(rest[1]) > LONG:
            digest = hashlib.sha256(rest[1].encode("utf-8", "surrogatepass")).hexdigest()
            rest = (rest[0], digest, *rest[2:])
        return f"FunctionState(task={self.task!r}, turn={self.turn!r}, rest={rest!r})"


@dataclass(frozen=True, repr=False)
class FunctionWorkflow:
    """The base class of workflows that `function_workflow` makes.

    Args:
        num_turns: Turn budget, at least 1.
        capacity: Most characters of a message, at least 1; the rest is lost. Only of functions with this setting.
    """

    task: Task[Any, Any]
    num_turns: int = 4

    name: ClassVar[str]
    roles: ClassVar[tuple[Role, ...]]
    script: ClassVar[Script]
    own_ranges: ClassVar[Mapping[str, tuple[float, float]]]
    legal: ClassVar[Mapping[str, Sequence[object]]] = {}
    channel: ClassVar[Channel | None]
    cyclic: ClassVar[bool] = False
    turns_apart: ClassVar[bool] = False
    """Whether the function can be run from the beginning of a turn: it reads `game.turn`, and in `game.kept` what its
    first question of that turn kept (tuples for lists, and pairs for dictionaries), and goes on as it would have, in
    oracles, reports and tool calls, too. A branch then repeats no more than its turn."""
    state_form: ClassVar[int] = 2
    reported: ClassVar[Reported] = NO_MESSAGES
    unwritten: ClassVar[Sequence[str]] = ()
    """Settings that `repr`, on which digests of states depend, leaves out where they have their default."""

    def __repr__(self) -> str:
        own = [each for each in dataclasses.fields(self) if each.repr]
        told = [
            (f.name, getattr(self, f.name))
            for f in own
            if f.name not in self.unwritten or getattr(self, f.name) != f.default
        ]
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in told)})"

    def __post_init__(self) -> None:
        for name, value in self.completed().items():
            object.__setattr__(self, name, value)
        check_whole("num_turns", self.num_turns, 1)
        for name, choices in self.legal.items():
            if isinstance(choices, range):
                check_whole(name, getattr(self, name), choices[0], choices[-1])
            else:
                check_choice(name, getattr(self, name), choices)
        _ = self.channel, self.roles  # made of the settings, where they raise ValueError for one out of range

    def completed(self) -> Mapping[str, Any]:
        """Settings whose values follow from others. Raises ValueError for what does not fit together."""
        return {}

    @cached_property
    def members(self) -> tuple[str, ...]:
        """The agents, as questions name them, in the order of the roles."""
        return tuple([member for role in self.roles for member in role.members])

    def is_history(self, state: FunctionState) -> bool:
        """Whether the function does not say what it keeps."""
        return state.ask.keeps is ...

    def start(self, task_state: Any) -> FunctionState:
        """The function's first question on this instance."""
        run = self._first(task_state, ())
        run[0].take_parts()
        return self._waiting(run, (task_state, (), (), None), 1)

    def actor(self, state: FunctionState) -> str:
        """The agent that was asked."""
        return state.ask.role

    def system(self, role: str) -> str:
        """The rules, the role's job, the reply format."""
        return system_prompt(self.task, next(each for each in self.roles if role in each.members))

    def observe(self, state: FunctionState, role: str) -> Observation:
        """The agent's last question: of the one that was asked the one it is to answer; nothing if it had none yet."""
        for asked, text, _ in state.seen:
            if asked == role:
                return text
        observes = next(each.observes for each in self.roles if role in each.members)
        return Prompt([{"role": "user", "content": ""}]) if observes == "messages" else ""

    def shown(self, state: FunctionState, role: str) -> Any:
        """The task's state that the agent observes: that of its last question."""
        return next((task for asked, _, task in state.seen if asked == role), state.task)

    def step(self, state: FunctionState, reply: str) -> Transition[FunctionState]:
        """Send the reply to the function, and let it run to its next question.

        Raises:
            TypeError: A question keeps something else than numbers, texts, None, lists, tuples and dictionaries.
            ValueError: It is run again, and does not ask the same as before: it depends on something else than the
                game and the replies.
        """
        game, script, ask = self._run(state)
        replies = (*state.replies, reply)
        try:
            ask = script.send(reply)
        except StopIteration as stop:
            end, results = stop.value, game.results
            history = (state.start, replies, results) if ask.keeps is ... else ()
            last = state.start, replies, state.ask, state.seen, _Runs(), results, game.reported, game.feedback
            after = tuple.__new__(FunctionState, (game.state, game.turn, history, *last, state.begin))
            terminated = bool(game.solved if end is None else end)
            return after, game.take_parts(), terminated, not terminated
        game.num_asked += 1
        if type(ask) is not Ask or ask.role not in self.members or (ask.keeps is ...) != (state.ask.keeps is ...):
            self._check(ask, state)
        parts = game.take_parts()
        episode = state.start, replies, state.seen, state.begin
        return self._waiting((game, script, ask), episode, state.turn), parts, False, False

    def oracle(self, state: FunctionState) -> str:
        """The best reply to the question, as it says itself; else the task's best move."""
        run = self._run(state)
        state.runs[:] = (run,)
        oracle = run[2].oracle
        return best_reply(self.task, state.task) if oracle is None else oracle()

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress, success, format, the task's costs, and the function's own parts."""
        return {**part_ranges(self.task), **self.own_ranges}

    @property
    def bonuses(self) -> tuple[str, ...]:
        """The function's own parts."""
        return tuple(self.own_ranges)

    @cached_property
    def _settings(self) -> Mapping[str, Any]:
        _, *names = inspect.signature(type(self).script).parameters
        return {name: getattr(self, name) for name in names}

    def questions(self, game: Game) -> Questions:
        """The function on a game, with the settings."""
        return type(self).script(game, **self._settings)

    def outcome(self, state: FunctionState) -> Mapping[str, bool | int | float | str]:
        """How many messages were quoted, their characters in total, and what the function reported."""
        return dict(state.reported)

    def _waiting(self, run: _Run, episode: tuple[Any, ...], turn: int) -> FunctionState:
        """The state in which a function waits for the reply to a question; `turn` is that of the state before."""
        game, (start, replies, seen, begin), ask = run[0], episode, _asked(run[2])
        role, text, _, keeps, _ = ask
        others = seen[1:] if seen and seen[0][0] == role else [each for each in seen if each[0] != role]
        if game.turn != turn and self.turns_apart:
            counted = game._calls_before, game.num_asked
            begin, replies = (game.state, game.turn, game.feedback, game.reported, *counted, keeps), ()
        if keeps is ...:
            rest: tuple[Any, ...] = (start, replies, game.results)
        else:  # what the rest of the episode depends on, beside the task's state and the turn
            charged = tuple(sorted(game._unreadable)) if game._unreadable else ()
            rest = role, text, keeps, game.feedback, game._has_ended_turn, game._unread, charged, game.num_asked
        last = (*others, (role, text, game.state))
        now = _Runs((run,)), game.results, game.reported, game.feedback, begin
        # In half the time of `FunctionState(...)`.
        return tuple.__new__(FunctionState, (game.state, game.turn, rest, start, replies, ask, last, *now))

    def _first(self, start: Any, results: tuple[Any, ...], begin: tuple[Any, ...] | None = None) -> _Run:
        """The function, run to its first question, or to that of a later turn."""
        channel = self.channel or NO_CHANNEL
        game = Game(self.task, start, self.num_turns, results, channel, members=self.members, reported=self.reported)
        num_asked = 1
        if begin is not None:
            game.state, game.turn, game.feedback, game.reported, num_calls, num_asked, game.kept = begin
            game._num_calls = game._calls_before = num_calls
        script = self.questions(game)
        try:
            ask = next(script)
        except StopIteration:
            raise ValueError(
                f"the workflow {self.name!r} ends before it asks anybody; expected a first `yield Ask`."
            ) from None
        game.num_asked = num_asked
        self._check(ask)
        return game, script, ask

    def _run(self, state: FunctionState) -> _Run:
        try:
            return state.runs.pop()
        except IndexError:
            return self._again(state)

    def _again(self, state: FunctionState) -> _Run:
        """The function, run to the question of a state: from the beginning of the turn, or else of the episode."""
        begin = state.begin
        outside = NOTES.set(None)  # how earlier replies are read was noted when they came
        try:
            game, script, ask = self._first(state.start, state.results, begin)
            game._pays = False
            for reply in state.replies:
                ask = script.send(reply)
                game.num_asked += 1
        except StopIteration:
            ask = Ask("", "")
        finally:
            NOTES.reset(outside)
        if not hasattr(state.runs, "are_same") and _asked(ask) != state.ask:
            raise ValueError(
                f"the workflow {self.name!r}, run again, asked something else after the same replies; expected a "
                "function of the game and the replies alone. Use no clock, no random numbers, no state of your own, "
                "and tools through game.call."
            )
        state.runs.are_same = True
        game.take_parts()
        return game, script, ask

    def _check(self, ask: Ask, before: FunctionState | None = None) -> None:
        """Raise unless a question is one to an agent, and says what it keeps if the one of the state before does."""
        if not isinstance(ask, Ask) or ask.role not in self.members:
            raise ValueError(
                f"the workflow {self.name!r} yields {ask!r}; expected Ask(role, text) with a role among "
                f"{', '.join(self.members)}."
            )
        if before is not None and (ask.keeps is ...) != (before.ask.keeps is ...):
            raise TypeError(
                f"the workflow {self.name!r} has keeps={before.ask.keeps!r} in a question to {before.ask.role}, and "
                f"keeps={ask.keeps!r} in the next one, to {ask.role}; expected it in all of its questions or in none. "
                "Write keeps=() where nothing is needed later."
            )


_OWN_FIELDS = frozenset({"task", "num_turns"})
_RESERVED = _OWN_FIELDS | {*vars(FunctionWorkflow), *vars(FunctionWorkflow)["__annotations__"], "present"}

Ranges = Mapping[str, tuple[float, float]]


def function_workflow(
    *roles: Role | Callable[[Any], tuple[Role, ...]],
    name: str | None = None,
    ranges: Ranges | Callable[[Any], Ranges] | None = None,
    channel: Channel | None = Channel(),  # noqa: B008  # frozen
    num_turns: int = 4,
    join_when_asked: bool = False,
    cyclic: bool = False,
    legal: Mapping[str, Sequence[object]] | None = None,
    forms: Callable[[Any], Any] | None = None,
    bots: Mapping[str, Callable[[Any, FunctionState], str]] | None = None,
    meanings: Mapping[str, str] | None = None,
    **members: Any,
) -> Callable[[Script], type[FunctionWorkflow]]:
    """Make a workflow of a generator function.

    The decorated name becomes a class of workflows for `pettingllms_envs.assembly.assemble`, named as the function is.
    The function takes a `Game` and settings with defaults and annotations, yields `Ask`s and is sent the replies. Once
    it ends, the episode is over: terminated if it returns something true (an agreement), or nothing and the task is
    solved; else truncated. A setting `capacity` is the most characters of a message, and a setting `executor` is what
    runs programs, which no file holds. What is made of the settings is a function of the workflow, whose attributes
    they are, beside `task` and `num_turns`.

    Args:
        roles: The roles of the team, or one function that makes them.
        name: The workflow's name; None: the function's.
        ranges: Least and greatest value, in one step, of each part that the function pays itself, by name.
        channel: What messages pass that the function quotes; it must not show replies in another way. None: there are
            no messages, and the outcome does not count them.
        num_turns: Turn budget where the setting `num_turns` is not given.
        join_when_asked: Whether an agent takes part only from its first question on. For functions that do not ask
            every agent in every episode: one that was not asked is not paid, and no agent of the episode.
        cyclic: Whether every agent is asked once in each turn, in the order of the roles.
        legal: Values that settings can have: a range, or all that there are.
        forms: What the team is compared with, see `pettingllms_envs.teams.forms`.
        bots: Players written as rules, by name: each makes the reply to the question of a state.
        meanings: What settings mean that several functions have, for their documentation.
        members: Whatever else a class of workflows has, as in a class statement: a `completed`, `state_form=3`.

    Raises:
        TypeError: It is no generator function, or a setting has no default, or a name that workflows use themselves.
    """

    def make(script: Script) -> type[FunctionWorkflow]:
        own_name = script.__name__
        if not inspect.isgeneratorfunction(script):
            raise TypeError(
                f"function_workflow got {own_name!r}, which never yields; expected `reply = yield Ask(...)`."
            )
        _, *settings = inspect.signature(script).parameters.values()
        for each in settings:
            if each.default is each.empty:
                raise TypeError(
                    f"the setting {each.name!r} of {own_name!r} has no default; expected one. Give it one."
                )
            if each.name in _RESERVED:
                raise TypeError(
                    f"the setting {each.name!r} of {own_name!r} has the name of something that every workflow has; "
                    "expected another. Rename it; the turn budget is game.num_turns, and the task game.task."
                )
        hints = inspect.get_annotations(script, eval_str=True)
        fields: list[tuple[str, Any, Any]] = [("num_turns", int, dataclasses.field(default=num_turns))]
        for each in settings:
            is_setting = each.name != "executor"  # a snapshot may go on in a process with another one
            field = dataclasses.field(default=each.default, repr=is_setting, compare=is_setting)
            fields.append((each.name, hints.get(each.name, Any), field))
        namespace = {
            "name": name or own_name,
            "roles": _member(roles[0]) if roles and callable(roles[0]) else roles,
            "script": staticmethod(script),
            "own_ranges": _member(ranges) if callable(ranges) else dict(ranges or {}),
            "channel": channel,
            **({"reported": Reported()} if channel is None else {}),
            "cyclic": cyclic,
            "legal": dict(legal or {}),
            "__doc__": script.__doc__ or f"The workflow {own_name}.",
            "__module__": script.__module__,
            **members,
        }
        if any(each.name == "capacity" for each in settings):
            namespace["channel"] = _member(lambda team: Channel(team.capacity))
        if forms is not None:
            namespace["forms"] = property(forms)
        if bots is not None:
            namespace |= {"bots": tuple(bots), "bot": lambda team, state, bot: bots[bot](team, state)}
        if join_when_asked:
            namespace["present"] = lambda team, state: tuple([role for role, _, _ in state.seen])
        if meanings:
            own = [each.name for each in settings if each.name in meanings]
            told = "".join(f"\n    {each}: {meanings[each]}" for each in own)
            namespace["__doc__"] = f"{inspect.cleandoc(namespace['__doc__'])}\n\nArgs:{told}"
        made = dataclasses.make_dataclass(
            own_name, fields, bases=(FunctionWorkflow,), namespace=namespace, frozen=True, repr=False
        )
        made.__module__, made.__qualname__ = script.__module__, script.__qualname__
        return made

    return make


def _member(made: Callable[[Any], Any]) -> cached_property[Any]:
    """An attribute that is made of the settings when it is first asked for."""
    return cached_property(made)
