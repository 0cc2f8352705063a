"""An environment of an OpenEnv server as a PettingZoo AEC environment: `"openenv:http://host:8000"`.

A server of `pettingllms serve`, or one whose observations have the same fields, is a team. Any other has one agent,
which observes the server's observation as JSON, and the fields of its action.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from types import NoneType
from typing import Any

from pettingzoo import AECEnv

from pettingllms_envs.core import UNREADABLE_PENALTY, Unreadable, check_whole
from pettingllms_envs.observations import Image, in_texts
from pettingllms_envs.prompts import encodable, read_observation
from pettingllms_envs.quoting import escape
from pettingllms_envs.registry import OPENENV
from pettingllms_envs.remote.openenv_client import ActionForm, Answer, OpenEnvClient, is_finite
from pettingllms_envs.spaces import ChatText, observation_space


LONE = "agent_0"
TEAM = {"agent", "agents", "messages", "rewards"}
"""Fields of an observation that make it a team's."""
NAMES, NUMBERS, SCALAR = [str], {str: float}, (str, int, float, bool, NoneType)
FIELDS: Mapping[str, Any] = {"agents": NAMES, "rewards": NUMBERS, "others": {str: dict}, "infos": {str: dict}}
INFO: Any = {"rewards": NUMBERS, "team_rewards": NAMES, "outcome": {str: SCALAR}, "turn": int, "judged": bool}
ABOUT: Mapping[str, Any] = {
    "roles": {str: str},
    "reset_options": {str: list},
    "reward_ranges": {str: [float]},
    "max_return": SCALAR,
    "delayed_roles": NAMES,
    "informed_roles": NAMES,
    "required_options": NAMES,
    "competitive": SCALAR,
    "judged": bool,
}


def load(name: str) -> Callable[..., OpenEnvEnv]:
    """What makes the environment `openenv:URL`."""
    return partial(OpenEnvEnv, name.removeprefix(OPENENV))


def fits(value: Any, kind: Any) -> bool:
    """Whether JSON data is of a type; `[str]` is a list of texts, `{str: float}` an object of finite numbers."""
    if isinstance(kind, list):
        return isinstance(value, list) and all(fits(each, kind[0]) for each in value)
    if isinstance(kind, dict):
        return isinstance(value, dict) and all(fits(each, kind[str]) for each in value.values())
    if kind is float:
        return is_finite(value) and not isinstance(value, bool)
    return isinstance(value, kind) and (is_finite(value) or not isinstance(value, int | float))


