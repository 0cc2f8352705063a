"""A hosted environment: a server plays Plan-Path, and its client knows no more than the number of its session.

What the two exchange is JSON. A copy of the client would step the same session, so the client declares that it is
branched by replay: a new session is reset with the same seed and given the same replies.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from pettingzoo import AECEnv

from pettingllms_envs import plan_path_v0
from pettingllms_envs.spaces import ChatText, observation_space


SHARED = ("agents", "agent_selection", "rewards", "_cumulative_rewards", "terminations", "truncations", "infos")
"""What the server says of a session after each request."""

sessions: dict[int, Any] = {}
numbers = itertools.count(1)


def answer(request: str) -> str:
    """What the server answers: the state of a session after a reset or a step, or the number of a new one."""
    asked = json.loads(request)
    if asked["do"] == "open":
        number = next(numbers)
        sessions[number] = plan_path_v0.env(**asked["settings"])
        return json.dumps({"session": number, "possible_agents": sessions[number].possible_agents})
    if asked["do"] == "close":
        del sessions[asked["session"]]
        return "{}"
    env = sessions[asked["session"]]
    (env.reset if asked["do"] == "reset" else env.step)(**asked["arguments"])
    seen = {agent: env.observe(agent) for agent in env.possible_agents}
    return json.dumps({"seen": seen, **{name: getattr(env, name) for name in SHARED}})


class Hosted(AECEnv):
    """The client."""

    metadata: ClassVar[dict[str, Any]] = {
        "name": "hosted_v0",
        "render_modes": [],
        "is_parallelizable": False,
        "branching": "replay",
    }

    def __init__(self, **settings: Any) -> None:
        self._ask(do="open", settings=settings)
        self.observation_spaces = {agent: observation_space("text") for agent in self.possible_agents}
        replies = [f"Moves: {move}" for move in "UDLR"]  # samples, with which a check plays
        self.action_spaces = {agent: ChatText(replies=replies) for agent in self.possible_agents}
        self.render_mode = None

    def _ask(self, **request: Any) -> None:
        vars(self).update(json.loads(answer(json.dumps(request))))

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        self._ask(do="reset", session=self.session, arguments={"seed": seed, "options": options})

    def step(self, action: str | None) -> None:
        self._ask(do="step", session=self.session, arguments={"action": action})

    def observe(self, agent: str) -> Any:
        return dict(self.seen[agent])

    def close(self) -> None:
        self._ask(do="close", session=self.session)


def env(**settings: Any) -> Hosted:
    return Hosted(**settings)
