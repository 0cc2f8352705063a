"""AT-GRPO's invariants of a rollout, as `audit="stop"` checks them in a training."""

from collections.abc import Collection, Sequence

from pettingllms_envs.audit import RunFacts
from pettingllms_trl.records import Episode
from pettingllms_trl.trainer.rollout_checks import RolloutAudit


def check_groups(episodes: Sequence[Episode], *, num_candidates: int, partners: Collection[str] = ()) -> None:
    """Raise `UnsoundRollouts` if a group is broken; `partners` are not trained on, and have a candidate each."""
    decisions = [d for episode in episodes for d in episode.decisions if d.agent not in partners]
    audit = RolloutAudit(RunFacts(kind="rollouts", is_tree=True, num_candidates=num_candidates), raises=True)
    audit.observe(episodes, {id(decision): [0.0] * len(decision.candidates) for decision in decisions})
