"""`LearningMonitor`: inspects every generation and warns of roles that cannot learn, with the reason.

| finding                                                                  | when it warns                     |
|--------------------------------------------------------------------------|-----------------------------------|
| most replies of an agent are truncated at their maximum length           | after that generation             |
| an agent's own steps never pay differently, but its returns differ       | after 2 generations and 32 groups |
| all groups of an agent are flat: collapsed, solved, too hard or too easy | after 10 generations in a row     |
| a role that is trained has never acted: raises `SilentRole`              | after 2 generations               |

The first two warnings are given once in a run, the third once in a row of such generations, after its tenth. Several
environments of a run are inspected separately. Every process of a distributed run has all episodes, and so the same
state; only the main process warns.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tqdm.auto import tqdm

from pettingllms_envs.replies.reading_counts import counts_of, warning_of
from pettingllms_trl.credit import Advantages
from pettingllms_trl.credit.delayed_rewards import REMEDIES
from pettingllms_trl.credit.statistics import GroupStatistics, group_statistics, name_in
from pettingllms_trl.policies.team import Team
from pettingllms_trl.records import Decision, Episode, role_of


MOST_SHOWN = 200
"""Characters of an unreadable reply that a warning shows."""
MOST_CUT_OFF = 0.5
"""Greatest share of an agent's replies that may be truncated without a warning."""

