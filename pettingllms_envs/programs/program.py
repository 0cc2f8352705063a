"""A team that exists as a program."""

from __future__ import annotations

import math
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pettingllms_envs.core import TEAM, check_choice
from pettingllms_envs.programs.runs import Target
from pettingllms_envs.programs.session import ProgramState, Session


REMEDY = (
    " A time, an id or a number at random in a request differs from run to run: leave it out, or out of what is "
    'compared, such as by program(..., normalize=lambda text: re.sub("[0-9]+:[0-9]+", "TIME", text)). Agents that are '
    "asked at the same time have a fixed order with parallel=True."
)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program whose calls to a model are decisions of agents.

    Args:
        target: A function of the base URL and the row that returns the reward, perhaps `async`, which runs on a thread
            of this process. Or a command line, a `str` or a list, which is given `OPENAI_BASE_URL`, `OPENAI_API_KEY`,
            `NO_PROXY`, the variables `runs.PASSED` if they are set, the row as a line of JSON on its standard input,
            and sends its reward by `POST {base_url}/reward`, or prints `reward: JSON` as its last line
            (`rewards.CHANNEL`).
        agents: Names of the agents, which the program uses as names of models or in the header `x-agent`; or the agent
            of each name that stands in the program, `{"gpt-5-mini": "writer"}`. With one agent every name is its.
        rewards: When rewards are given: `"end"`, once the program has ended, or `"by step"`, also on the way. Either
            way `POST {base_url}/reward` takes them.
        reward_ranges: The least and the greatest value of each part of a step's reward by name: `{"reward": (0, 1)}`,
            where a plain number for all is the part `"reward"` and an agent's is `"own_reward"`. A reply that makes
            the program fail is then paid the sum of the least ones in a training (`crash_reward`).
        parallel: Whether to wait for calls at the same time from the beginning. If not, the runs wait once the calls
            of a run were open at the same time; it is needed where the order must be the same in several processes, or
            in a run that is resumed.
        timeout: Most seconds between a reply and the next call or the end; then the program has failed.
        max_calls: Most calls of an episode; a program that makes more has failed.
        success: An episode in which every agent's return is at least that is a success. `None`: returns do not say so.
        variables: Names of further variables of the environment that a command line is given.
        normalize: Takes out of the text of a request what differs from run to run, such as a time. Two runs of an
            episode are compared, and calls at the same time put in order, by what it returns; models are shown the
            request as it is.
        reset_options: Names of the fields that rows have besides `seed`, with legal values, () if open. `None`: any.
        name: The environment's name. Empty: that of the function.
        state: What runs have found out; copies of a program share it.
    """

    target: Target
    agents: Sequence[str] | Mapping[str, str]
    rewards: Literal["end", "by step"] = "end"
    reward_ranges: Mapping[str, tuple[float, float]] | None = None
    parallel: bool = False
    timeout: float = 600.0
    max_calls: int = 256
    success: float | None = 1.0
    variables: Sequence[str] = ()
    normalize: Callable[[str], str] | None = None
    reset_options: Mapping[str, Sequence[Any]] | None = None
    name: str = ""
    state: ProgramState = field(default_factory=ProgramState, repr=False, compare=False)

    def __post_init__(self) -> None:
        words = self.target if isinstance(self.target, str | Sequence) else ()
        if not callable(self.target) and not (words and all(isinstance(each, str) for each in words)):
            raise TypeError(
                f"program got the target {self.target!r:.80}; expected a function of base_url and row, or a command "
                "line."
            )
        listed = [*self.agents, *(self.agents.values() if isinstance(self.agents, Mapping) else ())]
        if isinstance(self.agents, str) or not listed or not all(isinstance(each, str) for each in listed):
            raise ValueError(
                f"program got agents={self.agents!r}; expected their names, agents=('writer', 'critic'), or the agent "
                "of each name that stands in the program, agents={'gpt-5-mini': 'writer'}."
            )
        for agent in self.names.values():
            if not agent.isidentifier() or agent == TEAM:
                raise ValueError(
                    f"program got the agent {agent!r}; expected a name of letters, digits and _ but not {TEAM!r},"
                    " which stands for all agents where rewards are named. Rename it."
                )
        check_choice("rewards", self.rewards, ("end", "by step"))
        for name, (least, most) in (self.reward_ranges or {}).items():
            if not -math.inf < least <= most < math.inf:
                raise ValueError(
                    f"program got reward_ranges with {name!r}: {(least, most)}; expected finite numbers, the least "
                    "first, such as (0.0, 1.0)."
                )
        if isinstance(self.max_calls, bool) or not isinstance(self.max_calls, int) or self.max_calls < 1:
            raise ValueError(f"program got max_calls={self.max_calls!r}; expected a whole number, 1 or more.")
        if not self.timeout > 0:
            raise ValueError(f"program got timeout={self.timeout!r}; expected seconds, more than 0.")
        if self.parallel:
            self.state.found_parallel()

    @property
    def names(self) -> dict[str, str]:
        """The agent of each name that the program may ask for, its own among them."""
        given = dict(self.agents) if isinstance(self.agents, Mapping) else {}
        agents = given.values() or self.agents
        return given | {agent: agent for agent in agents if agent not in given}

    @property
    def words(self) -> str:
        if callable(self.target):
            return f"the program {getattr(self.target, '__qualname__', repr(self.target))}"
        return f"the program {self.target if isinstance(self.target, str) else shlex.join(self.target):.80}"

    def warn(self, session: Session) -> None:
        """Warn once, at the end of the first episode, of what the program asks for in vain, and of silent agents."""
        if self.state.has_ended:
            return
        self.state.has_ended = True
        if session.asked_for:
            asked = "; ".join(
                f"{agent} {', '.join(f'{name}={value!r}' for name, value in own.items())}"
                for agent, own in sorted(session.asked_for.items())
            )
            warnings.warn(
                f"{self.words} asks for settings of the sampling ({session.hidden(asked)}), which are replaced: "
                "those of the trainer hold, or of the evaluation. Set them there.",
                stacklevel=2,
            )
        if silent := sorted(set(self.names.values()) - session.callers):
            warnings.warn(
                f"{', '.join(silent)} made no call in the first episode of {self.words}. If the program asks it in "
                "every episode, its calls go elsewhere, and may be paid there: give its client base_url, and the "
                "agent's name as the model, or in the header x-agent.",
                stacklevel=2,
            )
