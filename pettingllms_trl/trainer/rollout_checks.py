"""Runs the checks of `pettingllms audit` on each generation's rollouts during training.

Of the checks of `pettingllms_envs.audit` those for broken groups are used, and `stopped_exploring`; roles without a
learning signal and truncated replies are reported by `monitor.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import pettingllms_envs.audit as audit
from pettingllms_envs.audit import Audit, Finding, RunFacts
from pettingllms_envs.audit.checks import GROUP_CHECKS
from pettingllms_envs.audit.collapse import stopped_exploring
from pettingllms_envs.episodes.observing import success_of
from pettingllms_trl.records import Decision, Episode


class UnsoundRollouts(RuntimeError):
    """The rollouts of a training are broken; raised with `audit="stop"`."""


class RolloutAudit:
    """Checks every generation, and reports each kind of finding once.

    Args:
        raises: Whether a failed check stops the training; a warning does not.
        histories: The environments whose states are histories, as episodes name them.
    """

    def __init__(self, run: RunFacts, *, raises: bool, histories: Collection[str] = ()) -> None:
        self._audit = Audit(run, GROUP_CHECKS, (stopped_exploring,))
        self._run, self._raises, self._histories = run, raises, histories
        self._told: set[tuple[str, str]] = set()
        self._step = 0

    def observe(self, episodes: Sequence[Episode], advantages: Mapping[int, Sequence[float]]) -> list[str]:
        """Check a generation, and return the warnings.

        Args:
            advantages: Of each decision's candidates, by the `id` of the decision; missing if it is not trained on.

        Raises:
            UnsoundRollouts: A check failed, and `raises` is set.
        """
        self._step += 1
        policies, histories = self._run.policies, self._histories
        for episode in rows_of(episodes, advantages, policies=policies, step=self._step, histories=histories):
            self._audit.observe(episode)
        found = [each for each in self._audit.conclude() if each.is_bad and (each.name, each.status) not in self._told]
        self._told |= {(each.name, each.status) for each in found}
        failed = [each for each in found if each.status == "failed"]
        if failed and self._raises:
            raise UnsoundRollouts(" ".join(map(_words, failed)))
        return [_words(each) for each in found]


def _words(finding: Finding) -> str:
    return f"the rollouts have {finding} (docs/audit.md; audit=None does not look)"


def rows_of(
    episodes: Sequence[Episode],
    advantages: Mapping[int, Sequence[float]],
    *,
    policies: Mapping[str, str] | None = None,
    step: int | None = None,
    histories: Collection[str] = (),
) -> Iterator[audit.Episode]:
    """Convert a rollout to the form that the checks read.

    Args:
        histories: The environments whose states are histories, as episodes name them.
    """
    for episode in episodes:
        yield audit.Episode(
            instance=episode.instance,
            decisions=tuple(
                _row_of(
                    decision,
                    advantages.get(id(decision)),
                    learns=id(decision) in advantages,
                    policy=(policies or {}).get(decision.agent),
                )
                for decision in episode.decisions
            ),
            step=step,
            sample=episode.episode,
            success=success_of(episode.outcome),
            result=sum(episode.returns.values()) / len(episode.returns) if episode.returns else None,
            is_history=episode.environment in histories,
        )


def _row_of(
    decision: Decision, advantages: Sequence[float] | None, *, learns: bool, policy: str | None
) -> audit.Decision:
    prompt = hash(decision.prompt.key)
    system = next((message["content"] for message in decision.prompt.messages if message["role"] == "system"), None)
    return audit.Decision(
        agent=decision.agent,
        candidates=tuple(
            audit.Candidate(
                reply=candidate.completion.ids or candidate.completion.text,
                reward=candidate.reward,
                advantage=None if advantages is None else float(advantages[k]),
                tokens=len(candidate.completion.ids) or None,
                state=candidate.state,
                is_chosen=k == decision.chosen,
                prompt=prompt,
                instance=decision.instance,
                sample=decision.episode,
            )
            for k, candidate in enumerate(decision.candidates)
        ),
        turn=decision.turn,
        state=decision.state,
        system=system,
        policy=policy,
        learns=learns,
    )