SILENT_GENERATIONS = 2
"""Number of generations in which a role that is trained must have acted."""
FLAT_GENERATIONS = 10
"""Number of flat generations in a row after which an agent is reported."""
DELAYED_GENERATIONS, DELAYED_GROUPS = 2, 32
"""Generations and groups after which an agent whose own steps pay all replies the same is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSignal:
    """The learning signal of an agent so far.

    Args:
        num_flat_generations: Number of latest generations in a row in which all its groups were flat.
        is_constant: Whether all steps of those generations paid the same.
        told: Whether it was already reported as paid later.
    """

    num_flat_generations: int = 0
    num_flat_groups: int = 0
    has_learned: bool = False
    is_constant: bool = True
    told: bool = False

    def after(self, statistics: GroupStatistics) -> RoleSignal:
        """The signal after another generation."""
        if not statistics.is_flat:
            return RoleSignal(has_learned=True)
        return RoleSignal(
            num_flat_generations=self.num_flat_generations + 1,
            num_flat_groups=self.num_flat_groups + statistics.num_groups,
            has_learned=self.has_learned,
            is_constant=self.is_constant and statistics.rewards[0] == statistics.rewards[1],
            told=self.told,
        )

    def is_delayed(self, latest: GroupStatistics) -> bool:
        """Whether to report now that the agent is paid at later steps.

        An agent whose own steps once paid differently, or pay differently between instances, may have solved its part;
        it is reported only after `FLAT_GENERATIONS`.
        """
        enough = self.num_flat_generations >= DELAYED_GENERATIONS and self.num_flat_groups >= DELAYED_GROUPS
        return latest.is_delayed and self.is_constant and enough and not self.has_learned and not self.told


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyLimit:
    """The limits of an agent's replies.

    Args:
        can_stop_thinking: Whether the chat template has a switch `enable_thinking` that is not off.
    """

    max_length: int
    can_stop_thinking: bool = False


def reply_limits(
    team: Team, *, max_length: int, chat_template: str | None, chat_template_kwargs: Mapping[str, Any]
) -> dict[str, ReplyLimit]:
    """The limit of each agent whose policy has weights here: that of its overrides, else `max_length`.

    `chat_template` replaces the tokenizers' own templates.
    """
    limits = {}
    by_default = chat_template_kwargs.get("enable_thinking", True)
    for agent, own in team.overrides.items():
        if (profile := team.profiles.get(team.routing.of_agent[agent])) is None:
            continue
        template = str(chat_template or profile.processing_class.chat_template)
        thinks = by_default if own.enable_thinking is None else own.enable_thinking
        limits[agent] = ReplyLimit(
            max_length=own.max_completion_length or max_length,
            can_stop_thinking=bool(thinks) and "enable_thinking" in template,
        )
    return limits


class SilentRole(RuntimeError):
    """A role that is to be trained never acts."""


class LearningMonitor:
    """Warns of roles that cannot learn.

    Args:
        must_act: The trained agents of programs; a role of theirs that never acts ends the training.
    """

    def __init__(self, limits: Mapping[str, ReplyLimit], must_act: Collection[str] = ()) -> None:
        self._limits = limits
        self._silent = set(map(role_of, must_act))
        self._num_observed = self._num_episodes = 0
        self._cut_off: set[str] = set()
        self._unreadable: set[str] = set()
        self._signals: dict[str, RoleSignal] = {}

    def observe(self, episodes: Sequence[Episode], decisions: Sequence[Decision], advantages: Advantages) -> list[str]:
        """Inspect a generation.

        Args:
            advantages: Advantages of these decisions, before any filter.

        Raises:
            SilentRole: A role that is trained has not acted in the first `SILENT_GENERATIONS`.
        """
        self._check_all_act(episodes)
        return [
            *self._of_replies(decisions),
            *self._of_readings(decisions),
            *self._of_groups(episodes, decisions, advantages),
        ]

    def state_dict(self) -> dict[str, Any]:
        """The signals of all agents, as numbers and strings."""
        return {name: dataclasses.asdict(signal) for name, signal in self._signals.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._signals = {name: RoleSignal(**fields) for name, fields in state.items()}
        self._silent = set()  # of a run that went on for so long

    def _check_all_act(self, episodes: Sequence[Episode]) -> None:
        if not self._silent or not episodes:
            return
        self._num_observed += 1
        self._num_episodes += len(episodes)
        self._silent -= {role_of(decision.agent) for episode in episodes for decision in episode.decisions}
        if self._silent and self._num_observed == SILENT_GENERATIONS:
            raise SilentRole(
                f"{' and '.join(sorted(self._silent))} took no decision in the first {self._num_episodes} episodes "
                "of the program, so nothing of it is trained; expected one at least. Give its client base_url and the "
                "agent's name: else its calls go elsewhere, and may be paid there. A role that is not to learn has "
                "Policy(trainable=False)."
            )

    def _of_replies(self, decisions: Sequence[Decision]) -> list[str]:
        are_cut: dict[str, list[bool]] = {}
        for decision in decisions:
            if decision.agent in self._limits:
                cut = [candidate.completion.finish == "length" for candidate in decision.candidates]
                are_cut.setdefault(decision.agent, []).extend(cut)
        found = {
            agent: (sum(cut), len(cut))
            for agent, cut in are_cut.items()
            if sum(cut) > MOST_CUT_OFF * len(cut) and agent not in self._cut_off
        }
        self._cut_off |= set(found)
        return [_cut_off_words(found, self._limits)] if found else []

    def _of_readings(self, decisions: Sequence[Decision]) -> list[str]:
        """A warning for each agent of whose replies too many could not be read, once."""
        by_agent: dict[str, list[tuple[str, str]]] = {}
        for decision in decisions:
            read = [(each.reading, each.completion.text) for each in decision.candidates if each.reading]
            by_agent.setdefault(decision.agent, []).extend((reading, text[-MOST_SHOWN:]) for reading, text in read)
        remedy = "warm up on demonstrations, or raise max_completion_length"
        told = {agent: warning_of(agent, counts_of(read), remedy) for agent, read in by_agent.items()}
        found = {agent: words for agent, words in told.items() if words is not None and agent not in self._unreadable}
        self._unreadable |= set(found)
        return list(found.values())

    def _of_groups(
        self, episodes: Sequence[Episode], decisions: Sequence[Decision], advantages: Advantages
    ) -> list[str]:
        delayed: dict[str, GroupStatistics] = {}
        flat: dict[str, GroupStatistics] = {}
        for name, statistics in group_statistics(decisions, advantages).items():
            signal = self._signals.get(name, RoleSignal()).after(statistics)
            if signal.is_delayed(statistics):
                delayed[name] = statistics
                signal = dataclasses.replace(signal, told=True)
            elif signal.num_flat_generations == FLAT_GENERATIONS and not signal.told:
                flat[name] = statistics
            self._signals[name] = signal
        words = [_delayed_words(delayed, self._signals)] if delayed else []
        by_cause: dict[str, dict[str, GroupStatistics]] = {}
        for name, statistics in flat.items():
            own = [episode for episode in episodes if name.endswith(name_in("", episode.environment))]
            by_cause.setdefault(_cause(statistics, own), {})[name] = statistics
        return [*words, *(_flat_words(found, cause, self._signals) for cause, found in by_cause.items())]


def warn_above_progress_bar(message: str) -> None:
    """Warn on a line of its own: progress bars are cleared and redrawn; no line of code, as none is the cause."""
    with tqdm.external_write_mode():
        warnings.warn_explicit(message, UserWarning, filename="pettingllms_trl", lineno=1)


def _cut_off_words(found: Mapping[str, tuple[int, int]], limits: Mapping[str, ReplyLimit]) -> str:
    shares = [
        f"{cut / number:.0%} of {agent}'s ({cut} of {number}) at {limits[agent].max_length} tokens"
        for agent, (cut, number) in found.items()
    ]
    thinking = any(limits[agent].can_stop_thinking for agent in found)
    remedy = "Turn thinking off (chat_template_kwargs={'enable_thinking': False}) or raise" if thinking else "Raise"
    return (
        f"most replies were cut off at max_completion_length before they ended: {', '.join(shares)}. Where the "
        f"environment cannot read such replies they are all paid alike, and nothing is learnt. {remedy} "
        "max_completion_length."
    )


def _delayed_words(found: Mapping[str, GroupStatistics], signals: Mapping[str, RoleSignal]) -> str:
    accounts = [
        f"{name} (always {statistics.rewards[0]:g} in {signals[name].num_flat_groups} groups, returns "
        f"{statistics.returns[0]:g} to {statistics.returns[1]:g})"
        for name, statistics in found.items()
    ]
    return (
        f"no reply has been paid differently from its siblings at its own step, though the returns differ: "
        f"{', '.join(accounts)}. What is earned there comes at later steps, which the credit scheme does not look at, "
        f"so nothing is learnt. {REMEDIES}"
    )


def _cause(statistics: GroupStatistics, episodes: Sequence[Episode]) -> str:
    if episodes and all(episode.outcome.get("success") for episode in episodes):
        who = "The best candidates of all episodes succeeded" if statistics.is_tree else "All episodes succeeded"
        return f"{who}, so nothing tells replies apart. Play harder ones (curriculum=), or evaluate and stop here."
    collapsed = (
        "Either the policies collapsed to one reply, or the instances are too hard or too easy to tell replies apart. "
        "Look at some (log_completions=True); then raise temperature or num_generations, change the instances, or "
        "resume from an older checkpoint."
    )
    if statistics.is_tree and statistics.returns[0] < statistics.returns[1]:
        return f"{collapsed} Or what they lead to is only paid at later steps. {REMEDIES}"
    return collapsed


def _flat_words(found: Mapping[str, GroupStatistics], cause: str, signals: Mapping[str, RoleSignal]) -> str:
    accounts = [
        f"{name} ({statistics.rewards[0]:g} to {statistics.rewards[1]:g} over all groups of the last)"
        for name, statistics in found.items()
    ]
    number = max(signals[name].num_flat_generations for name in found)
    return (
        f"in {number} generations in a row all rewards of each group were equal, so nothing is learnt by "
        f"{', '.join(accounts)}. {cause}"
    )
