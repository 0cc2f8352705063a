"""The records of a rollout: plain, frozen values that are passed between the sub-packages, and the protocols of
engines (`Engine`, `WeightSync`).

An *episode* is one run of one instance. At each of its *decisions* one agent saw one prompt, its policy sampled
*candidates*, and one of them was played on. The candidates of a decision are AT-GRPO's group (arXiv:2510.11062, 3.2).

    Decision(instance=3, episode=0, agent="planner_0", turn=1, candidates=(Candidate(reward=1.5, ...), ...), chosen=0)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from statistics import fmean
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from pettingllms_envs import observations
from pettingllms_envs.agent_names import role_of as role_of


Message = observations.Message
"""A chat message: `{"role": "system" | "user" | "assistant" | "tool", "content": ...}`, see there."""

Tools = Sequence[Mapping[str, Any]]
"""Tools that a model may call, in OpenAI's form, see `pettingllms_envs.observations.Prompt`."""


@dataclass(frozen=True)
class Prompt:
    """What a model is given before it replies: messages, and the token ids that they became.

    Args:
        messages: Chat messages, the last one a user's or a tool's.
        ids: Token ids as the model receives them. Empty before the prompt is encoded, and for agents behind an API.
    """

    messages: Sequence[Message]
    ids: tuple[int, ...] = ()
    images: tuple[observations.Image, ...] = ()
    tools: Tools = ()

    @cached_property
    def key(self) -> Hashable:
        """Equal for prompts that are the same to a model: by their ids, or by their texts if they are not encoded; and
        by their images, whose places have equal ids whatever they show."""
        digests = tuple(map(attrgetter("digest"), self.images))
        return self.ids or (tuple(map(_key_of, self.messages)), repr([*self.tools])), digests


def _key_of(message: Message) -> Hashable:
    content = message["content"]
    return (message["role"], content) if len(message) == 2 and isinstance(content, str) else repr(message)


class EnvironmentFailure(Exception):
    """The environment raised or timed out. This is no fault of the model: every string should be a legal action."""


class SamplingFailure(RuntimeError):
    """An engine could not answer one request, such as one that a filter refuses. The instance is played again."""

    kind = "unreachable"  # of the error, where a benchmark asks the engine


Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a policy sampled after one prompt.

    Args:
        ids: The sampled token ids, with the end-of-turn token if one was sampled. Empty only for agents behind an API.
        text: The same, decoded without special tokens: the action given to the environment.
        logprobs: Log-probability of each id under the sampler, or `None` if the sampler does not report them.
        finish: Why it ended: `"stop"` with an end-of-turn token or a stop word, `"length"` if it was cut off; `None`
            if the sampler does not say.
    """

    ids: tuple[int, ...]
    text: str
    logprobs: tuple[float, ...] | None = None
    finish: Finish | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A completion, played on a branch of its own.

    Args:
        reward: The acting agent's reward for the step, as the environment gave it (`alpha * team + local`).
        parts: The reward's named parts (`infos[agent]["rewards"]`), empty if the environment names none.
        team: Names of the parts that all agents share (`infos[agent]["team_rewards"]`).
        state: Digest of the state that the branch reached, or `None` if the environment has no `state_hash`.
        continuations: The acting agent's return after this step, one for each time that the branch was played to its
            end by the current policies; empty if it was not.
        reading: How the completion was read as a move, see `episodes.observing.reading_of`; `None`: not known.
    """

    completion: Completion
    reward: float
    parts: Mapping[str, float] = field(default_factory=dict)
    team: Collection[str] = ()
    state: str | None = None
    continuations: tuple[float, ...] = ()
    reading: str | None = field(default=None, compare=False)

    @property
    def value(self) -> float:
        """`reward` plus the mean of `continuations`: a sampled estimate of the candidate's action value."""
        assert self.continuations, "a candidate that was not continued has no value"
        return self.reward + fmean(self.continuations)


Choose = Literal["reward", "value", "random"]
"""By what the candidate that is played on is chosen: the reward of its step, or its `Candidate.value`."""


