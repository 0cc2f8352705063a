"""Plays one episode of a PettingZoo AEC environment for language models, ours or third-party, and records it."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, cast

from pettingllms_envs.agents.answers import finish_of
from pettingllms_envs.agents.base import Agent, AgentFailed, Reply, Request, check_carried
from pettingllms_envs.episodes import observing
from pettingllms_envs.episodes.files import FORMAT, digest
from pettingllms_envs.episodes.prompts import Tools, recorded, with_tools
from pettingllms_envs.episodes.schema import EpisodeRow, ErrorFields, Step
from pettingllms_envs.failures import EpisodeRestart, Unavailable
from pettingllms_envs.observations import Image, Prompt
from pettingllms_envs.prompts import images_of, limits_of, read_observation
from pettingllms_envs.replies.counted import CountedReply, TakesReply


@dataclass(frozen=True, slots=True)
class Instance:
    """A problem of a run.

    Args:
        index: Its index among the run's instances, from 0.
    """

    index: int
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Instance:
        return cls(row["instance"]["index"], row["instance"]["seed"], row["instance"]["options"])

    @property
    def key(self) -> str:
        """The key from which seeds of replies are derived: it identifies the problem, whatever its index."""
        return repr((self.seed, sorted(self.options.items())))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """The limits of every episode of a run.

    Args:
        seed: Seed of the run, from which the seed of each reply is derived.
        max_steps: An episode is truncated after this many steps, since a third-party environment may never end.
        episode_tokens: An episode ends after this many prompt and completion tokens of all agents; None: no limit.
        generated_tokens: Most completion tokens of all agents in an episode, thinking included; None: no limit. The
            reply that goes beyond it is not played, and the episode ends there.
    """

    seed: int = 0
    max_steps: int = 1000
    episode_tokens: int | None = None
    generated_tokens: int | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> RunLimits:
        """Those among the arguments of a command, or in the configuration of a record."""
        return cls(**{each.name: given[each.name] for each in fields(cls) if each.name in given})

    @property
    def recorded(self) -> dict[str, int | None]:
        """As `run.json` has them; older records have no word of what they do not limit."""
        return {name: value for name, value in asdict(self).items() if value is not None or name == "episode_tokens"}


class Stopped(Exception):
    """The run was stopped; the episode is incomplete and has no row."""


def episode(
    env: Any,
    instance: Instance,
    sample: int,
    agents: Mapping[str, Agent],
    rules: RunLimits,
    *,
    stopped: Callable[[], bool] = lambda: False,
    keep: Callable[[Image], object] = lambda image: None,
) -> EpisodeRow:
    """Play an episode to its end and return its row (docs/records.md).

    If an agent fails or the environment raises, the episode ends with `error`, which is no failure to solve it.

    Args:
        env: Any AEC environment. For ours, `state_hash`, the scopes of rewards and the outcome are recorded, too.
        sample: Number of the episode on this instance, from 0.
        keep: Called with every image of a prompt, of which the row has the digest.

    Raises:
        Stopped: `stopped()` was true.
        Unavailable: This machine lacks what the environment needs.
        Exception: An agent raised something other than `AgentFailed`: `AgentRefused`, or a bug.
    """
    began, clock = time.time(), time.perf_counter()
    recorder = EpisodeRecorder(env, instance, keep)
    error: ErrorFields | None = None
    end = ""
    try:
        recorder.reset()
        while not (end := recorder.end(rules)):
            if stopped():
                raise Stopped
            recorder.step(agents[env.agent_selection], sample, rules)
    except AgentFailed as failed:
        error = {"kind": failed.kind, "message": str(failed)}
    except Unavailable:
        raise
    except EpisodeRestart:
        return episode(env, instance, sample, agents, rules, stopped=stopped, keep=keep)
    except Exception as failed:  # a third-party environment may raise anything; the row says what
        kind = getattr(failed, "kind", None) if recorder.is_asking else "environment"
        if not isinstance(kind, str) or isinstance(failed, Stopped):
            raise
        error = {"kind": kind, "message": f"{type(failed).__name__}: {failed}"}
    if error is not None:
        end = "error"
        error |= {"agent": recorder.asked, "step": len(recorder.steps), "reply": recorder.replied}
    row = recorder.row(sample, end, error)
    row["timing"] = {"began": round(began, 3), "seconds": round(time.perf_counter() - clock, 4)}
    return row


class EpisodeRecorder:
    """Records an episode while it is played: environment, and row so far; `keep` gets every image of a prompt."""

    def __init__(self, env: Any, instance: Instance, keep: Callable[[Image], object] = lambda image: None) -> None:
        self.env, self.instance, self._keep = env, instance, keep
        self.steps: list[Step] = []
        self.asked: str | None = None
        self.replied: str | None = None
        self.is_asking = False
        self._returns: dict[str, float] = {}
        self._outcome: dict[str, Any] | None = None
        self._success: bool | None = None
        self._turns: dict[str, int] = {}
        self._tokens = 0
        self._generated = 0
        self._is_out_of_tokens = False
        self._tools: list[Tools] = []
        self._over: str = ""
        self._problem: str | None = None
        self._answer: str | None = None

    def reset(self) -> None:
        self.env.reset(seed=self.instance.seed, options=dict(self.instance.options) or None)
        self._returns = dict.fromkeys(self.env.agents, 0.0)
        self._problem = observing.problem_of(self.env)
        self._look(observing.infos_of(self.env))

    def end(self, rules: RunLimits) -> str:
        """Why the episode is over, or an empty string. Dead steps of finished agents are taken here."""
        if self._is_out_of_tokens:
            return "budget"
        while self.env.agents and (over := self._how_over()):
            self._over = over
            self.env.step(None)
        if not self.env.agents:
            return self._over or "terminated"
        if len(self.steps) >= rules.max_steps:
            return "cut"
        if rules.episode_tokens is not None and self._tokens >= rules.episode_tokens:
            return "budget"
        return ""

    def step(self, agent: Agent, sample: int, rules: RunLimits) -> None:
        name, number = self.env.agent_selection, len(self.steps)
        self.asked = name
        seed = derived_seed(rules.seed, self.instance.key, sample, name, number)
        request = request_to(self.env, seed=seed, instance=self.instance.index, sample=sample, step=number)
        step = self._fields(name, request)
        clock = time.perf_counter()
        self.is_asking = True
        check_carried(agent, request)
        reply = agent.reply(request)
        self.is_asking = False
        seconds = time.perf_counter() - clock
        self._tokens += (reply.prompt_tokens or 0) + (reply.completion_tokens or 0)
        self._generated += reply.completion_tokens or 0
        if rules.generated_tokens is not None and self._generated > rules.generated_tokens:
            self._is_out_of_tokens = True
            return
        self.play(reply.text, step | reply_fields(reply, seed))
        self.steps[-1]["timing"] = {"seconds": round(seconds, 4), "tries": reply.tries}

    def prompt_fields(self, agent: str) -> dict[str, Any]:
        """The fields of a step's record that describe the state before the reply."""
        return self._fields(agent, read_observation(self.env.observe(agent), agent=agent))

    def _fields(self, agent: str, prompt: Prompt | Request) -> dict[str, Any]:
        for image in images_of(prompt.messages):
            self._keep(image)
        fields = {"agent": agent, "turn": self._turn_of(agent), "state": observing.state_hash(self.env)}
        return {**fields, **recorded(prompt.messages), **with_tools(prompt.tools, self._tools)}

    def play(self, reply: str, step: dict[str, Any]) -> None:
        env = self.env
        self.asked, self.replied = env.agent_selection, reply
        env.step(_with_counts(reply, step) if isinstance(env.unwrapped, TakesReply) else reply)
        rewards = {agent: float(reward) for agent, reward in env.rewards.items()}
        for agent, reward in rewards.items():
            if not math.isfinite(reward):
                raise ValueError(f"the environment's reward for {agent} is {reward}; expected a finite number.")
            self._returns[agent] = self._returns.get(agent, 0.0) + reward
        infos = observing.infos_of(env)
        step |= {"rewards": rewards, "parts": observing.parts_of(env, infos)}
        if (reading := observing.reading_of(env)) is not None:
            step["reading"] = reading
        self._look(infos)
        self.steps.append(cast("Step", step))
        self.asked = self.replied = None

    def row(self, sample: int, end: str, error: ErrorFields | None) -> EpisodeRow:
        """The row of the episode so far, without `timing`."""
        row: EpisodeRow = {
            "format": FORMAT,
            "instance": {
                "index": self.instance.index,
                "env": str(self.env.metadata.get("name", type(self.env.unwrapped).__name__)),
                "seed": self.instance.seed,
                "options": dict(self.instance.options),
                "problem": self._problem,
            },
            "sample": sample,
            **({"tools": self._tools} if self._tools else {}),  # type: ignore[typeddict-item]  # mypy loses the key
            "steps": self.steps,
            "end": end,
            "turns": max(self._turns.values(), default=len(self.steps)),
            "success": None if error is not None else self._success,
            "outcome": self._outcome,
            "answer": self._answer,
            "returns": self._returns,
            "state": None if error is not None else observing.state_hash(self.env),
            **observing.state_fields(self.env.metadata),  # type: ignore[typeddict-item]
            "error": error,
        }
        row["digest"] = digest(row)
        return row

    def _how_over(self) -> str:
        agent = self.env.agent_selection
        if self.env.terminations[agent]:
            return "terminated"
        return "truncated" if self.env.truncations[agent] else ""

    def _look(self, infos: observing.Infos) -> None:
        """Read the outcome and the turns from the infos."""
        outcomes = (info["outcome"] for info in infos.values() if isinstance(info.get("outcome"), Mapping))
        outcome = next(outcomes, None)
        if outcome is not None:
            self._outcome = {name: observing.plain(value) for name, value in outcome.items()}
            self._success = observing.success_of(outcome)
        self._answer = observing.answer_of(self.env, infos, outcome)
        self._turns |= {agent: int(info["turn"]) for agent, info in infos.items() if isinstance(info.get("turn"), int)}

    def _turn_of(self, agent: str) -> int:
        """The environment's number of the agent's turn or, without one, how often the agent has been asked."""
        return self._turns.get(agent, 1 + len([step for step in self.steps if step["agent"] == agent]))


