"""Checks that the team's rewards add up to the change of the task's potential, so that no loop can farm them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pettingllms_envs.core import TEAM, team_return
from pettingllms_envs.features import HasBonuses
from pettingllms_envs.testing.play import Case, Failed, Skipped, blaming, mixed_episode, scoped_parts, told


TOLERANCE = 1e-9


def check_potential(case: Case) -> str:
    """In every episode the team's parts add up to potential and success at its end less those at its start.

    Parts that the workflow names as `bonuses` (`pettingllms_envs.features.HasBonuses`) are left out. It applies to
    environments whose workflow has a task with `value` and `solved`, and whose snapshots have the parts by scope.
    """
    env = case.make()
    workflow = getattr(env.unwrapped, "workflow", None)
    env.reset(seed=case.starts[0].seed, options=dict(case.starts[0].options) or None)
    if workflow is None or scoped_parts(env) is None:
        raise Skipped("it is not made of a workflow and a task")
    if env.metadata.get("competitive") is not None:
        raise Skipped("its agents compete, so there is no team's reward")
    bonuses = frozenset(workflow.bonuses) if isinstance(workflow, HasBonuses) else frozenset()
    greatest = 0.0
    for start in case.starts:
        seen = mixed_episode(case, start, env, look=_look(bonuses)).seen
        paid = sum(parts for parts, _ in seen)
        change = seen[-1][1] - seen[0][1]
        greatest = max(greatest, abs(change))
        with blaming(lambda start=start: told(start, ())):  # type: ignore[misc]
            if abs(paid - change) > TOLERANCE:
                raise Failed(
                    f"the team's parts of an episode: expected the change of potential and success, {change:g}, got "
                    f"{paid:g}. Pay every change as it happens, or name parts that are no potential in the workflow's "
                    "`bonuses`"
                )
    more = f", without {', '.join(sorted(bonuses))}" if bonuses else ""
    return f"{len(case.starts)} episodes; the greatest change is {greatest:g}{more}"


def _look(bonuses: frozenset[str]) -> Any:
    """A function of the environment: the team's parts of its last step, and potential and success of its state."""
    last: list[Any] = [None]

    def look(env: Any) -> tuple[float, float]:
        snapshot = env.unwrapped.snapshot()
        is_step = last[0] is not None and snapshot.play is not last[0]  # dead steps play nothing
        last[0] = snapshot.play
        parts: Mapping[str, float] = snapshot.parts.get(TEAM, {}) if is_step else {}
        paid = sum(value for name, value in parts.items() if name not in bonuses)
        return paid, team_return(env.unwrapped.workflow.task, snapshot.play.task)

    return look