class ContinuationPlace(NamedTuple):
    """Which continuation of an episode it is.

    Args:
        decision: Index of the episode's decision whose candidate is continued.
        repeat: From 0 to `num_continuations` - 1.
    """

    decision: int
    candidate: int
    repeat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One agent's choice: one prompt, K candidates (`sampling="tree"`) or one (`sampling="parallel"`).

    Args:
        instance: Index of the data set row within the rollout.
        episode: Index of the episode within its instance: 0 in a tree, 0..K-1 in parallel sampling.
        turn: How many decisions this agent had taken before in the episode, from 0.
        prompt: What the agent was shown, as the sampler received it.
        state: Digest of the state in which the agent acted, or `None`.
        environment: Name of the environment in a run with several; else empty.
        episode_return: Sum of the agent's rewards over the whole episode, along the chosen branch.
        return_to_go: Sum of the agent's rewards from this step to the end, along the chosen branch.
        rewards: Of the step along the chosen branch, by agent; empty if they are not known.
        policy_version: The optimizer steps that its policy's weights had taken when they sampled the candidates; 0 of
            a policy that is not trained.
        continuation: The continuation in which it was taken, where it lies off the chosen branches of its episode: it
            has one candidate, and its returns are those of the continuation. `None`: it is the episode's own.
        success: Whether its episode, or its continuation, ended in success (`Episode.outcome`); `None`: not known.
        phase: What `infos[agent]["phase"]` said when the agent acted; `None` if it said nothing.
    """

    instance: int
    episode: int
    agent: str
    turn: int
    prompt: Prompt
    candidates: tuple[Candidate, ...]
    chosen: int
    state: str | None = None
    environment: str = ""
    episode_return: float = 0.0
    return_to_go: float = 0.0
    rewards: Mapping[str, float] = field(default_factory=dict)
    policy_version: int = 0
    continuation: ContinuationPlace | None = None
    success: bool | None = None
    phase: Hashable = None

    @property
    def played(self) -> Candidate:
        return self.candidates[self.chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One run of one instance, along the chosen branches.

    Args:
        episode: Index of the episode within its instance.
        outcome: The environment's description of how the episode ended (`infos[agent]["outcome"]`), for instance
            `{"success": True, "regret": 0.0}`; empty if it gives none.
        environment: Name of the environment in a run with several; else empty.
        continuations: Decisions of its candidates' continuations, ordered by `Decision.continuation`; empty: not kept.
    """

    instance: int
    episode: int
    decisions: tuple[Decision, ...]
    returns: Mapping[str, float]
    outcome: Mapping[str, Any]
    environment: str = ""
    continuations: tuple[Decision, ...] = ()


@runtime_checkable
class Stateful(Protocol):
    """A part of a run with a state that checkpoints save.

    The state consists of numbers, strings, tensors, lists and mappings, so that it loads with `weights_only=True`.
    That of a credit scheme must be JSON-serializable.
    """

    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


