"""What the checks read: a run, its episodes, their decisions and candidates. What is not recorded is `None`.

Of a decision with several candidates, these are the group; of decisions with a single one, the episodes of an instance
are compared (`sampling="parallel"`, samples of a benchmark).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Literal


Sums = Literal["siblings", "turn", "episodes", "instance"]
"""Over which peers, of one agent and instance, a credit scheme's advantages sum to zero: the candidates of a decision,
all decisions at one turn, the episodes (each counted once), or all decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A reply that was sampled.

    Args:
        reply: Its text, or its token ids: equal where the replies are.
        advantage: As trained on; `None` also where the candidate was not trained on.
        is_cut_off: Whether it reached its greatest length.
        prompt: What it was sampled after: the prompt's text, its ids, or a digest.
        agent: Whose it is; `None`: the decision's.
        turn: When it was sampled; `None`: the decision's.
        instance: Of which instance; `None`: the episode's.
        sample: Of which of the instance's episodes; `None`: this one.
    """

    reply: Hashable
    reward: float | None = None
    advantage: float | None = None
    tokens: int | None = None
    is_cut_off: bool | None = None
    state: str | None = None
    is_chosen: bool | None = None
    prompt: Hashable | None = None
    agent: str | None = None
    turn: int | None = None
    instance: Hashable | None = None
    sample: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One agent's choice among at least one candidate.

    Args:
        turn: Of the agent in the episode; `None` where it is not known.
        learns: Whether the agent is trained on it; `None` where it is not known.
        reply: What was played; `None`: the chosen candidate's reply, by construction.
    """

    agent: str
    candidates: tuple[Candidate, ...]
    turn: int | None = None
    state: str | None = None
    system: str | None = None
    policy: str | None = None
    learns: bool | None = None
    reply: Hashable | None = None

    @property
    def chosen(self) -> Candidate | None:
        if len(self.candidates) == 1:
            return self.candidates[0]
        return next((each for each in self.candidates if each.is_chosen), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The episodes of a generation, which a training wrote at once: how many, and how many the run had before."""

    before: int
    episodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Decisions in the order in which they were taken.

    Args:
        instance: What tells instances apart within a step of the training.
        step: Of the training, or `None`: nothing was trained.
        result: Mean of the agents' returns, or `None`.
        error: The kind of the error that it ended with, or `None`.
        is_whole: Whether all its decisions are here, in order; those of a table are not.
        reward_sums: The sum of an agent's rewards, of agents whose reward is recorded for every step.
        digest: Of the row, as it was written with it, or `None`.
        is_changed: Whether the row has another digest now; `None` where none was written.
        part: Which of the run's generations it belongs to, or `None`.
        continued: Decisions inside continuations that were trained on.
        is_history: Whether its states are histories, so that replies that mean the same lead to different ones.
    """

    instance: Hashable
    decisions: tuple[Decision, ...]
    step: int | None = None
    sample: int = 0
    where: str = ""
    result: float | None = None
    success: bool | None = None
    error: str | None = None
    is_whole: bool = True
    returns: Mapping[str, float | None] = field(default_factory=dict)
    reward_sums: Mapping[str, float] = field(default_factory=dict)
    digest: str | None = None
    is_changed: bool | None = None
    part: Part | None = None
    continued: tuple[Decision, ...] = ()
    is_history: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a run says that it has written, elsewhere than in its rows.

    Args:
        episodes: How many episodes without an error, at least: a run that was killed may have written more.
        digest: SHA-256 of their rows' digests, one after the other, 64 hex digits; `None` where it is not known.
    """

    episodes: int
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known of the run as a whole.

    Args:
        kind: `"rollouts"` of a training, `"bench"`, or `"completions"`, a table of TRL's.
        is_tree: Whether a group is the candidates of one decision; `None` where it is not known.
        num_candidates: Size of a group; `None` where it is not known.
        sums: See `Sums`; `None` where the scheme promises none.
        credit: Name of the credit scheme, or `None` where it is not recorded.
        judges_own_step: Whether the scheme judges candidates by their own step's reward alone; `None`: not known.
        scale: What it divides by: the deviation of the `"group"` or of the `"batch"`, the group's `"mean"`, nothing
            (`"none"`); `None` where it is not known.
        temperature: At which replies were sampled; `None` where it is not known.
        written: What it says that it has written; `None` where it does not.
    """

    kind: str
    is_tree: bool | None = None
    num_candidates: int | None = None
    sums: Sums | None = None
    credit: str | None = None
    policies: Mapping[str, str] = field(default_factory=dict)
    judges_own_step: bool | None = None
    scale: str | None = None
    temperature: float | None = None
    written: Written | None = None

    @property
    def is_training(self) -> bool:
        return self.kind != "bench"
