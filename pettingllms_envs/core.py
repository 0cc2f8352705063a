"""The protocols of an environment: a task (the game), a workflow (the order and observations of roles), named rewards.

A *task* is a pure state machine: rules, parser, generator, oracle. It has no roles. A *workflow* lets a team play any
task: it defines the order of the roles, what each one observes, and how its reply is used and scored.
`pettingllms_envs.aec.TextEnv` turns a workflow into a PettingZoo environment. This module imports no pettingzoo, so
both can be used and tested without it.

A new task is one file with a class that has the methods of `Task`; a new workflow is one file with a class that has
those of `Workflow`; `pettingllms_envs.tasks.base` and `pettingllms_envs.teams.base` have classes with defaults for
most of them, `pettingllms_envs.features` the optional ones. Both are frozen dataclasses whose fields are their
settings; states are named tuples (or frozen dataclasses) of numbers, strings, bytes, read-only arrays and other such
tuples, so that a snapshot is a reference. Named tuples are used here because they are made in a third of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from pettingllms_envs.features import HasOracle
from pettingllms_envs.observations import Image, Observation
from pettingllms_envs.suggestions import did_you_mean


TEAM = "team"
SPLITS = ("train", "validation", "test")
UNREADABLE_PENALTY = -0.2
FIELDS: ContextVar[Mapping[str, Any] | None] = ContextVar("fields", default=None)
"""The fields of the instance of an episode that begins, while its workflow starts; None elsewhere."""
OBSERVATIONS = ("text", "parts", "messages")

State = TypeVar("State")
Move = TypeVar("Move")

Parts = Mapping[str, Mapping[str, float]]
"""The named parts of a step's reward: by scope, then by name. The scope is `TEAM` for everybody, or the one
agent they belong to as the workflow names it (see `Role.members`).

A name belongs to one scope. To be read only: a snapshot holds it.
"""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A reply that is not a move, with the reason: a clause for a prompt, without text that a model wrote."""

    reason: str


@dataclass(frozen=True, slots=True)
class Role:
    """A role in a team.

    Args:
        name: One lower-case word, unique in its workflow and not "team"; its agents are `<name>_0`, `<name>_1`, ...
        job: The task of the role, in a sentence or two for its system prompt.
        delayed: Whether its replies are paid only at later steps. Training then needs another credit scheme: see
            docs/delayed_rewards.md.
        count: Number of its agents, at least 1.
        observes: What its observations are: `"text"`; `"parts"`, texts and images in order; or `"messages"`, a chat
            with perhaps tools, see `pettingllms_envs.observations.Prompt`.
        reply_format: How its replies end, in a sentence; `""` for free words, None for the task's reply format.
        informed: Whether its observations may contain the solution, as those of one who gives clues.

    Raises:
        ValueError: `count` or `observes` is not as above.
    """

    name: str
    job: str
    delayed: bool = False
    count: int = 1
    observes: str = "text"
    reply_format: str | None = None
    informed: bool = False

    def __post_init__(self) -> None:
        check_choice("observes", self.observes, OBSERVATIONS)
        if not isinstance(self.count, int) or self.count < 1:
            raise ValueError(
                f"the role {self.name!r} has count={self.count!r}; expected a whole number of at least 1. Give the "
                "number of its agents."
            )

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of its agents, such as `("debater_0", "debater_1")`."""
        return tuple(f"{self.name}_{index}" for index in range(self.count))

    @property
    def members(self) -> tuple[str, ...]:
        """How a workflow names its agents: a lone one by the role, several by the agents' own names."""
        return (self.name,) if self.count == 1 else self.agents


class Task(Protocol[State, Move]):
    """A game as pure functions of its state: no clock, no global random numbers, no role."""

    @property
    def name(self) -> str:
        """The task's name, such as `"plan_path"`."""

    @property
    def version(self) -> int:
        """Increased whenever the same moves could lead to another result; part of every instance and snapshot."""

    @property
    def instance_fields(self) -> Mapping[str, tuple[object, ...]]:
        """The keyword arguments of `generate` besides the seed, each with its legal values, or () if it is open.

        They are the environment's reset options. By convention `split` is one of `SPLITS`, `level` a difficulty from
        1 (easiest) up, and `board` an instance written out.
        """

    @property
    def blind_replies(self) -> tuple[str, ...]:
        """Well-formed replies that ignore the state: one move, every move, to and fro.

        The action space samples them, and the conformance suite checks that playing them earns next to nothing.
        """

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Least and greatest of `"value"`, the potential, and of each cost of a move by name."""

    def generate(self, seed: int, *args: Any, **fields: Any) -> State:
        """The start state of the instance given by the seed (any int) and the fields, the same in every process.

        Raises:
            ValueError: A field has an unknown value.
        """

    def parse(self, reply: str) -> Move | Unreadable:
        """Parse the move in a reply, in linear time and without raising; an ambiguous reply is unreadable."""

    def apply(self, state: State, move: Move) -> State:
        """The state after the move. Every move that `parse` returns can be applied to every state."""

    def solved(self, state: State) -> bool:
        """Whether the goal is reached, by the outcome alone."""

    def value(self, state: State) -> float:
        """The potential, from the exact distance: 0 at the start of the instance, 1 at the goal; may be negative."""

    def costs(self, before: State, move: Move, after: State) -> Mapping[str, float]:
        """Penalties of the move by name, each at most 0; names that do not apply are left out."""

    def rules(self) -> str:
        """The game in a few plain sentences, for a system prompt."""

    def reply_format(self) -> str:
        """How a reply must end, in one sentence. An example in it must solve nothing."""

    def show(self, state: State) -> str:
        """Everything that a player needs to know about the state, but not a solution."""

    def describe(self, before: State, move: Move, after: State, *, proposed: bool = False) -> str:
        """A description of the move and its result, or its expected result if only proposed, in a sentence or two."""

    def write(self, move: Move) -> str:
        """The canonical reply that `parse` reads as this move."""

    def outcome(self, state: State) -> Mapping[str, bool | int | float]:
        """What to report about the state; at least `"success"`, unless it is `features.Competitive`."""


class Play(Protocol):
    """The attributes that every workflow's state has."""

    @property
    def task(self) -> Any:
        """The task's state."""

    @property
    def turn(self) -> int:
        """The turn now being played, from 1; once the episode is over, the last turn played."""