def request_to(env: Any, *, seed: int, step: int, instance: int = 0, sample: int = 0) -> Request:
    """The request for the acting agent's reply, see `Request`; an error says what is wrong with its observation."""
    agent = env.agent_selection
    observation = env.observe(agent)
    prompt = read_observation(observation, agent=agent)
    return Request(
        env=env,
        agent=agent,
        messages=prompt.messages,
        tools=prompt.tools,
        limits=limits_of(observation),
        seed=seed,
        instance=instance,
        sample=sample,
        step=step,
    )


def _with_counts(reply: str, step: Mapping[str, Any]) -> CountedReply:
    """The reply of a step's record with what the record says of its tokens."""
    tokens = step.get("tokens") or {}
    was_cut = step.get("finish") == "length"
    return CountedReply(reply, tokens.get("prompt") or 0, tokens.get("completion") or 0, was_cut)


def derived_seed(run: int, instance: str, sample: int, agent: str, step: int) -> int:
    """The seed of one reply, below 2^31: it depends on the request, not on when it is sent or how often."""
    name = repr((run, instance, sample, agent, step))
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 1


def reply_fields(reply: Reply, seed: int) -> dict[str, Any]:
    """The fields of a step's record that describe a reply."""
    num_tool_calls = getattr(reply, "num_tool_calls", 0)  # replies of plug-ins are classes of their own
    note = getattr(reply, "usage_note", None)
    return {
        "reply": reply.text,
        "reasoning": reply.reasoning,
        "tokens": {"prompt": reply.prompt_tokens, "completion": reply.completion_tokens},
        **({"usage_note": note} if note else {}),
        "finish": finish_of(reply.finish),
        "model": reply.model,
        "seed": seed,
        **({"tool_calls": num_tool_calls} if num_tool_calls else {}),
    }
