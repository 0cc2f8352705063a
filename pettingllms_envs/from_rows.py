"""Environments for rows of your own, made in a call: a conversation about prompts, and a function over rows.

`conversation` leaves rewards to reward functions; `function` is given one, and the whole course of an episode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pettingllms_envs.registry import make


if TYPE_CHECKING:
    from pettingllms_envs.aec import TextEnv
    from pettingllms_envs.core import Role

Reward = Callable[[Mapping[str, Any], str], float]
"""From a row and a reply to a score from 0 to 1."""


def conversation(roles: Sequence[str], **settings: Any) -> Callable[[], TextEnv]:
    """What makes conversations about a prompt, for `MultiAgentGRPOTrainer(env=...)`.

    Rows are those of a data set for TRL's trainers: a `prompt`, perhaps pictures in `image` or `images`, and columns
    that reward functions read. The prompt goes to the first role, each one after it reads the prompt and what was
    said. Reward functions judge the last reply, and what they give counts for every role.

        env=conversation(roles=["solver", "critic", "solver"], instructions={"critic": "Find the first mistake."})

    Args:
        roles: Names in the order in which they speak; one that is named twice speaks twice.
        settings: `instructions` and `history` by role, `rewarded` roles and others, see `Conversation` and `Prompts`
            in `pettingllms_envs.environments.conversation`; and those of every environment
            (`pettingllms_envs.assembly.assemble`).
    """
    make_env = partial(make, "conversation", roles=roles, **settings)
    make_env()  # raises for a mistake here and now
    return make_env


def function(
    rows: str | Path | Iterable[Mapping[str, Any]],
    reward: Reward,
    roles: Mapping[str, str] | Sequence[Role],
    *,
    num_turns: int = 1,
) -> Callable[[Callable[..., Any]], Callable[..., TextEnv]]:
    """Make an environment of a function that says who is asked what, on rows with a `question`.

        @pettingllms_envs.function(rows, reward, roles={"debater": "Argue for an answer.", "judge": "Decide."})
        def debate(game):
            argument = yield Ask("debater", game.show(), keeps=())
            verdict = yield Ask("judge", game.show(game.quote("debater", argument)), keeps=())
            game.play(verdict, "judge")

    The decorated name makes environments: `env=debate`. What `game.play` plays is scored by the reward and paid to the
    team. See `pettingllms_envs.teams.functions` for what a function may do.

    Args:
        rows: A file, a list of dicts, or a `datasets.Dataset`, perhaps with pictures, see
            `pettingllms_envs.tasks.rows`.
        reward: From a row and a reply to a score from 0 to 1; 1 is success. It is to compare the reply, not to run it.
        roles: By name, what a role's system prompt says; all of them are trained by what comes of their replies. Or
            `pettingllms_envs.core.Role`s, for several agents of a role, or one that is paid for its own step.
    """
    from pettingllms_envs.assembly import assemble  # only those pay for it who need it
    from pettingllms_envs.core import Role
    from pettingllms_envs.tasks.rows import graded_rows
    from pettingllms_envs.teams.functions import function_workflow

    if not callable(reward):
        raise TypeError(f"reward is {reward!r}; expected a function: def reward(row, reply). Write one.")
    if isinstance(roles, Mapping):
        roles = [Role(name, job, delayed=True, reply_format="") for name, job in roles.items()]

    def made(script: Callable[..., Any]) -> Callable[..., TextEnv]:
        workflow = function_workflow(*roles, num_turns=num_turns)(script)
        task = graded_rows(script.__name__, rows, reward, script.__module__)
        env = assemble(task, script.__module__, (workflow,), name=f"{script.__name__}_v0").env
        env.__name__, env.__qualname__ = script.__name__, script.__qualname__  # where a pickled one is found again
        env.__doc__ = script.__doc__
        env()  # raises for a mistake here and now
        return env

    return made
