"""A team as an OpenEnv server, by the package `openenv`: a session has an environment, a reply is an action."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import uvicorn
from openenv.core.env_server import Action, ConcurrencyConfig, Environment, Observation, State, create_fastapi_app
from pydantic import Field

from pettingllms_envs.prompts import images_of, read_observation
from pettingllms_envs.remote.openenv_env import ABOUT
from pettingllms_envs.settings import to_json


MOST_BYTES = 4_000_000  # of a message of a client, or of the body of its request
IDLE = 3600.0  # seconds without a message after which a session is closed


class Reply(Action):  # type: ignore[misc]  # openenv is not here when types are checked
    """What the acting agent says: any text."""

    text: str


class Turn(Observation):  # type: ignore[misc]
    """A team between two replies.

    `agent` acts, None at the end, of the `agents` that are there. It is shown `messages`, whose content is a text or a
    list of texts and `{"image": number}`, with these `images` as data URLs, and may call the `tools`. `rewards` are
    those of the last reply, and `reward` that of the agent which gave it. At a reset `others` has what the others are
    shown. `metadata` has `infos`, and whether the end `truncated` the episode.
    """

    agent: str | None = None
    agents: list[str] = Field(default_factory=list)
    messages: list[dict[str, Any]] = Field(default_factory=list)
    images: list[dict[str, str]] = Field(default_factory=list)
    tools: list[dict[str, Any]] = Field(default_factory=list)
    rewards: dict[str, float] = Field(default_factory=dict)
    others: dict[str, dict[str, Any]] = Field(default_factory=dict)


def shown(observation: Any, agent: str) -> dict[str, Any]:
    """An observation as the fields of a `Turn`."""
    prompt = read_observation(observation, agent=agent)
    images = images_of(prompt.messages)

    def plain(content: Any) -> Any:
        parts = content if isinstance(content, list) else []
        return [part if isinstance(part, str) else {"image": images.index(part)} for part in parts] or content

    messages = [{**each, "content": plain(each["content"])} for each in prompt.messages]
    files = [{"url": image.url, "alt": image.alt} for image in images]
    return {"messages": messages, "images": files, "tools": [dict(tool) for tool in prompt.tools]}


def team_of(make: Callable[[], Any]) -> type[Environment[Reply, Turn, State]]:
    """OpenEnv's environment around one of ours."""

    class Team(Environment[Reply, Turn, State]):  # type: ignore[misc]  # openenv is not here when types are checked
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self.env = make()
            self.about = to_json({name: self.env.metadata[name] for name in ABOUT if name in self.env.metadata})

        def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Turn:
            env, known = self.env, self.env.metadata.get("reset_options")
            if unknown := [name for name in options if known is not None and name not in known]:
                raise ValueError(f"unknown options {unknown!r:.200}; expected some of: {', '.join(known) or 'none'}.")
            env.reset(seed=seed, options=options or None)
            others = {agent: shown(env.observe(agent), agent) for agent in env.agents if agent != env.agent_selection}
            return self.turn(others=others, possible_agents=list(env.possible_agents), about=self.about)

        def step(self, action: Reply, timeout_s: float | None = None, **_: Any) -> Turn:
            env = self.env
            if not env.agents:
                raise RuntimeError("there is no episode, or it is over. Reset first.")
            acted = env.agent_selection
            env.step(action.text)
            return self.turn(acted)

        def turn(self, acted: str | None = None, *, others: Mapping[str, Any] | None = None, **more: Any) -> Turn:
            env = self.env
            rewards = {agent: float(reward) for agent, reward in env.rewards.items()}
            infos, truncated = to_json(env.infos), any(env.truncations.values())
            while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
                env.step(None)
            agent = env.agent_selection if env.agents else None
            return Turn(
                agent=agent,
                agents=list(env.agents),
                rewards=rewards,
                done=agent is None,
                reward=None if acted is None else rewards[acted],
                others=dict(others or {}),
                metadata={"infos": infos, "truncated": truncated} | more,
                **({} if agent is None else shown(env.observe(agent), agent)),
            )

        @property
        def state(self) -> State:
            return State()

        def close(self) -> None:
            self.env.close()

    return Team


def app_of(make: Callable[[], Any], *, sessions: int) -> Any:
    """The ASGI application that serves an environment to as many sessions at the same time."""
    config = ConcurrencyConfig(max_concurrent_envs=sessions, session_timeout=IDLE)
    app = create_fastapi_app(team_of(make), Reply, Turn, concurrency_config=config)

    async def bounded(scope: Any, receive: Any, send: Any) -> None:
        size = dict(scope.get("headers", ())).get(b"content-length", b"x" if scope.get("method") == "POST" else b"0")
        if size.isdigit() and int(size) <= MOST_BYTES:
            await app(scope, receive, send)
        else:
            words = b"the body has %s bytes; expected its length, at most %d." % (size, MOST_BYTES)
            await send({"type": "http.response.start", "status": 413, "headers": [(b"connection", b"close")]})
            await send({"type": "http.response.body", "body": words})

    return bounded


def serve(make: Callable[[], Any], *, host: str, port: int, sessions: int) -> None:
    """Serve it until Ctrl-C."""
    how: Any = {"log_level": "warning", "ws": "websockets-sansio", "ws_max_size": MOST_BYTES}
    most = 4 * sessions + 64  # connections
    uvicorn.run(app_of(make, sessions=sessions), host=host, port=port, limit_concurrency=most, **how)