class OpenEnvEnv(AECEnv):  # type: ignore[misc]  # pettingzoo ships no types
    """A session with an OpenEnv server, or `ServiceFailed`; replayed where two resets with one seed are the same.

    Args:
        url: Of the server, such as `http://localhost:8000`.
        options: Of every reset, besides its seed and its own options.
        instructions: What the agent of a server that is no team's is told first, such as the rules.
        max_steps: Replies after which an episode is truncated.
        timeout: Seconds for a connection and for each answer.
    """

    def __init__(
        self, url: str, *, options: Any = None, instructions: str = "", max_steps: int = 100, timeout: float = 60.0
    ) -> None:
        super().__init__()
        check_whole("max_steps", max_steps, 1)
        if not (isinstance(options or {}, Mapping) and isinstance(instructions, str)):
            raise ValueError(
                f"options are {options!r:.100} and instructions {instructions!r:.100}; expected a mapping, such as "
                "{'size': 1}, and a text."
            )
        self.client, self._options, self._max = OpenEnvClient(url, timeout), options or {}, max_steps
        self._instructions, self.render_mode, self.agents = instructions, None, list[str]()
        schema = self.client.schema()
        self._form, shown = ActionForm(schema["action"]), schema["observation"]["properties"].keys()
        self._is_team = shown >= TEAM and self._form.fields.keys() == {"text"}
        self._space, self._replies = observation_space("messages"), ChatText(replies=("0", "1", "{}"))
        first, again = (self._ask("reset", {**self._options, "seed": 0}) for _ in range(2))
        if "tool_name" in self._form.fields:  # a server of tools, each with its arguments
            tools = self.client.ask("step", {"type": "list_tools"}).observation.get("tools")
            self._instructions += escape(json.dumps(tools))
        said: Any = first.observation["metadata"] if self._is_team else {"possible_agents": [LONE]}
        self.possible_agents: Any = said.get("possible_agents")
        about: Any = said.get("about", {})
        if not (self.possible_agents and fits(self.possible_agents, NAMES) and isinstance(about, dict)):
            self.client.failed("it does not name its agents")
        name = f"{OPENENV}{self.client.url}"
        self.metadata: dict[str, Any] = {
            "name": name,
            "render_modes": [],
            "is_parallelizable": False,
            "identity": f"{name} {hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()}",
            "branching": "replay" if first == again else "none",
            **{key: about[key] for key, kind in ABOUT.items() if key in about and fits(about[key], kind)},
        }

    def observation_space(self, agent: str) -> Any:
        return self._space

    def action_space(self, agent: str) -> ChatText:
        return self._replies

    def close(self) -> None:
        self.client.close()

    def observe(self, agent: str) -> dict[str, Any]:
        """What the server showed the agent at its last turn or the reset; if nothing, that it is not its turn."""
        return dict(self._shown.get(agent) or {"messages": [{"role": "user", "content": "It is not your turn."}]})

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        own = {} if seed is None else {"seed": seed}
        answer = self._ask("reset", {**self._options, **(options or {}), **own})
        self.agents = [each for each in self.possible_agents if each in answer.observation.get("agents", [LONE])]
        self._cumulative_rewards, self.infos = dict.fromkeys(self.agents, 0.0), dict[str, dict[str, Any]]()
        self.truncations, self._count = dict.fromkeys(self.agents, False), 0
        self._take(answer, None)

    def step(self, action: str | None) -> None:
        """Send the acting agent's reply; one that is no action is paid -0.2, and nothing else happens."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        if not isinstance(action, str):
            raise TypeError(f"step() got {type(action).__name__} for {agent}; expected a str. Any str is legal.")
        self._count, self._cumulative_rewards[agent] = self._count + 1, 0.0
        found = {"text": encodable(action)} if self._is_team else self._form.read(action)
        try:
            if isinstance(found, Unreadable):
                raise ValueError(found.reason)
            self._take(self._ask("step", found), agent)
        except ValueError as why:
            if self._is_team:  # whose action is any text
                self.client.failed(f"it refused a text: {why}")
            self._pay({agent: UNREADABLE_PENALTY}, {agent: {"rewards": {"format": UNREADABLE_PENALTY}}})
            self._show(f"Your last reply was not sent: {why}")
        if self._count >= self._max and not any(self.terminations.values()):
            self.truncations = dict.fromkeys(self.agents, True)
        self._accumulate_rewards()
        self._deads_step_first()

    def _ask(self, kind: str, data: Mapping[str, Any]) -> Answer:
        """The server's answer; of a team's one whose observation has the types that `openenv_server.Turn` has."""
        answer = self.client.ask(kind, data)
        if not self._is_team:
            return answer
        found, said = answer.observation, answer.observation.get("metadata", {})
        said = said if isinstance(said, dict) else {}
        typed = {"others": {}, "infos": {}, **found, **said, "metadata": said}
        wrong = [name for name, type_ in FIELDS.items() if not fits(typed.get(name), type_)]
        infos = [] if wrong else typed["infos"].values()
        wrong += [key for info in infos for key, type_ in INFO.items() if key in info and not fits(info[key], type_)]
        if wrong or not (answer.done or typed.get("agent") in typed["agents"]):
            self.client.failed(f"its answer has another {[*wrong, 'agent'][0]!r} than a team's")
        return answer._replace(observation=typed)

    def _take(self, answer: Answer, acted: str | None) -> None:
        """Take over what the server says of the episode."""
        found, self._observed = answer.observation, answer.observation
        if not self._is_team:
            parts = {} if acted is None else {"reward": answer.reward}
            self.agent_selection, self.terminations = LONE, {LONE: answer.done}
            self._pay({LONE: sum(parts.values())}, {LONE: {"rewards": parts}})
            self._show()
            return
        named = {name for key in ("agents", "rewards", "others", "infos") for name in found[key]}
        if named - {*self.possible_agents} or acted not in (None, *found["rewards"]):  # and no reward is lost
            self.client.failed(
                f"it names {sorted(named)!s:.200}; expected {self.possible_agents}, and {acted}'s reward"
            )
        live = found["agents"]
        self.agents += [agent for agent in live if agent not in self.agents]
        self._cumulative_rewards = {agent: self._cumulative_rewards.get(agent, 0.0) for agent in self.agents}
        is_cut = answer.done and found.get("truncated") is True
        self.truncations = dict.fromkeys(self.agents, is_cut)
        self.terminations = {agent: not is_cut and (answer.done or agent not in live) for agent in self.agents}
        infos = {agent: {key: info[key] for key in INFO if key in info} for agent, info in found["infos"].items()}
        self._pay({} if acted is None else found["rewards"], infos)
        self._shown = {agent: self._read(shown, agent) for agent, shown in found["others"].items()}
        if not answer.done:
            self.agent_selection = found["agent"]
            self._shown[self.agent_selection] = self._read(found, self.agent_selection)

    def _pay(self, rewards: Mapping[str, float], infos: Mapping[str, dict[str, Any]]) -> None:
        self.rewards = {agent: float(rewards.get(agent, 0.0)) for agent in self.agents}
        self.infos = {agent: {**self.infos.get(agent, {}), **infos.get(agent, {})} for agent in self.agents}

    def _read(self, found: Mapping[str, Any], agent: str) -> dict[str, Any]:
        """What an agent of a team observes."""
        from pettingllms_envs.pictures import opened  # Pillow is loaded only by those who look

        try:
            images = [Image.of_url(each["url"], escape(str(each["alt"]))) for each in found.get("images", ())]
            for image in images:
                opened(image)  # what is too large or none is this server's failure, not the trainer's
            messages = in_texts([dict(each) for each in found["messages"]], escape)
            for each in messages:
                if isinstance(each["content"], list):
                    each["content"] = [p if isinstance(p, str) else images[p["image"]] for p in each["content"]]
            observation = {"messages": messages, "tools": in_texts(found.get("tools", []), escape)}
            read_observation(observation, agent=agent)
        except (TypeError, ValueError, LookupError) as error:
            self.client.failed(f"{type(error).__name__}: {error}")
        return observation

    def _show(self, note: str = "") -> None:
        """Show the lone agent the server's observation, and how it writes an action."""
        system = {"role": "system", "content": f"{self._instructions}\n{escape(self._form.words)}".strip()}
        text = escape(f"{json.dumps(self._observed, ensure_ascii=False)}\n{note}".strip())
        self._shown = {LONE: {"messages": [system, {"role": "user", "content": text}]}}
