"""`RolloutCollector`: rows of the data set to a `Generation`, the episodes of one round of training.

Rows are played by the policies as they are now (`EpisodeSource`), shared out among the processes (`RowSharing`);
filters say which decisions are trained on, and further rows are played for what they drop. The result is a
`Generation`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from accelerate import Accelerator

from pettingllms_trl.credit.reward_functions import RewardScores
from pettingllms_trl.credit.selection import Selection, continuations_of, select, shifted
from pettingllms_trl.policies.routing import Policy
from pettingllms_trl.processes.on_all import on_all
from pettingllms_trl.processes.row_sharing import RowSharing
from pettingllms_trl.records import Completion, DataRow, Decision, Engine, Episode, PendingDecision
from pettingllms_trl.rollout import Rollout, RolloutOptions, merge
from pettingllms_trl.rollout.play import EpisodeSource
from pettingllms_trl.rollout.prompts import ExtendPrompt, check_conversations, num_restarted
from pettingllms_trl.trainer.dataloading import RowsPlayed
from pettingllms_trl.trainer.setup import Setup


Scores = dict[int, tuple[Completion, RewardScores]]
"""What the user's reward functions gave, by the completion's id; with the completion, so that its id stays its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Rows that were played, by all processes together.

    Args:
        scores: What the user's reward functions gave to the candidates.
        counts: Of failures, retries and tokens, by the names of docs/metrics.md without `rollout/`.
    """

    episodes: list[Episode]
    scores: Scores
    counts: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The episodes of one round of training.

    Args:
        decisions: Of the agents that learn, where the tree branches at them.
        continuations: Decisions of continuations, of the agents that learn; none unless they are trained on.
        kept_continuations: Indices of those that are trained on: where the decision that they continue is.
    """

    rows: list[DataRow]
    played: Played
    decisions: list[Decision]
    selection: Selection
    continuations: list[Decision]
    kept_continuations: list[int]
    learning: tuple[Policy, ...]