WorkflowState = TypeVar("WorkflowState", bound=Play)

Transition = tuple[WorkflowState, Parts, bool, bool]
"""The result of one reply: the next state, the parts of the reward, whether the episode is terminated by the workflow
(the task is solved, or the roles agree on something, right or wrong), and if not, whether no turns are left."""


class Workflow(Protocol[WorkflowState]):
    """The order of the roles, what each observes, and how its reply is used and scored. Pure, like the task.

    A workflow names an agent by its role if the role has one agent (`"planner"`), else by the agent's own name
    (`"debater_1"`): see `Role.members`. That name is the `role` of the methods below and the scope of its rewards.
    """

    @property
    def name(self) -> str:
        """The workflow's name, such as `"draft_plan"`."""

    @property
    def task(self) -> Task[Any, Any]:
        """The task that is played."""

    @property
    def num_turns(self) -> int:
        """The turn budget."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles, in the order in which they act within a turn if it is `cyclic`."""

    @property
    def cyclic(self) -> bool:
        """Whether every agent acts exactly once in each turn, in the order of the roles.

        If not, the play decides who acts next, and the turns of an agent are its own replies.
        """

    def start(self, task_state: Any) -> WorkflowState:
        """The first state of an episode on this instance."""

    def actor(self, state: WorkflowState) -> str:
        """The agent whose reply `step` takes next."""

    def system(self, role: str) -> str:
        """The agent's system prompt, the same in every episode: the rules, its job, how to reply."""

    def observe(self, state: WorkflowState, role: str) -> Observation:
        """The agent's observation in this state, whether or not it is the acting one.

        A `str`; for roles that observe `"parts"` texts and images in order, for those that observe `"messages"` a
        `Prompt`.
        """

    def step(self, state: WorkflowState, reply: str) -> Transition[WorkflowState]:
        """Apply the acting agent's reply. Every string is legal."""

    def oracle(self, state: WorkflowState) -> str:
        """An optimal reply of the acting agent, the same every time. It must never reach an observation."""

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Least and greatest value of each part of a step's reward, by name."""


class ToolResult(NamedTuple):
    """The result of a tool call.

    Args:
        text: What the tool printed or found.
        error: Why the call failed, in a few fixed words; empty if it did not.
        media: Images that it made, such as a plot.
    """

    text: str
    error: str = ""
    media: tuple[Image, ...] = ()


Executor = Callable[[str], ToolResult]
"""Runs a Python program that a model wrote, in isolation; a `Tool` such as `sandbox.ToolExecutor`, or any callable."""