# ---- Between rollout and engines ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """A request for `num_candidates` completions of `prompt` by the policy of `agent`.

    `prompt.ids` are given if the prompt continues sampled tokens, and are then used unchanged. If they are empty, the
    prompt is encoded with the policy's chat template. `seed` is that of the first candidate; if there is none, the
    engine has its own. `limits` are those that the observation sets to each completion, beside the policy's.
    """

    agent: str
    prompt: Prompt
    num_candidates: int
    seed: int | None = None
    limits: observations.Limits = observations.Limits()  # noqa: RUF009  # frozen


@dataclass(frozen=True, slots=True)
class Sampled:
    """The answer to a request.

    Args:
        prompt: The request's, with its ids as the model got them.
    """

    prompt: Prompt
    completions: tuple[Completion, ...]
    policy_version: int = 0


@dataclass(frozen=True, slots=True)
class Scored:
    """An engine's log-probabilities of a text at temperature 1, whatever its sampling temperature.

    Args:
        place: The replica of the engine: its url, or "this process".
        weights: The engine's name for the weights that it used.
        logprobs: Log-probability of each token but the first, given those before it.
    """

    place: str
    weights: str
    logprobs: tuple[float, ...]


Answer = Sampled | SamplingFailure
Sample = Callable[[Sequence[Request]], Sequence[Answer]]
"""Samples completions for a batch of requests, in their order."""

NEVER = 10**9
"""`max_steps` of a run that something else ends."""
POLL_SECONDS = 0.02
"""How long `Engine.step` waits for answers from elsewhere before environments are stepped again."""


class Engine(Protocol):
    """Samples for many episodes at once: requests go in with tickets, answers come out as they are ready.

    A ticket identifies an episode of the rollout: its requests are submitted one after the other under the same
    number, each after the previous one was answered. It depends on the episode's place alone, and may seed its
    samples.
    """

    @property
    def is_batched(self) -> bool:
        """Whether the next `step` answers all requests in one batch, so that it pays to collect those of every
        instance first."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether answers are computed elsewhere, so that `step` only looks whether any have arrived."""
        ...

    def rollout(self, name: str) -> AbstractContextManager[None]:
        """A context outside of which no request is answered; those left at its end are dropped.

        Args:
            name: Seeds what is sampled, where the engine has seeds of its own.
        """
        ...

    def submit(self, ticket: int, request: Request) -> None:
        """Queue a request; nothing is sampled yet."""
        ...

    def step(self, timeout: float = POLL_SECONDS) -> Sequence[tuple[int, Answer]]:
        """Work on the queued requests for a while. Returns those that were answered, possibly none.

        Args:
            timeout: Seconds that a remote engine may wait for the first answer; any other ignores it.
        """
        ...


NamedTensors = Iterable[tuple[str, Any]]
"""Pairs of a name and a tensor. Holding on to one after the next is asked for costs its memory."""


class WeightSync(Protocol):
    """The weights of an engine that holds its own copy of policies: how they follow the trainer's.

    With several processes each calls these methods at the same point, with the same arguments.
    """

    @property
    def can_load_base(self) -> bool:
        """Whether the model that the policies stand on can be replaced by `load_base`."""
        ...

    @property
    def versions(self) -> Mapping[str, int]:
        """The version of each policy whose weights were loaded; the others are as the engine found them on disk."""
        ...

    def load(self, policy: str, state: NamedTensors, version: int) -> None:
        """Sample from these weights from now on for a policy. Not while requests are in flight.

        Args:
            state: Pairs of a name and a tensor: of an adapter those of `peft.get_peft_model_state_dict(model,
                adapter_name=...)`; of a whole model those of `model.state_dict()`, where tied weights stand under each
                of their names. Each tensor is whole, and made when it is asked for: where weights are sharded it is
                gathered from all processes, which ask for all of them in the same order.
            version: Higher than any before it.
        """
        ...

    def load_base(self, state: NamedTensors, version: int) -> None:
        """Replace the model that the engine's policies stand on. Not while requests are in flight.

        Args:
            state: As of a whole model in `load`, without adapters.
            version: Higher than any before it.
        """
        ...

    def score(self, policy: str, prompt: Prompt) -> Sequence[Scored]:
        """What each replica thinks of a text, with the weights that it samples from. Not while requests are in flight.

        Args:
            prompt: The text, with its ids, which are cut where the engine's context ends.
        """
        ...


class PolicyEngine(Engine, WeightSync, Protocol):
    """An engine with weights of its own."""