class RolloutCollector:
    """Plays the rows of a generation or an evaluation, on all processes, and says which decisions are trained on.

    Args:
        extensions: How the conversations go on, of the agents that remember theirs.
        sampling: Opens the engine for a named rollout.
        reward_context: What the user's reward functions are given besides: `trainer_state`, `log_metric`.
        rows_per_generation: Rows that a generation plays, without further ones for what filters drop.
        rows_at: Rows of the training data: from a place on, a number of them.
    """

    def __init__(
        self,
        setup: Setup,
        accelerator: Accelerator,
        *,
        source: EpisodeSource,
        sharing: RowSharing,
        extensions: Mapping[str, ExtendPrompt | None],
        sampling: Callable[[str], AbstractContextManager[Engine]],
        reward_context: Callable[[], Mapping[str, Any]],
        rows_per_generation: int,
        rows_at: Callable[[int, int], list[DataRow]],
    ) -> None:
        self._args = args = setup.args
        self._accelerator, self.source, self._routing = accelerator, source, setup.routing
        self.sharing = sharing
        self._extensions, self._sampling = dict(extensions), sampling
        self._rewards, self._reward_context, self.filters = setup.rewards, reward_context, setup.filters
        self.curricula, self.rows_played, self._rows_at = setup.curricula, RowsPlayed(), rows_at
        self._branched = setup.branched
        self.rows_per_generation = rows_per_generation
        self._programs = [env.metadata["name"] for (env, *_) in setup.envs.values() if "program" in env.metadata]
        self._num_failed = self._num_episodes = 0  # of the training so far; once it was warned of, none are counted
        self._options = RolloutOptions(
            sampling=args.sampling,
            num_candidates=args.num_generations,
            num_continuations=args.num_continuations,
            choose=args.choose,
            keep_continuations=args.train_continuations,
            default_env_seed=args.seed,
            max_envs=args.max_envs,
            max_turns=args.max_turns,
            num_threads=args.num_threads,
            env_timeout=args.env_timeout,
            crash_reward=args.crash_reward,
        )

    @property
    def has_reward_functions(self) -> bool:
        """Whether the user's reward functions add to the environment's rewards."""
        return bool(self._rewards)

    def collect(self, rows: Sequence[DataRow], *, name: str, learning: tuple[Policy, ...]) -> Generation:
        """Play a generation's rows, and further ones for what the filters drop.

        Args:
            rows: Instances. With `max_resamples` or `imitate` the data loader's rows only count the steps, and these
                are taken from the data set by their place.
            name: Of the generation; seeds the breaking of ties.
        """
        names = {policy.name for policy in learning}
        idle = {agent for agent, policy in self._routing.of_agent.items() if policy not in names}
        partners = idle if self._branched is None else self._routing.of_agent.keys() - self._branched
        untrained = partners | idle  # in the episodes themselves
        if self._args.max_resamples or self._args.imitate is not None:
            rows = self._next_rows(self.rows_per_generation)
        else:
            self.rows_played.next(self.rows_per_generation)
        episodes: list[Episode] = []
        played: list[DataRow] = []
        scores: Scores = {}
        counts: dict[str, float] = {}
        decisions: list[Decision] = []
        selection: Selection | None = None
        for batch in range(1 + self._args.max_resamples):
            if selection is not None:
                rows = self._next_rows(selection.num_more)
            of_batch = f"{name}+{batch}" if batch else name
            rows = self.curricula.assign(rows, f"{self._args.seed}/{of_batch}")
            more = self.play_rows(rows, self._options, name=of_batch, partners=partners)
            episodes += shifted(more.episodes, len(played)) if played else more.episodes
            played += rows
            scores |= more.scores
            counts = {count: counts.get(count, 0) + number for count, number in more.counts.items()}
            decisions = [d for episode in episodes for d in episode.decisions if d.agent not in untrained]
            selection = select(
                decisions,
                self.filters,
                num_played=len(played),
                num_wanted=self.rows_per_generation,
                resample=self._args.max_resamples > 0,
            )
            if not selection.num_more:
                break
        assert selection is not None
        self.curricula.advance(played, episodes)
        if self._args.audit == "stop":
            check_conversations(episodes, [agent for agent, extend in self._extensions.items() if extend])
        continuations = [d for episode in episodes for d in episode.continuations if d.agent not in idle]
        unfiltered = [d for episode in episodes for d in episode.decisions if d.agent in idle - partners]
        continued = [*selection.kept.decisions, *unfiltered]
        kept = continuations_of(continued, episodes, continuations) if continuations else []
        return Generation(
            rows=played,
            played=Played(episodes=episodes, scores=scores, counts=counts),
            decisions=decisions,
            selection=selection,
            continuations=continuations,
            kept_continuations=kept,
            learning=learning,
        )

    def play(
        self, rows: Sequence[DataRow], *, num_episodes: int = 1, name: str = "play", max_envs: int | None = None
    ) -> Played:
        """Play each row `num_episodes` times. See [`MultiAgentGRPOTrainer.play`]."""
        options = replace(
            self._options,
            sampling="parallel",
            num_candidates=num_episodes,
            num_continuations=0,
            choose="reward",
            keep_continuations=False,
            max_envs=max_envs or self._args.max_envs,
        )
        return self.play_rows(rows, options, name=name, partners=self._routing.partners)

    def play_rows(
        self, rows: Sequence[DataRow], options: RolloutOptions, *, name: str, partners: Collection[str] = ()
    ) -> Played:
        """Play the rows of all processes, of which this plays its share; `partners` do not learn and answer once."""
        seed = f"{self._args.seed}/{name}"
        shared = self.sharing.rows(len(rows), options.rows_at_once)
        scores: Scores = {}

        def judge(choice: PendingDecision) -> list[Mapping[str, float]]:
            given = self._rewards.score(choice, **self._reward_context())
            for completion, score in zip(choice.completions, given, strict=True):
                scores[id(completion)] = (completion, score)
            return [score.parts for score in given]

        def play_own(engine: Engine) -> tuple[Rollout, list[RewardScores | None]]:
            with shared as own:
                rollout = self.source.play(
                    rows,
                    engine,
                    options,
                    seed=seed,
                    only=own,
                    judge=judge if self._rewards else None,
                    partners=partners,
                )
            if not self._rewards:
                return rollout, []
            return rollout, [scores.get(id(reply), (reply, None))[1] for reply in _completions(rollout)]

        with self._sampling(seed) as engine:
            parts = on_all(partial(play_own, engine))
        for part, of_part in parts if self._rewards else ():  # what other processes have played has come as copies
            for completion, score in zip(_completions(part), of_part, strict=True):
                if score is not None:
                    scores[id(completion)] = (completion, score)
        whole = parts[0][0] if len(parts) == 1 else merge([part for part, _ in parts], num_rows=len(rows))
        if self._accelerator.is_main_process:
            self._warn_of(whole)
        return Played(episodes=whole.episodes, scores=scores, counts=self._counts_of(whole))

    def _counts_of(self, rollout: Rollout) -> dict[str, float]:
        counts: dict[str, float] = {
            "dropped": len(rollout.dropped),
            "retried": rollout.retried,
            "sampled_tokens": rollout.num_sampled_tokens,
        }
        if self._args.env_timeout is not None:
            counts["timed_out"] = rollout.timed_out
        if self._args.crash_reward is not None:
            counts["crashed_replies"] = len(rollout.crashed)
        if self._extensions:
            counts["conversations_begun_anew"] = num_restarted(rollout.episodes, list(self._extensions))
        return counts

    def _warn_of(self, rollout: Rollout) -> None:
        charged = self._args.crash_reward is not None
        self._num_failed += rollout.num_failed
        self._num_episodes += rollout.num_failed + len(rollout.episodes)
        if self._programs and not charged and self._num_failed > MOST_FAILED * self._num_episodes:
            warnings.warn(
                f"{self._num_failed} of {self._num_episodes} episodes of {', '.join(self._programs)} failed. They are "
                "played again or dropped, so that a reply which makes its program fail is not paid for that. Declare "
                "what a program pays, such as program(..., reward_ranges={'reward': (0.0, 1.0)}): such a reply then "
                "gets the least of it.",
                stacklevel=2,
            )
            self._programs = []
        for reason in rollout.dropped.values():
            warnings.warn(
                f"an instance was dropped, its environment or an engine having failed three times: {reason}"
                + ("" if charged else ". If a reply caused it, such as an illegal move, set crash_reward"),
                stacklevel=2,
            )
        if rollout.crashed:
            warnings.warn(
                f"{len(rollout.crashed)} replies crashed their environments and were given crash_reward="
                f"{self._args.crash_reward}. The first: {rollout.crashed[0]}",
                stacklevel=2,
            )

    def _next_rows(self, number: int) -> list[DataRow]:
        """The next rows of the training data, in the data loader's order, on into its next epochs."""
        return self._rows_at(self.rows_played.next(number), number)


MOST_FAILED = 0.01
"""Share of episodes that fail above which a training warns, once."""


def _completions(rollout: Rollout) -> Iterator[Completion]:
    """All that episodes hold, the replies of agents that do not learn included."""
    return (
        candidate.completion
        for episode in rollout.episodes
        for decision in (*episode.decisions, *episode.continuations)
        for candidate in decision.candidates
    )
