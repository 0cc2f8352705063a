"""Workflows of two arms: a planner and an arm each for two agents, and one agent for both arms or for one.

* `team`: in each tick a `planner`, who alone knows the goals, writes to `left` and `right`. Each of them is shown the
  cubes that it reaches, what it holds, what came of its own last skill, and the message; both are asked before either
  skill is played. A reply that cannot be read is charged to its role and played as `wait`; so the other arm acts.
* `cut`: the same, and no message arrives.
* `full`: one planner, who sees everything and plays both arms.
* `alone`: one arm that sees everything, while the other one waits.

Rewards: team `progress` and `success`, see `rules`. What the left arm's skill is worth, which does not depend on the
right arm's, is paid on its own step, and the rest on that of the right arm; so both learn from their own steps. To an
arm `failed`, -0.05, and `format`, -0.2. To the planner, if its message ends with a line such as `Left: pick 0. Right:
wait.`, `draft`: what the potential (with 1 for success) would gain by these skills; and on the right arm's step
`settle`, what it gained less `draft`. They add up to what the team has won, so no message pays by being repeated.
Without them (`communication_reward=False`, or in `cut`) the planner is paid later.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pettingllms_envs.core import UNREADABLE_PENALTY, Role, Unreadable, team_return
from pettingllms_envs.environments.two_arms.rules import FAILED
from pettingllms_envs.environments.two_arms.table import ARMS, Skill, Skills
from pettingllms_envs.teams.forms import Form, Forms
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow


PLANNER = "planner"
ARM_FORMAT = "End with one line: pick and the number of a cube, place and the number of a column, or wait."
MOST_TICKS = 40
"""Turn budget; an episode ends with the ticks of its instance."""


def roles(team: Any) -> tuple[Role, ...]:
    """The planner, who writes freely, and the arms."""
    plans = (
        "You are the planner. You see the whole table and alone know the goals, and have no hands. In each tick you"
        f" write to both arms what to do, in at most {team.capacity} characters; they see the cubes that they reach."
    )
    ends = "Best end with one line that has a skill for each arm, like this: Left: pick 9. Right: wait."
    acts = "You are the {} arm. The planner, who knows the goals, writes to you."
    arms = [Role(arm, acts.format(arm), reply_format=ARM_FORMAT) for arm in ARMS]
    return (Role(PLANNER, plans, delayed=not team.pays_planner, reply_format=ends), *arms)


def _pays(delivers: bool) -> Any:
    """Whether the planner is paid on its own steps, of a workflow whose messages arrive, or do not."""
    return property(lambda team: delivers and team.task.communication_reward)


def team_ticks(game: Game, *, delivers: bool = True) -> Questions:
    """The ticks of a planner and two arms."""
    task, told = game.task, ("", "")
    pays_planner = task.communication_reward and delivers
    while game.turns_left and not task.is_over(game.state):
        before = game.state
        sent = game.send(PLANNER, (yield Ask(PLANNER, partial(_shown, game), partial(_best, game), told)))
        proposed, draft = task.proposed(sent.text), 0.0
        if pays_planner and proposed is not None:
            draft = team_return(task, task.moved(before, proposed)) - team_return(task, before)
            game.pay(PLANNER, "draft", draft)
        message = sent.shown if delivers else ""
        shown = [_of_arm(game, arm, told[arm], message) for arm in range(len(ARMS))]

        left, unread = yield from _asked(game, 0, shown[0], (shown[1], draft))
        halfway = task.moved(before, (left, Skill()))
        early = task.value(halfway) - task.value(before)
        game.pay_team("progress", early)
        _charge(game, 0, before, (left, Skill()))

        right, unread_right = yield from _asked(game, 1, shown[1], (unread, left, early, draft))
        move = left, right
        game.state = game.once(task.apply, before, move)
        game.pay_team("progress", task.value(game.state) - task.value(before) - early)
        if game.solved:
            game.pay_team("success", 1.0)
        _charge(game, 1, before, move)
        if pays_planner:
            game.pay(PLANNER, "settle", team_return(task, game.state) - team_return(task, before) - draft)
        words = task.table.words(before.places, move)
        told = unread or words[0], unread_right or words[1]
        game.end_turn(f"In the last tick: left {told[0]}; right {told[1]}.")
    return game.solved


def _asked(game: Game, arm: int, shown: str, keeps: Any) -> Questions:
    """Ask an arm; returns its skill, and why its reply was unreadable."""
    role = ARMS[arm]
    found = game.task.read((yield Ask(role, shown, partial(_best, game, arm), keeps)), of_both=False)
    if isinstance(found, Unreadable):
        game.pay(role, "format", UNREADABLE_PENALTY)
        return Skill(), f"waited, since its reply was unreadable: {found.reason}"
    return found, ""


def _charge(game: Game, arm: int, before: Any, move: Skills) -> None:
    if game.task.table.failures(before.places, move)[arm]:
        game.pay(ARMS[arm], "failed", FAILED)


def _best(game: Game, arm: int | None = None) -> str:
    """The best move, or an arm's part of it."""
    move = game.task.oracle(game.state)
    return str(game.task.write(move)) if arm is None else move[arm].text