# ---- Between trainer and rollout ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutOptions:
    """How rows are played: the settings of these names of [`MultiAgentGRPOConfig`], which says what they do.

    Args:
        num_candidates: K, there `num_generations`: candidates of a decision (`sampling="tree"`), or episodes of a row.
        default_env_seed: Seed of the environment for rows without one.
        max_envs: Most environments in play at the same time, and so left in a pool. `None`: all episodes; with a tree
            K times as many, so that the engine is as busy with continuations as with candidates, and replays have
            spare environments. Stepping candidates concurrently adds at most `num_threads` environments.
        num_threads: 0: environments are stepped on the caller's thread in a fixed order, so that an engine with a
            single random number generator is reproducible.

    Raises:
        ValueError: `env_timeout` without threads; `choose="value"` without a tree or without continuations; or
            `choose="random"` without a tree.
    """

    sampling: Literal["tree", "parallel"]
    num_candidates: int
    num_continuations: int = 0
    choose: Choose = "reward"
    keep_continuations: bool = False
    default_env_seed: int = 0
    max_envs: int | None = None
    max_turns: int | None = None
    num_threads: int = 0
    env_timeout: float | None = None
    crash_reward: float | None = None

    def __post_init__(self) -> None:
        if self.env_timeout is not None and not self.num_threads:
            raise ValueError(
                f"env_timeout={self.env_timeout} with num_threads=0, expected threads: without them nothing can "
                "interrupt a call of the environment. Set num_threads=8, say, or leave env_timeout out."
            )
        if self.choose == "value" and not (self.sampling == "tree" and self.num_continuations):
            raise ValueError(
                f"choose='value' with sampling={self.sampling!r} and num_continuations={self.num_continuations}, "
                "expected a tree with continuations of each candidate, whose mean return is its value. Set "
                "num_continuations=1, or choose='reward'."
            )
        if self.choose == "random" and self.sampling != "tree":
            raise ValueError(
                f"choose='random' with sampling={self.sampling!r}, expected 'tree': elsewhere a decision has one "
                "candidate. Set sampling='tree', or choose='reward'."
            )

    @property
    def num_siblings(self) -> int:
        """Candidates of a decision."""
        return self.num_candidates if self.sampling == "tree" else 1

    @property
    def num_episodes(self) -> int:
        return 1 if self.sampling == "tree" else self.num_candidates

    @property
    def rows_at_once(self) -> int | None:
        """Rows whose episodes, and whose candidates' continuations, `max_envs` has room for. `None`: all rows."""
        if self.max_envs is None:
            return None
        is_wide = self.sampling == "parallel" or self.num_continuations > 0
        return max(1, self.max_envs // self.num_candidates) if is_wide else self.max_envs


@dataclass(frozen=True, slots=True)
class Rollout:
    """The result of playing rows.

    Args:
        episodes: In the order of rows, then of episodes; none of an instance that was dropped.
        dropped: Why an instance was dropped, by its index: its environment failed three times.
        retried: How often an instance was restarted in a fresh environment after a failure.
        timed_out: How often an environment exceeded `env_timeout` and was abandoned on its thread.
        crashed: The error of each reply that crashed its environment and was given `crash_reward`.
        num_sampled_tokens: In all completions, including continuations and restarted or dropped instances.
        num_failed: Episodes, and their restarts, that an environment or an engine did not play to an end.
    """

    episodes: list[Episode]
    dropped: Mapping[int, str] = field(default_factory=dict)
    retried: int = 0
    timed_out: int = 0
    crashed: Sequence[str] = ()
    num_sampled_tokens: int = 0
    num_failed: int = 0


# ---- Between rollout and rewards ------------------------------------------------------------------------------------


DataRow = Mapping[str, Any]
"""A row of the data set: `seed` and whatever the environment's `reset(options=...)` takes."""


@dataclass(frozen=True, slots=True)
class PendingDecision:
    """A decision whose candidates are sampled but not scored yet, as passed to the user's reward functions.

    Args:
        turn: How many decisions it had taken before.
        is_text: Whether the observation is a `str`, a standard prompt in TRL's terms, without earlier turns before it.
        is_of_team: Whether the environment says that it is judged, for all agents (`infos[agent]["judged"]`).
    """

    row: DataRow
    agent: str
    turn: int
    prompt: Prompt
    completions: Sequence[Completion]
    is_text: bool = False
    is_of_team: bool = False


Judge = Callable[[PendingDecision], Sequence[Mapping[str, float]]]
"""Returns, for each completion of a decision, named rewards to add to the environment's."""
