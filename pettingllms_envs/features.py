"""Optional features of tasks and workflows: what an environment may offer beyond `pettingllms_envs.core`.

A class has a feature if it has its members; none of these classes is inherited from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable


class DataSet(NamedTuple):
    """The source of a task's problems.

    Args:
        name: Argument of `datasets.load`: `"own:aime"` for rows of this package, a file, or an id of the Hub.
        stands_for: For rows written for this package, the benchmark that they imitate, such as `"AIME"`: results on
            them are not results on the benchmark. Empty for all other data.
        remedy: How to play the benchmark itself, such as `"--set year=2024 for the exam"`; may be empty.
    """

    name: str
    stands_for: str = ""
    remedy: str = ""

    @property
    def note(self) -> str:
        """A note about the problems for every report; empty if the name suffices."""
        return f"problems written for this package, not {self.stands_for}" if self.stands_for else ""


@runtime_checkable
class OnDataSet(Protocol):
    """An optional feature of a task on a data set: the data set."""

    @property
    def data_set(self) -> DataSet:
        """The source of the problems."""


@runtime_checkable
class HasOracle(Protocol):
    """An optional feature of a task: it can solve itself.

    An oracle gives the environment demonstrations, an upper bound for its rewards, and a scripted agent. An open-ended
    task has none.
    """

    def oracle(self, state: Any) -> Any:
        """An optimal move, the same every time. It must never reach an observation."""


@runtime_checkable
class HasLeastAlpha(Protocol):
    """An optional feature of a workflow: a weight of the team's rewards below which its costs exceed a success."""

    @property
    def least_alpha(self) -> float:
        """`alpha` must be greater than it."""


@runtime_checkable
class HasBots(Protocol):
    """An optional feature of a workflow: players that are written as rules, as baselines and as partners.

    Unlike an oracle, a bot acts on what its agent is shown.
    """

    @property
    def bots(self) -> Sequence[str]:
        """Their names."""

    def bot(self, state: Any, name: str) -> str:
        """The reply of a bot for the acting agent, the same every time."""


@runtime_checkable
class HasBotRoles(Protocol):
    """An optional feature of a workflow with bots that cannot play every role."""

    @property
    def bot_roles(self) -> Sequence[str]:
        """The roles that they play."""


@runtime_checkable
class HasSimulator(Protocol):
    """An optional feature of a task: a simulator, whose version decides what a move leads to."""

    @property
    def simulator_build(self) -> str:
        """The version, a setting of the task, which records have although nobody gives it; empty for none."""


@runtime_checkable
class HasAttacks(Protocol):
    """An optional feature of a workflow: hostile players of its own, none of whom may gain."""

    @property
    def attacks(self) -> Mapping[str, Mapping[str, Callable[[Any, Any], str]]]:
        """By role and name: the reply of the acting agent, given the workflow and its state."""


@runtime_checkable
class HasDigest(Protocol):
    """An optional feature of a task: a digest of its state that is faster than `repr`, for states of a megabyte."""

    def digest(self, state: Any) -> str:
        """A digest of everything that determines the rest of the game, the same in every process."""


@runtime_checkable
class Competitive(Protocol):
    """An optional feature of a task: its agents have goals of their own, and are paid by their own scopes."""

    @property
    def zero_sum(self) -> bool:
        """Whether the agents' returns add up to 0 in every episode; if not, it is a game of mixed motives."""


@runtime_checkable
class ChangingTeam(Protocol):
    """An optional feature of a workflow: not all agents take part in every instance, or at every time.

    An agent that is no longer present is terminated and takes its dead step. It cannot come back: PettingZoo wants a
    new agent to have a new name.
    """

    def present(self, state: Any) -> Sequence[str]:
        """The agents that take part, as the workflow names them; the one that `actor` names is among them."""


@runtime_checkable
class HasOutcome(Protocol):
    """An optional feature of a workflow: figures of its own in the outcome, such as the length of messages."""

    def outcome(self, state: Any) -> Mapping[str, bool | int | float | str]:
        """What to report in addition to the task's outcome."""


@runtime_checkable
class HasHistories(Protocol):
    """An optional feature of a workflow: some of its states are histories, so that two with one future may differ.

    `TextEnv.metadata["state"]` is then `"history"`, and whatever compares states does not take such an environment.
    """

    def is_history(self, state: Any) -> bool:
        """Whether this state, and so every one of the episode, is."""


@runtime_checkable
class ShowsEarlier(Protocol):
    """An optional feature of a workflow: an agent that is not to act observes what it was shown before."""

    def shown(self, state: Any, role: str) -> Any:
        """The task's state that the agent's observation shows."""


@runtime_checkable
class HasStateForm(Protocol):
    """An optional feature of a workflow: its states were once written in another way, so that digests were others."""

    @property
    def state_form(self) -> int:
        """Increased with each such change; 1 for workflows without it. Digests of two forms are not compared."""


@runtime_checkable
class LeavesRewards(Protocol):
    """An optional feature of a workflow: what its agents are paid is left to a trainer's reward functions.

    They judge the replies that the workflow says, and what they give is the whole team's. With any other workflow they
    judge every reply, for its agent alone.
    """

    @property
    def leaves_rewards(self) -> bool:
        """Whether it does."""

    def judged(self, state: Any) -> bool:
        """Whether the reply that led to this state is judged."""


@runtime_checkable
class RequiresOptions(Protocol):
    """An optional feature of a task: instance fields that rows of a training must have, as no seed stands for them."""

    @property
    def required_options(self) -> Sequence[str]:
        """Their names."""


@runtime_checkable
class HasBonuses(Protocol):
    """An optional feature of a workflow: parts of the team's reward beside the potential, such as for agreement.

    All other parts of the team add up, over an episode, to the change of the task's potential (and 1 for success), so
    that no way of playing can farm them. The conformance suite checks that.
    """

    @property
    def bonuses(self) -> Sequence[str]:
        """Names of the parts that do not."""


@runtime_checkable
class HasChannel(Protocol):
    """An optional feature of a workflow: some replies are messages to other agents, through a channel."""

    @property
    def channel(self) -> Any:
        """The channel, a `pettingllms_envs.teams.channels.Channel`."""