def _ticks_left(game: Game) -> str:
    return f"Ticks left: {min(game.num_turns, game.state.limit) - game.state.ticks}."


def _shown(game: Game) -> str:
    """The ticks left, the table, and what the last tick did."""
    return "\n".join(filter(None, (_ticks_left(game), game.task.show(game.state), game.feedback)))


def _of_arm(game: Game, arm: int, told: str, message: str) -> str:
    """The ticks left, the cubes in its reach, what it holds, what came of its last skill, and the message."""
    table, places = game.task.table, game.state.places
    seen = [f"{cube} in column {place}" for cube, place in enumerate(places) if place in table.reach[arm]]
    holds = table.columns + arm
    held = f"You hold cube {places.index(holds)}." if holds in places else "Your gripper is empty."
    last = f"Your last tick: {told}." if told else ""
    return "\n".join(
        filter(None, (_ticks_left(game), f"Cubes in your reach: {', '.join(seen) or 'none'}.", held, last, message))
    )


def lone_ticks(game: Game, arm: int | None = None) -> Questions:
    """The ticks of one agent, for both arms or for one of them."""
    task, (role,) = game.task, game.members
    while game.turns_left and not task.is_over(game.state):
        before = game.state
        reply = yield Ask(role, partial(_shown, game), partial(_best, game, arm), ())
        found = game.read(reply, role, partial(task.read, of_both=arm is None))
        move = (Skill(), Skill()) if found is None else found if arm is None else (found, Skill())[:: 1 - 2 * arm]
        game.advance(game.once(task.apply, before, move))
        if game.solved:
            game.pay_team("success", 1.0)
        for name, value in task.costs(before, move, game.state).items():
            game.pay(role, name, value)
        game.end_turn(f"In the last tick: {task.describe(before, move, game.state)}")
    return game.solved


def _forms(team: Any) -> Forms:
    """With as many ticks. An arm alone is shown everything."""
    own = {"num_turns": team.num_turns}
    return Forms(
        full=Form({"workflow": "full", **own}, f"{PLANNER}_0"),
        cut=Form({"workflow": "cut", **own}),
        alone=[Form({"workflow": "alone", "arm": arm, **own}, f"{arm}_0") for arm in ARMS],
    )


def _ranges(team: Any) -> Mapping[str, tuple[float, float]]:
    """Of the planner's draft and settle, in changes of the potential and of success."""
    return {"draft": (-3.0, 3.0), "settle": (-3.0, 3.0)} if team.pays_planner else {}


COMMON: dict[str, Any] = {"num_turns": MOST_TICKS, "cyclic": True, "bonuses": ()}


@function_workflow(roles, name="team", ranges=_ranges, pays_planner=_pays(True), forms=_forms, **COMMON)
def ArmTeam(game: Game, capacity: int = 160) -> Questions:
    """A planner and two arms."""
    return (yield from team_ticks(game))


@function_workflow(roles, name="cut", pays_planner=_pays(False), **COMMON)
def SilentArms(game: Game, capacity: int = 160) -> Questions:
    """A planner and two arms, whom no message reaches."""
    return (yield from team_ticks(game, delivers=False))


@function_workflow(
    Role(PLANNER, "You are the planner. You see the whole table, and your skills are played by both arms."),
    name="full",
    channel=None,
    **COMMON,
)
def FullPlanner(game: Game) -> Questions:
    """One agent with both arms."""
    return (yield from lone_ticks(game))


@function_workflow(
    lambda team: (Role(team.arm, f"You are the {team.arm} arm, and the other one waits.", reply_format=ARM_FORMAT),),
    name="alone",
    channel=None,
    legal={"arm": ARMS},
    meanings={"arm": '`"left"` or `"right"`.'},
    **COMMON,
)
def LoneArm(game: Game, arm: str = ARMS[0]) -> Questions:
    """One arm that sees everything."""
    return (yield from lone_ticks(game, ARMS.index(arm)))


WORKFLOWS = (ArmTeam, SilentArms, FullPlanner, LoneArm)
"""The workflows of the environment, the default one first."""
