"""One agent's seat in a team as a single-agent environment of Gymnasium, and what Gymnasium's ids make.

>>> env = pettingllms_envs.seat(pettingllms_envs.make("sokoban"), "planner_0", others="oracle")
>>> env = gymnasium.make("pettingllms/sokoban-v0")  # the form for one agent that the task declares
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import gymnasium
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Dict, Text

from pettingllms_envs.agents.base import Agent, Request, Scripted, check_carried
from pettingllms_envs.agents.servers import with_server
from pettingllms_envs.agents.spec import AgentPool, AgentSpec, parse
from pettingllms_envs.episodes.observing import roles_of
from pettingllms_envs.prompts import CARRIED
from pettingllms_envs.registry import make
from pettingllms_envs.spaces import ChatText


Player = str | Callable[[Request], str] | Agent


@runtime_checkable
class PlayedByOne(Protocol):
    """An optional feature of a task: its environment has a form for one agent, which Gymnasium's id makes."""

    @property
    def single_agent(self) -> str:
        """The name of its workflow, which has a single agent."""


class Seat(gymnasium.Env[Any, Any]):
    """One agent's place in a team as a `gymnasium.Env`, while the others are played for it.

    An action is any `str`. An observation of texts is a `str`, the system prompt and the text with an empty line
    between them, and its space `ChatText`; one with images, messages or other keys is a dictionary, as in PettingZoo.
    The reward of a step is what the agent is paid until its next turn, also by the turns of others; what it is paid
    before its first turn comes with its first step. So an episode's rewards add up to those of `AECEnv.last()`. It can
    be copied and pickled in the middle of an episode where its arguments can.

    Args:
        env: Any PettingZoo AEC environment of texts, which the seat then plays and closes.
        agent: Name of the agent to be, such as `"planner_0"`.
        others: The players of the others: what `pettingllms bench --agents` takes, such as `"oracle"`, `"bot:NAME"` or
            `"api:MODEL,base_url=http://localhost:8000/v1"`, a function from an `agents.base.Request` to a reply, or an
            `agents.base.Agent`; or a mapping with one of them for each agent or role. None if there are no others.

    Raises:
        ValueError: There is no such agent, nobody plays one of the others, or a player cannot be made.
        TypeError: A player is none of the above.
    """

    def __init__(self, env: Any, agent: str, others: Player | Mapping[str, Player] | None = None) -> None:
        if not hasattr(env, "possible_agents"):
            made = "pettingllms_envs.make" + (f"({env!r})" if isinstance(env, str) else "(...)")
            raise TypeError(f"env is {env!r}; expected a PettingZoo AEC environment. Make it: {made}.")
        self._roles = roles_of(env)
        if agent not in self._roles:
            raise ValueError(f"agent is {agent!r}; expected one of {', '.join(self._roles)}. Choose the one to be.")
        if not isinstance(others, Mapping):
            others = {} if others is None else {(isinstance(others, str) and parse(others)[0]) or "": others}
        if unknown := others.keys() - {"", *self._roles, *self._roles.values()}:
            known = ", ".join(dict.fromkeys([*self._roles, *self._roles.values()]))
            raise ValueError(f"others names {', '.join(sorted(unknown))}; expected some of {known}. Rename them.")
        self.env, self.agent, self._others = env, agent, others
        self.metadata, self.render_mode = {"render_modes": [], **env.metadata}, getattr(env, "render_mode", None)
        space = env.observation_space(agent)
        self._is_text = isinstance(space, Dict) and "text" in space.keys() <= set(CARRIED)
        # No `Text`, of which an asynchronous vector's shared memory makes zeros.
        self.observation_space = ChatText() if self._is_text or isinstance(space, Text) else space
        self.action_space = env.action_space(agent)
        self._players, self._pools = dict[str, Agent](), list[AgentPool]()
        self._is_acting, self._earlier, self._num_replies = False, 0.0, 0
        if len(self._roles) > 1:
            self._open()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode, and play it up to the agent's first turn; `ValueError` if it has none.

        Args:
            seed: Decides the instance as in PettingZoo, and the seeds of the others' replies. Without it, up to 100
                instances in which the agent has no turn are passed over.
            options: Fields of the instance, such as `{"split": "test"}`.
        """
        super().reset(seed=seed)
        for _ in range(100 if seed is None else 1):
            self._is_acting, self._num_replies = False, 0
            self.env.reset(seed=seed, options=options or None)
            if self._play_others():
                observation, self._earlier, _, _, info = self._last()
                if self._is_acting:
                    return observation, info
        raise ValueError(f"{self.agent} has no turn with the seed {seed}; expected one. Choose another agent or seed.")

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play the agent's reply, and what follows up to its next turn or its end.

        Raises:
            TypeError: The action is not a `str`; the episode stays where it was.
            ResetNeeded: No episode has begun, or it is over for the agent, perhaps by an error of another player.
        """
        if not self._is_acting:
            raise ResetNeeded(f"{self.agent} has no turn: no episode has begun, or it is over. Call reset().")
        self.env.step(action)
        self._is_acting = False
        self._num_replies += 1
        if not self._play_others():
            raise RuntimeError(f"{self.env} removed {self.agent} without its dead step; expected `agents` to keep it.")
        observation, reward, terminated, truncated, info = self._last()
        earlier, self._earlier = self._earlier, 0.0
        return observation, earlier + reward, terminated, truncated, info

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()
        for pool in self._pools:
            pool.close()
        self._players, self._pools = {}, []

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_players": {}, "_pools": []}  # they are made again

    def _play_others(self) -> bool:
        """Play the others' turns and dead steps until the agent is selected. Returns whether it is."""
        env = self.env
        while env.agents and (name := env.agent_selection) != self.agent:
            is_over = env.terminations[name] or env.truncations[name]
            env.step(None if is_over else self._reply(name))
        return bool(env.agents)

    def _last(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.last()
        if self._is_text:
            observation = "\n\n".join(filter(None, (observation.get("system"), observation["text"])))
        self._is_acting = not (terminated or truncated)
        return observation, float(reward), bool(terminated), bool(truncated), dict(info)

    def _reply(self, name: str) -> str:
        """The reply of another agent, which is to act."""
        from pettingllms_envs.episodes.episode import request_to  # only those pay for it who have others

        if name not in self._players:
            self._open(name)
        request = request_to(self.env, seed=int(self.np_random.integers(2**31)), step=self._num_replies)
        self._num_replies += 1
        check_carried(self._players[name], request)
        return self._players[name].reply(request).text

    def _open(self, *joined: str) -> None:
        """Make the players ready that are not: of the possible agents, and of those that joined."""
        from pettingllms_envs.evaluation import agent_pools, teams  # only those pay for it who have others

        specs, missing = dict[str, AgentSpec](), list[str]()
        for name in dict.fromkeys((*self._roles, *joined)):
            if name == self.agent or name in self._players:
                continue
            role = self._roles.get(name, name)
            given = next((self._others[key] for key in (name, role, "") if key in self._others), None)
            if given is None:
                missing.append(name)
            elif isinstance(given, str):
                of, spec = parse(given)
                if of not in (None, name, role):
                    raise ValueError(f"others has {given!r} for {name}; expected a player of that role. Correct it.")
                specs[name] = teams.spec_of(spec, name, role, {}) if spec.kind == teams.KIND else with_server(spec)
            elif hasattr(given, "reply") or callable(given):
                self._players[name] = given if hasattr(given, "reply") else Scripted(given)
            else:
                raise TypeError(f"others has {given!r} for {name}; expected a text such as 'oracle', or a function.")
        if missing:
            raise ValueError(
                f"nobody plays {', '.join(missing)}; expected a player for each agent but {self.agent}, those that "
                f"join later included. Give others='oracle', or others={{{missing[0]!r}: 'oracle'}}."
            )
        agent_pools.check_bots(specs, self.env)
        self._pools.append(agent_pools.open_all(specs, 1))
        self._players |= self._pools[-1].agents


def seat(env: Any, agent: str, others: Player | Mapping[str, Player] | None = None) -> Seat:
    """One agent's place in a team as a `gymnasium.Env`; for the arguments see `Seat`."""
    return Seat(env, agent, others)


def make_single(env: str, agent: str = "", others: Any = None, **settings: Any) -> Seat:
    """What a Gymnasium id makes: an environment's form for one agent or, with `agent` or `others`, a seat in its team.

    Raises:
        ValueError: No workflow, agent or others are given, and the task declares no form, see `PlayedByOne`.
    """
    if not agent and others is None and "workflow" not in settings:
        team = make(env)
        if not isinstance(team.workflow.task, PlayedByOne):
            raise ValueError(
                f"{env} has no form for one agent, but the agents {', '.join(team.possible_agents)}; expected an "
                f"environment that has. Take an agent's seat: agent={team.possible_agents[0]!r}, others=..."
            )
        settings["workflow"] = team.workflow.task.single_agent
    made = make(env, **settings)
    return Seat(made, agent or (made.possible_agents[0] if len(made.possible_agents) == 1 else agent), others)