class ToolSpec(NamedTuple):
    """How a tool is called, for prompts and chat templates.

    Args:
        name: The tool's name, a lower-case word such as `"python"`, unique among a role's tools.
        description: What it does and what it returns, in a sentence or two for a model.
        parameters: JSON schema of the arguments, an object schema as in OpenAI's function calling. A tool with one
            required argument of type `string` is called with that string, any other with the arguments as JSON.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


class Tool(Protocol):
    """A tool that roles may call: an interpreter, a search engine, a database.

    A model wrote the request, so every `str` is legal and a call must return whatever is in it: a request that makes
    no sense gives a `ToolResult` with an error, an endless one is stopped. `exec`, `eval` or a bare subprocess are not
    isolated; `pettingllms_envs.sandbox` is.
    """

    @property
    def spec(self) -> ToolSpec:
        """Name, description and arguments."""

    @property
    def digest(self) -> str:
        """Identity of the data that it reads (a corpus, a database, packages), not their path; empty for none.

        Two environments whose tools have the same names and digests are the same environment.
        """

    @property
    def deterministic(self) -> bool:
        """Whether the same request always gives the same result."""

    def __call__(self, request: str) -> ToolResult:
        """The result of a request. It must be safe to call from several threads."""


TOOL_CALLS = ("text", "native")
"""How tools are called: by a fenced block in the reply, or by the chat template."""


def scalars(parts: Parts, roles: Iterable[str], alpha: float) -> tuple[float, ...]:
    """The reward of each role for a step, `alpha * team + local` (arXiv:2510.11062, section 3)."""
    team = alpha * sum(parts[TEAM].values()) if TEAM in parts else 0.0
    rewards = []
    for role in roles:  # a comprehension would take a third longer: it is a call in Python 3.11
        rewards.append(team + sum(parts[role].values()) if role in parts else team)
    return tuple(rewards)


def team_return(task: Task[State, Any], state: State) -> float:
    """The sum of the team rewards of an episode that ends here: the potential, plus 1 if solved."""
    return task.value(state) + task.solved(state)


def play(
    task: Task[State, Move], state: State, reply: str, role: str
) -> tuple[State, bool, dict[str, Mapping[str, float]], str]:
    """Play a role's reply on the task: its state, whether it is solved, the parts of the reward, and words for the
    next prompt.

    The team gets `progress`, the change of the task's potential with gamma 1 (so that no loop can farm it), and
    `success`, 1 when the task is solved. The role gets `format`, -0.2, for an unreadable reply (nothing is played
    then), or the task's costs.
    """
    move = task.parse(reply)
    if isinstance(move, Unreadable):
        feedback = f"Last turn the {role}'s reply was unreadable: {move.reason}. Nothing was played."
        return state, task.solved(state), {role: {"format": UNREADABLE_PENALTY}}, feedback
    after = task.apply(state, move)
    solved = task.solved(after)
    progress = task.value(after) - task.value(state)
    team = {"progress": progress, "success": 1.0} if solved else {"progress": progress}
    parts = {TEAM: team, role: task.costs(state, move, after)}
    return after, solved, parts, f"Last turn the {role} played: {task.describe(state, move, after)}"


def call_tool(tool: Executor, request: str) -> ToolResult:
    """What a tool returns for a request. All calls pass through here.

    Raises:
        TypeError: It is no `ToolResult` of texts and images, which is a mistake of the tool's author: whatever a model
            requests, a tool has a result.
    """
    result = tool(request)
    if not isinstance(result, ToolResult):
        wrong = repr(result)[:80]
    elif not isinstance(result.text, str):
        wrong = f"a ToolResult whose text is {repr(result.text)[:80]}"
    elif not isinstance(result.error, str):
        wrong = f"a ToolResult whose error is {repr(result.error)[:80]}"
    elif not isinstance(result.media, tuple) or not all(isinstance(each, Image) for each in result.media):
        wrong = f"a ToolResult whose media is {repr(result.media)[:80]}"
    else:
        return result
    spec = getattr(tool, "spec", None)  # an executor may be any callable
    name = spec.name if isinstance(spec, ToolSpec) else getattr(tool, "__qualname__", type(tool).__qualname__)
    raise TypeError(
        f"the tool {name!r} returned {wrong}; expected a ToolResult with a str, an error that is a str and media that "
        "are a tuple of Images. Return ToolResult('...'), or ToolResult('', 'why it failed') for a request without a "
        "result."
    )


def best_reply(task: Task[State, Any], state: State) -> str:
    """The reply that plays the task's best move.

    Raises:
        ValueError: The task has no oracle.
    """
    if not isinstance(task, HasOracle):
        raise ValueError(f"the task {task.name!r} has no oracle; expected a method oracle(state). Write one.")
    return task.write(task.oracle(state))


def system_prompt(task: Task[Any, Any], role: Role) -> str:
    """The usual system prompt: rules, job, reply format, without empty ones."""
    reply_format = task.reply_format() if role.reply_format is None else role.reply_format
    return "\n".join(filter(None, (task.rules(), role.job, reply_format)))


def situation(workflow: Workflow[WorkflowState], state: WorkflowState, *notes: str) -> str:
    """The usual prompt: the turn, the task's state, and the notes, without empty ones."""
    text = f"Turn {state.turn} of {workflow.num_turns}.\n{workflow.task.show(state.task)}"
    for note in notes:
        if note:
            text = f"{text}\n{note}"
    return text


def part_ranges(task: Task[Any, Any]) -> dict[str, tuple[float, float]]:
    """Least and greatest of the parts that `play` pays: progress, success, format, and the task's costs."""
    ranges = dict(task.ranges())
    low, high = ranges.pop("value")
    return {"progress": (low - high, high - low), "success": (0.0, 1.0), "format": (UNREADABLE_PENALTY, 0.0), **ranges}


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise ValueError unless the value of a setting or field is one of the choices."""
    if value not in choices:
        expected = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} is {value!r}; expected one of {expected}.{did_you_mean(value, choices)}")


def check_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raise ValueError unless the value is a whole number in a range; `most` is None for no limit."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        expected = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} is {value!r}; expected a whole number {expected}. Choose another.")
