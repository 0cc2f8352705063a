"""What a rollout leaves behind: plain, frozen data, the only thing that passes between the rooms of this package.

An *episode* is one run of one instance. At each of its *decisions* one agent saw one prompt, its policy sampled
*candidates*, and one of them was played on. The candidates of a decision are AT-GRPO's group (arXiv:2510.11062, 3.2).

    Decision(instance=3, episode=0, agent="planner_0", turn=1, candidates=(Candidate(reward=1.5, ...), ...), chosen=0)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable


Message = dict[str, str]
"""A chat message: `{"role": "system" | "user" | "assistant", "content": ...}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a policy sampled after one prompt.

    Args:
        ids: The sampled token ids, the end-of-turn token included where one was sampled. Empty only where an API
            partner spoke.
        text: The same, decoded without special tokens: the action given to the environment.
        logprobs: Log-probability of each id under the sampler, or `None` where the sampler does not say.
    """

    ids: tuple[int, ...]
    text: str
    logprobs: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A completion, played on a branch of its own.

    Args:
        completion: What was sampled.
        reward: The acting agent's reward for the step, as the environment gave it (`alpha * team + local`).
        parts: The reward's named parts (`infos[agent]["rewards"]`), empty where the environment names none.
        team: Names of those parts that all agents share (`infos[agent]["team_rewards"]`).
        state: Digest of the state that the branch reached, or `None` where the environment has no `state_hash`.
        continuations: The acting agent's return after this step, once for each time that the branch was played to its
            end by the current policies; empty where none was.
    """

    completion: Completion
    reward: float
    parts: Mapping[str, float] = field(default_factory=dict)
    team: Collection[str] = ()
    state: str | None = None
    continuations: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One agent's choice: one prompt, K candidates (`sampling="tree"`) or one (`sampling="parallel"`).

    Args:
        instance: Index of the data set row within the rollout.
        episode: Index of the episode within its instance: 0 in a tree, 0..K-1 in parallel sampling.
        agent: Name of the agent that acts.
        turn: How many decisions this agent had taken before in the episode, from 0.
        prompt: The messages shown to the agent.
        prompt_ids: The prompt's token ids, as the sampler got them.
        candidates: All that was sampled for the prompt.
        chosen: Index of the candidate that was played on.
        state: Digest of the state in which the agent acted, or `None`.
        environment: Name of the environment, where a run has several; else empty.
        episode_return: Sum of the agent's rewards over the whole episode, along the chosen branch.
        return_to_go: Sum of the agent's rewards from this step to the end, along the chosen branch.
    """

    instance: int
    episode: int
    agent: str
    turn: int
    prompt: Sequence[Message]
    prompt_ids: tuple[int, ...]
    candidates: tuple[Candidate, ...]
    chosen: int
    state: str | None = None
    environment: str = ""
    episode_return: float = 0.0
    return_to_go: float = 0.0

    @property
    def played(self) -> Candidate:
        """The candidate that was played on."""
        return self.candidates[self.chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One run of one instance, along the chosen branches.

    Args:
        instance: Index of the data set row within the rollout.
        episode: Index of the episode within its instance.
        decisions: In the order in which they were taken.
        returns: Sum of rewards of each agent.
        outcome: The environment's own account of how it ended (`infos[agent]["outcome"]`), for instance
            `{"success": True, "regret": 0.0}`; empty where it gives none.
        environment: Name of the environment, where a run has several; else empty.
    """

    instance: int
    episode: int
    decisions: tuple[Decision, ...]
    returns: Mapping[str, float]
    outcome: Mapping[str, Any]
    environment: str = ""


def role_of(agent: str) -> str:
    """`"planner_0"` -> `"planner"`; a name without a number is its own role."""
    return re.sub(r"_\d+$", "", agent)


@runtime_checkable
class Stateful(Protocol):
    """What a part of a run with a memory offers, so that a checkpoint holds it.

    The state is made of numbers, strings, tensors, lists and mappings, so that it loads with `weights_only=True`.
    That of a credit scheme must be fit for JSON.
    """

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


# ---- Between rollout and engines ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """`num_candidates` completions are wanted of the policy of `agent`, after `prompt`.

    `prompt_ids` are its token ids where they are known, because it goes on from tokens that were sampled: they are
    taken as they are. Where there are none, the prompt is written in the policy's chat template.
    """

    agent: str
    prompt: Sequence[Message]
    num_candidates: int
    prompt_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampled:
    """The answer to a request: the prompt's ids as the model got them, and the completions."""

    prompt_ids: tuple[int, ...]
    completions: tuple[Completion, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """What an engine thinks of a text, at temperature 1, whatever it samples at.

    Args:
        place: Which replica of the engine: its url, or "this process".
        weights: What the engine calls the weights that it used.
        logprobs: Log-probability of each token but the first, given those before it.
    """

    place: str
    weights: str
    logprobs: tuple[float, ...]


Sample = Callable[[Sequence[Request]], Sequence[Sampled]]
"""Completions for a batch of requests, in their order."""


class Engine(Protocol):
    """Samples for many episodes at once.

    A ticket names an episode of the rollout: its requests come one after the other under the same number, the next
    when the last is answered. It follows from the episode's place alone, and may seed what is sampled for it.
    """

    @property
    def in_waves(self) -> bool:
        """Whether the next `step` answers all that the engine was given in one go, so that it pays to wait for every
        instance first."""
        ...

    def submit(self, ticket: int, request: Request) -> None:
        """Take a request; nothing is sampled yet."""
        ...

    def step(self) -> Sequence[tuple[int, Sampled]]:
        """Work a while on the requests taken. Returns those now answered, perhaps none."""
        ...


# ---- Between rollout and rewards ------------------------------------------------------------------------------------


Row = Mapping[str, Any]
"""A row of the data set: `seed` and whatever the environment's `reset(options=...)` takes."""


@dataclass(frozen=True, slots=True)
class PendingDecision:
    """What a reward function of the user's may look at: a decision whose candidates are sampled but not yet judged.

    Args:
        row: The instance.
        agent: Who acts.
        turn: How many decisions it had taken before.
        prompt: What it was shown.
        completions: What its policy sampled.
        is_text: What it was shown is a `str`, which TRL calls a standard prompt, and no earlier turn stands before it.
    """

    row: Row
    agent: str
    turn: int
    prompt: Sequence[Message]
    completions: Sequence[Completion]
    is_text: bool = False


Judge = Callable[[PendingDecision], Sequence[Mapping[str, float]]]
"""For each completion of a choice, named rewards to be added to the environment's."""
