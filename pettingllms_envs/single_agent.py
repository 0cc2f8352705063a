"""One agent's seat in a team as a single-agent environment of Gymnasium, and what Gymnasium's ids make.

    >>> env = pettingllms_envs.seat(pettingllms_envs.make("sokoban"), "planner_0", others="oracle")
    >>> env = gymnasium.make("pettingllms/sokoban-v0")  # the form for one agent that the task declares

A stock trainer of one agent plays a team's environment so. What the agent observes and is paid is what PettingZoo's
`env.last()` says at its turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Dict, Space, Text
from pettingzoo import AECEnv

from pettingllms_envs.agent_names import role_of
from pettingllms_envs.agents.base import Agent, Request, Scripted, check_carried
from pettingllms_envs.agents.servers import with_server
from pettingllms_envs.agents.spec import AgentSpec, parse
from pettingllms_envs.episodes.episode import derived_seed
from pettingllms_envs.episodes.observing import task_of
from pettingllms_envs.evaluation import teams
from pettingllms_envs.evaluation.agent_pools import AgentPools, open_all
from pettingllms_envs.evaluation.bench import check_bots, roles_of
from pettingllms_envs.features import PlayedByOne
from pettingllms_envs.prompts import limits_of, read_observation
from pettingllms_envs.registry import make
from pettingllms_envs.spaces import ChatText


Player = str | Callable[[Request], str] | Agent
Others = Player | Sequence[str] | Mapping[str, Player]

MOST_WITHOUT_TURN = 100
"""Instances in a row without a turn of the agent after which `reset` without a seed gives up."""


class Seat(gymnasium.Env[Any, Any]):
    """An agent's place in a team, while the others are played for it. Made by `seat`, which see for the arguments.

    An action is any `str`. An observation of a text is a `str`, the system prompt and the text with an empty line
    between them, so that the space is `ChatText`; one with images, messages or other keys is a dictionary, as in
    PettingZoo. The reward of a step, a float, is what the agent is paid for its reply and until its next turn, by the
    turns of others, too; what it is paid before its first turn comes with the first step, so that an episode's rewards
    add up to PettingZoo's. `terminated`, `truncated` and the info are the agent's own.

    It can be copied and pickled in the middle of an episode, as far as the environment and functions in `others` can.
    """

    def __init__(self, env: AECEnv[Any, Any, Any], agent: str, others: Others | None = None) -> None:
        roles = roles_of(env)
        if agent not in roles:
            raise ValueError(f"agent is {agent!r}; expected one of {', '.join(roles)}. Choose the one to be.")
        self.env, self.agent = env, agent
        self.metadata = {"render_modes": [], **env.metadata}
        self.render_mode = getattr(env, "render_mode", None)
        space = env.observation_space(agent)
        self._is_text = isinstance(space, Dict) and "text" in space.keys() <= {"system", "text"}
        self.observation_space = ChatText() if self._is_text else _with_chat_text(space)
        self.action_space = env.action_space(agent)
        self._given = _players(others, {*roles, *roles.values()})
        self._pools: list[AgentPools] = []
        self._played: dict[str, Agent] = {}
        self._is_acting = False
        self._earlier, self._seed, self._num_replies = 0.0, 0, 0
        self._open([name for name in roles if name != agent])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode, and play it up to the agent's first turn.

        Args:
            seed: Decides the instance as in PettingZoo, and the seeds of the others' replies. Without it, instances
                in which the agent has no turn are passed over.
            options: Fields of the instance, such as `{"split": "test"}`.

        Raises:
            ValueError: The agent has no turn in the seed's instance, or in a hundred that were drawn.
        """
        super().reset(seed=seed)
        for _ in range(MOST_WITHOUT_TURN if seed is None else 1):
            self._is_acting, self._num_replies = False, 0
            self._seed = int(self.np_random.integers(2**31))
            self.env.reset(seed=seed, options=options or None)
            if self._play_others():
                observation, self._earlier, *over, info = self._last()
                if not any(over):
                    self._is_acting = True
                    return observation, info
        drawn = f"the seed {seed}" if seed is not None else f"{MOST_WITHOUT_TURN} instances that were drawn"
        raise ValueError(
            f"{self.agent} has no turn in {drawn}; expected an episode in which it acts. Choose another seed or agent."
        )

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play the agent's reply, and what follows up to its next turn or its end.

        Raises:
            TypeError: The action is not a `str`; the episode stays where it was.
            ResetNeeded: There is no episode, it is over for the agent, or an error ended it.
            AgentFailed, AgentRefused: Another player could not reply. The episode is over.
        """
        if not self._is_acting:
            raise ResetNeeded(f"it is not the turn of {self.agent}: no episode has begun, or it is over. Call reset().")
        self.env.step(action)
        self._is_acting = False
        self._num_replies += 1
        if not self._play_others():
            raise RuntimeError(f"{self.env} removed {self.agent} without its dead step; expected `agents` to keep it.")
        observation, reward, terminated, truncated, info = self._last()
        reward, self._earlier = self._earlier + reward, 0.0
        self._is_acting = not (terminated or truncated)
        return observation, reward, terminated, truncated, info

    def render(self) -> Any:
        """What the environment renders."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment, and the other players' connections."""
        self.env.close()
        for pool in self._pools:
            pool.close()
        self._pools, self._played = [], {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_pools": [], "_played": {}}  # connections; they are opened again when needed

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
        return observation, float(reward), bool(terminated), bool(truncated), dict(info)

    def _reply(self, name: str) -> str:
        """Another agent's reply."""
        if name not in self._played:
            self._open([name])
        observation = self.env.observe(name)
        prompt = read_observation(observation, agent=name)
        number, self._num_replies = self._num_replies, self._num_replies + 1
        request = Request(
            env=self.env,
            agent=name,
            messages=prompt.messages,
            tools=prompt.tools,
            limits=limits_of(observation),
            seed=derived_seed(self._seed, "", 0, name, number),
            instance=0,
            sample=0,
            step=number,
        )
        check_carried(self._played[name], request)
        return self._played[name].reply(request).text

    def _open(self, names: Iterable[str]) -> None:
        """Make the players of agents ready."""
        roles = roles_of(self.env)
        specs: dict[str, AgentSpec] = {}
        missing = []
        for name in names:
            role = roles.get(name, role_of(name))
            given = next((self._given[key] for key in (name, role, "") if key in self._given), None)
            if given is None:
                missing.append(name)
            elif isinstance(given, AgentSpec):
                specs[name] = teams.spec_of(given, name, role, {}) if given.kind == teams.KIND else with_server(given)
            else:
                self._played[name] = given
        if missing:
            raise ValueError(
                f"nobody plays {', '.join(missing)}; expected a player for each agent but {self.agent}, those that "
                f"join later included. Give others='oracle', or others={{{missing[0]!r}: 'oracle'}}."
            )
        check_bots(specs, self.env)
        self._pools.append(open_all(specs, 1))
        self._played |= self._pools[-1].agents


def seat(env: AECEnv[Any, Any, Any], agent: str, others: Others | None = None) -> Seat:
    """One agent's place in a team as a `gymnasium.Env`; see `Seat` for what it observes and is paid.

    Args:
        env: Any PettingZoo AEC environment of texts, which the seat then plays and closes.
        agent: Name of the agent to be, such as `"planner_0"`.
        others: Who plays the others: what `pettingllms bench --agents` takes, such as `"oracle"`, `"bot:NAME"` or
            `"api:MODEL,base_url=http://localhost:8000/v1"`; a function from an `agents.base.Request` to a reply; or an
            `agents.base.Agent`. One of them is for everybody, also for agents that join later. A mapping has one for
            each agent or role, as has a list of texts such as `"drafter=oracle"`. None if there are no others.

    Raises:
        ValueError: There is no such agent, or no player for one of the others, or a player cannot be made.
        TypeError: A player is none of these.
    """
    return Seat(env, agent, others)


def make_single(env: str, agent: str | None = None, others: Others | None = None, **settings: Any) -> Seat:
    """The environment of a Gymnasium id: the form for one agent that its task declares, see `features.PlayedByOne`.

    Args:
        env: Name of the environment.
        agent: As in `seat`; None where there is one only.
        others: As in `seat`, for a `workflow` of several agents.
        **settings: Of the environment; a `workflow` replaces the declared one.

    Raises:
        ValueError: It declares no such form and none is given, or a setting is out of range.
    """
    if "workflow" not in settings:
        task = task_of(made := make(env))
        if not isinstance(task, PlayedByOne):
            agents = ", ".join(made.possible_agents)
            raise ValueError(
                f"{env} has no form for one agent, but the agents {agents}; expected an environment that has. Take an "
                f"agent's seat: pettingllms_envs.seat(env, {made.possible_agents[0]!r}, others=...)."
            )
        settings["workflow"] = task.single_agent
    made = make(env, **settings)
    return Seat(made, made.possible_agents[0] if agent is None and len(made.possible_agents) == 1 else agent, others)


def _players(others: Others | None, known: set[str]) -> dict[str, AgentSpec | Agent]:
    """The players by the agent or role that they are for; under "" the one for everybody else."""
    if isinstance(others, Mapping):
        pairs = [(name, _player(each)) for name, each in others.items()]
    else:
        listed = others if isinstance(others, list | tuple) else [] if others is None else [others]
        pairs = [(parse(each)[0] or "" if isinstance(each, str) else "", _player(each)) for each in listed]
    found = dict(pairs)
    if unknown := [name for name in found if name and name not in known]:
        raise ValueError(f"others names {', '.join(unknown)}; expected among {', '.join(sorted(known))}. Rename them.")
    if len(found) < len(pairs):
        raise ValueError(f"others is {others!r}, two players for one role; expected one. Leave one out.")
    return found


def _player(given: Any) -> AgentSpec | Agent:
    if isinstance(given, str):
        return parse(given)[1]
    if hasattr(given, "reply"):
        return given  # type: ignore[no-any-return]
    if not callable(given):
        raise TypeError(f"others has {given!r}; expected a text such as 'oracle', a function, or an Agent.")
    return Scripted(given)


def _with_chat_text(space: Space[Any]) -> Space[Any]:
    """The space with `ChatText` for `Text`, whose texts an asynchronous vector's shared memory replaces by zeros."""
    if isinstance(space, Dict):
        return type(space)({name: _with_chat_text(each) for name, each in space.items()})
    return ChatText() if isinstance(space, Text) else space
