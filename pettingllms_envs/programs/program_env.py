"""A program as a PettingZoo AEC environment: each of its calls to the endpoint is a decision."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium.spaces import Dict
from pettingzoo import AECEnv

from pettingllms_envs.core import TEAM, Parts, scalars
from pettingllms_envs.failures import EpisodeRestart, ProgramFailed
from pettingllms_envs.observations import Limits
from pettingllms_envs.programs.endpoint import endpoint
from pettingllms_envs.programs.program import REMEDY, Program
from pettingllms_envs.programs.repeating import check_repeats
from pettingllms_envs.programs.rewards import CHANNEL, PRINTED, added, check_ranges
from pettingllms_envs.programs.runs import start
from pettingllms_envs.programs.session import LONGEST_WAIT, Call, Ended, Session
from pettingllms_envs.replies.counted import CountedReply
from pettingllms_envs.spaces import ChatText, observation_space


class ProgramEnv(AECEnv[str, Any, str | None]):  # type: ignore[misc]  # pettingzoo ships no types
    """A program as an environment; `pettingllms_envs.programs.program` makes it.

    `reset` starts the program and waits for its first call. The agent that asks is `agent_selection`, it observes the
    call's messages and tools, and `step` sends its reply and waits for the next call, or for the end. All agents
    terminate together when the program ends. `infos[agent]` has

    * `rewards`, the parts of the step's reward by name, `team_rewards`, the names of those that are everybody's, and
      `parts`, all of them by scope;
    * `outcome`: `success`, if the program has a `success`, and `refused_requests`, those answered with an error.

    A state is returned to by playing the same replies again (`metadata["branching"]` is `"replay"`), and is known by
    them alone (`metadata["state"]` is `"history"`).
    """

    takes_reply = True
    _session: Session | None = None

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.possible_agents = list(dict.fromkeys(program.names.values()))
        self.metadata: dict[str, Any] = {
            "name": program.name or f"program_{getattr(program.target, '__name__', 'command')}",
            "render_modes": [],
            "is_parallelizable": False,
            "branching": "replay",
            "state": "history",
            "replay_remedy": REMEDY,
            "program": program.rewards,
            "delayed_roles": self.possible_agents if program.rewards == "end" else [],
        }
        if program.reward_ranges is not None:
            self.metadata["reward_ranges"] = dict(program.reward_ranges)
            self.metadata["crash_reward"] = float(sum(least for least, _ in program.reward_ranges.values()))
        if program.reset_options is not None:
            self.metadata["reset_options"] = dict(program.reset_options)
        self._observation_space, self._action_space = observation_space("messages"), ChatText(replies=("0",))
        self.agents: list[str] = []
        self._stop: Callable[[], None] = lambda: None

    def observation_space(self, agent: str) -> Dict:
        """Chat messages and tools."""
        return self._observation_space

    def action_space(self, agent: str) -> ChatText:
        return self._action_space

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start the program on a row, its `seed`, or 0, and `options`, and wait for its first call.

        Raises:
            ValueError: The program ended without a call, so it does not use the base URL.
            ProgramFailed: It failed before its first call.
        """
        self.close()
        program = self.program
        self._session = Session(
            program.names, program.state, program.normalize, is_paid_by_step=program.rewards == "by step"
        )
        base_url, row = endpoint().open(self._session), {"seed": seed or 0, **(options or {})}
        self._stop = start(program.target, self._session, base_url, row, program.variables)
        self._row = repr(row)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict(self.rewards)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self._call: Call | None = None
        self._so_far = hashlib.sha256()
        self._return = dict(self.rewards)
        self._has_rewards = False
        self.infos = self._infos({})
        self._take()

    def observe(self, agent: str) -> dict[str, Any]:
        """What the agent asks, as messages and tools; of an agent that does not, a message that says so."""
        call = self._call
        if call is None or call.agent != agent:
            return {"messages": [{"role": "user", "content": "It is not your turn."}], "tools": []}
        limits = {"limits": call.limits} if call.limits != Limits() else {}
        return {"messages": list(call.prompt.messages), "tools": list(call.prompt.tools), **limits}

    def comparable(self, agent: str) -> str:
        """What of its observation must be the same when an episode is played again, see `Program.normalize`."""
        call, session = self._call, self._session
        if call is None or session is None or call.agent != agent:
            return ""
        return session.comparable(call.prompt, call.limits)

    def state_hash(self) -> str:
        """A digest of all calls and replies so far, 64 hex digits."""
        return self._so_far.hexdigest()

    def step(self, action: str | None) -> None:
        """Send the acting agent's reply, any string; None for a terminated agent.

        Raises:
            EpisodeRestart: Calls at the same time came in another order; the episode is to be played again.
            ProgramFailed: The program failed.
        """
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        if not isinstance(action, str):
            raise TypeError(f"step() got {type(action).__name__} for {agent}; expected a str. Any str is legal.")
        session = self._session
        assert session is not None, "step() after close()"
        self._cumulative_rewards[agent] = 0.0
        self._so_far.update(f"\0{action}".encode("utf-8", "surrogatepass"))
        if not session.answer(action if isinstance(action, CountedReply) else CountedReply(action)):
            self.close()
            if self.program.state.has_waited_longest:
                raise ProgramFailed(
                    f"{self.program.words} asks several agents at the same time, and a call came more than "
                    f"{LONGEST_WAIT:g} s after another, so that they have no fixed order; have it ask them one after "
                    "the other, or all at once."
                )
            raise EpisodeRestart(
                "a call came too late for its place among those at the same time; the episode is played again with a "
                "longer wait."
            )
        if session.has_marked_reply and self.program.state.prints_reward:
            self.close()
            raise ProgramFailed(f"{self.program.words} failed: a reply has {PRINTED!r}. {CHANNEL}")
        self._call = None
        self._take()
        self._accumulate_rewards()

    def close(self) -> None:
        """End the run: calls that are open get an error, the processes of a command line are ended."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
            endpoint().sessions.pop(session.key, None)
            self._stop()

    def __del__(self) -> None:
        """End the run of an environment that nobody has closed, such as one of a rollout without a pool."""
        self.close()

    def interrupt(self) -> None:
        """Wake up the thread that waits for the program, from another one."""
        if (session := self._session) is not None:
            session.close()

    def check_repeats(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        check_repeats(self, seed, options)

    def _take(self) -> None:
        """Take the next call, or the end of the program, and the rewards that were given by then."""
        session, program = self._session, self.program
        assert session is not None
        taken, posted = session.take(program.timeout, f"{self._row} {self.state_hash()}")
        failure = taken.failure if isinstance(taken, Ended) else ""
        if isinstance(taken, Call) and session.num_calls > program.max_calls:
            failure = (
                f"it made more than max_calls={program.max_calls} calls in an episode; expected that it comes to its "
                "end. Bound its loops, or raise max_calls."
            )
        if isinstance(taken, Ended) and not failure:
            if not session.num_calls:
                self.close()
                raise ValueError(
                    f"{program.words} ended without a call; expected that it asks its agents at the base URL that it "
                    "is given. Pass base_url to its clients, or leave theirs to OPENAI_BASE_URL; and have them ask "
                    "each time, without a cache of answers (DSPy: LM(..., cache=False))."
                )
            posted += [] if taken.rewards is None else [taken.rewards]
            if not (posted or self._has_rewards):
                failure = "it ended without a reward; expected one returned, printed or posted."
                failure += f" {CHANNEL}{taken.wrote}" * bool(taken.wrote)
        parts: Parts = {}
        try:
            parts = added(posted)
            if program.reward_ranges is not None:
                check_ranges(parts, program.reward_ranges)
        except ValueError as error:
            failure = failure or str(error)
        self._has_rewards = self._has_rewards or bool(posted)
        self.rewards = dict(zip(self.agents, scalars(parts, self.agents, 1.0), strict=True))
        self._return = {agent: self._return[agent] + reward for agent, reward in self.rewards.items()}
        if not all(map(math.isfinite, self._return.values())):
            failure = failure or f"its rewards add up to {self._return}; expected finite numbers."
        if failure:
            self.close()
            raise ProgramFailed(f"{program.words} failed: {failure}")
        if isinstance(taken, Call):
            self._call, self.agent_selection = taken, taken.agent
            self._so_far.update("\0".join(taken.place).encode())
        else:
            self.terminations = dict.fromkeys(self.agents, True)
            program.warn(session)
        self.infos = self._infos(parts)

    def _infos(self, parts: Parts) -> dict[str, dict[str, Any]]:
        session, at = self._session, self.program.success
        assert session is not None
        outcome: dict[str, Any] = {"refused_requests": session.num_refused}
        if at is not None:
            least = min(self._return.values()) + 1e-9  # 0.7 + 0.2 + 0.1 is below 1
            outcome["success"] = all(self.terminations.values()) and least >= at
        team = parts.get(TEAM, {})
        return {
            agent: {
                "rewards": {**team, **parts.get(agent, {})},
                "team_rewards": list(team),
                "parts": {scope: dict(named) for scope, named in parts.items()},
                "outcome": outcome,
            }
            for agent in self.agents
        }
