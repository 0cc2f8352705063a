"""Workflow `draft_plan`: a move is proposed, a planner sees where it would lead, and decides. `tool_plan` is on it.

Only the planner's move is played. V(x) is the task's potential plus 1 if x is solved. Rewards:

* team, on the planner's step: `progress`, the change of the potential, and `success`, 1 when solved. Over an episode
  they add up to V(end) - V(start), which is at most 2.
* proposer, on its own step: `draft` = V(state the proposal would lead to) - V(state), and the task's costs of the
  proposal; or `format` = -0.2 if there is no readable proposal.
* proposer, on the planner's step: `settle` = V(state reached) - V(state) - what the proposer's own step was paid
  besides `format`. So `draft`, costs and `settle` too add up to V(end) - V(start) over an episode: a proposal cannot
  be farmed by repeating it, and a move that is only proposed costs nothing in the end: proposing less does not pay.
* planner, on its own step: `format` = -0.2 if unreadable, or the task's costs of the move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pettingllms_envs.core import UNREADABLE_PENALTY, Role, Unreadable, team_return
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow


DRAFTER = Role("drafter", "You are the drafter. Propose moves; the planner sees where they lead and decides.")
PLANNER = Role("planner", "You are the planner. You see the drafter's proposal and decide. Your moves are played.")


def ranges(team: Any) -> Mapping[str, tuple[float, float]]:
    """The proposer's draft and settle."""
    costs = dict(team.task.ranges())
    low, high = costs.pop("value")
    change = high - low + 1
    return {"draft": (-change, change), "settle": (-change, change - sum(least for least, _ in costs.values()))}


def proposals(
    game: Game,
    read: Callable[[str], tuple[Any, str]],
    oracle: Callable[[], str] | None = None,
    *,
    step_rewards: bool = True,
) -> Questions:
    """The turns of a proposer and a planner.

    Args:
        read: Which move a reply proposes, and what the planner is shown of how it came about.
        oracle: Makes the proposer's best reply; None for the task's best move.
        step_rewards: Whether each step is paid for how far it leads, or the end of the episode alone.
    """
    task, (proposer, planner) = game.task, game.members
    while game.turns_left:
        move, words = read((yield Ask(proposer, game.situation, oracle, ())))
        credited = team_return(task, game.state)
        if isinstance(move, Unreadable):
            game.pay(proposer, "format", UNREADABLE_PENALTY)
            words += f"The {proposer}'s reply was unreadable: {move.reason}."
        else:
            after = task.apply(game.state, move)
            paid = {"draft": team_return(task, after) - credited, **task.costs(game.state, move, after)}
            credited += sum(paid.values())
            for name, value in paid.items() if step_rewards else ():
                game.pay(proposer, name, value)
            words += f"The {proposer} proposes: {task.describe(game.state, move, after, proposed=True)}"
        reply = yield Ask(planner, partial(game.situation, words), keeps=credited)
        if step_rewards:
            game.play(reply, planner)
            game.pay(proposer, "settle", team_return(task, game.state) - credited)
        else:
            game.play(reply, planner, pays=("format",))
            if game.is_over:
                game.pay_team("progress", task.value(game.state))
                if game.solved:
                    game.pay_team("success", 1.0)


@function_workflow(
    lambda team: tuple(replace(role, delayed=not team.step_rewards) for role in (DRAFTER, PLANNER)),
    name="draft_plan",
    ranges=ranges,
    cyclic=True,
    legal={"step_rewards": (True, False)},
    channel=None,
    bonuses=(),
    unwritten=("step_rewards",),
    turns_apart=True,
)
def DraftPlan(game: Game, step_rewards: bool = True) -> Questions:
    """In every turn a drafter proposes a move and a planner, who sees where it would lead, decides.

    With `step_rewards=False` the team is paid `progress` and `success` at the end of the episode and nothing before,
    and a role only `format`; then both roles are paid later.

    Args:
        step_rewards: Whether each step is paid for how far it leads, or the end of the episode alone.
    """
    yield from proposals(game, lambda reply: (game.task.parse(reply), ""), step_rewards=step_rewards)
