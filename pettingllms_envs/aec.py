"""TextEnv: the one adapter from the contract (`pettingllms_envs.core`) to PettingZoo's AEC interface.

An episode is one frozen `Snapshot`, which `step` replaces; the dictionaries that PettingZoo asks for are rebuilt from
it and own nothing. So `snapshot()` is a reference, `restore()` is exact, and what a caller writes into a dictionary
cannot change the play.
"""

from __future__ import annotations

import hashlib
import math
import operator
import random
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gymnasium.spaces import Dict
from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from pettingllms_envs.core import TEAM, Reward, Workflow, scalar
from pettingllms_envs.spaces import ChatText


RENDER_MODES = ("human", "ansi")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An episode at one moment; immutable, picklable, good for every `TextEnv` of the same environment and settings.

    Args:
        env: The environment's name with its version, such as `"plan_path_v0"`.
        config: The settings of workflow, task and rewards, in words.
        play: The workflow's state.
        agents: The agents that are still there, in order.
        selection: The agent to act.
        rewards: Of the last step, one for each agent.
        cumulative: Since each agent's own last step, one for each agent.
        parts: The named parts of the last step's reward.
        terminated: Whether the episode ended because the task was solved.
        truncated: Whether it ended because the turns were used up.
    """

    env: str
    config: str
    play: Any
    agents: tuple[str, ...]
    selection: str
    rewards: tuple[float, ...]
    cumulative: tuple[float, ...]
    parts: tuple[Reward, ...] = ()
    terminated: bool = False
    truncated: bool = False


class TextEnv(AECEnv[str, dict[str, str], str | None]):  # type: ignore[misc]  # pettingzoo ships no types
    """A workflow over a task as a PettingZoo AEC environment for language models.

    Agents are `<role>_0`. An observation is `{"system": str, "text": str}`, an action any `str`. At each step *every*
    agent gets `alpha * team + local` of that step's reward parts; their ranges are in the workflow's docstring.
    `infos[agent]` has

    * `rewards`: the step's parts by name, those of the team (before alpha) and the agent's own;
    * `outcome`: the task's report on the state, at least `success`;
    * `turn`: the turn now being played, from 1; at the end the last one.

    Solving the task terminates all agents; using up the turns truncates them. `metadata["reset_options"]` names the
    options of `reset`.

    Args:
        workflow: Who acts when, over which task.
        alpha: Weight of the team's rewards, a finite number of at least 0.
        render_mode: None, `"ansi"` (`render` returns text) or `"human"` (every reset and step prints it).

    Raises:
        ValueError: `alpha` or `render_mode` is not as above.
    """

    def __init__(self, workflow: Workflow[Any], *, alpha: float = 1.0, render_mode: str | None = None) -> None:
        super().__init__()
        if not 0 <= alpha < math.inf:
            raise ValueError(f"alpha is {alpha!r}; expected the weight of the team's rewards, finite and at least 0.")
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise ValueError(f"render_mode is {render_mode!r}; expected None, 'ansi' or 'human'.")
        task = workflow.task
        self.workflow = workflow
        self.alpha = float(alpha)
        self.render_mode = render_mode
        self.metadata: dict[str, Any] = {
            "name": f"{task.name}_v{task.version}",
            "render_modes": list(RENDER_MODES),
            "is_parallelizable": False,
            "reset_options": tuple(task.instance_fields),
        }
        self.possible_agents = [f"{role.name}_0" for role in workflow.roles]
        self.observation_spaces = {
            agent: Dict({"system": ChatText(), "text": ChatText()}) for agent in self.possible_agents
        }
        self.action_spaces = {agent: ChatText() for agent in self.possible_agents}
        self.agents: list[str] = []
        self._roles = {f"{role.name}_0": role.name for role in workflow.roles}
        self._config = repr((workflow, self.alpha))
        self._seeds = random.Random()
        self._now: Snapshot | None = None

    def observation_space(self, agent: str) -> Dict:
        """`Dict(system=ChatText(), text=ChatText())`, the same object at every call."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> ChatText:
        """`ChatText()`, the same object at every call."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start an episode.

        Args:
            seed: Decides the instance, in every process alike. None draws a seed from the environment's own random
                numbers, which the last seed given decides.
            options: Fields of the instance, such as `{"split": "test"}`. Unknown ones are ignored with a UserWarning.

        Raises:
            TypeError: The seed is not a whole number, or the options are not a mapping.
            ValueError: A field has a value that the task does not know.
        """
        fields = self._fields({} if options is None else options)
        if seed is None:
            seed = self._seeds.getrandbits(32)
        else:
            seed = _whole(seed)
            self._seeds = random.Random(seed)
        play = self.workflow.start(self.workflow.task.generate(seed, **fields))
        agents, zeros = tuple(self.possible_agents), (0.0,) * len(self.possible_agents)
        selection = f"{self.workflow.actor(play)}_0"
        self._show(Snapshot(self.metadata["name"], self._config, play, agents, selection, zeros, zeros))
        self._render_if_human()

    def observe(self, agent: str) -> dict[str, str]:
        """What the workflow lets the agent know now, whether or not it is the one to act.

        Raises:
            ValueError: There is no such agent.
        """
        if agent not in self._roles:
            raise ValueError(f"no agent {agent!r}; expected one of {', '.join(self._roles)}.")
        seen = self.workflow.observe(self._current.play, self._roles[agent])
        return {"system": seen.system, "text": seen.text}

    def step(self, action: str | None) -> None:
        """Take the reply of `agent_selection`, any string at all; None for an agent whose episode is over.

        Raises:
            TypeError: The reply is not a `str`.
            ValueError: An agent whose episode is over was given something other than None.
            RuntimeError: There is no episode, or no agent left in it.
        """
        now = self._current
        if not now.agents:
            raise RuntimeError("step() came after the last agent left. Call reset() to start the next episode.")
        if now.terminated or now.truncated:
            self._leave(now, action)
            return
        if not isinstance(action, str):
            raise TypeError(
                f"step() got {type(action).__name__} for {now.selection}; expected a str. Any str is legal."
            )
        after = self.workflow.step(now.play, action)
        rewards = tuple(scalar(after.rewards, self._roles[agent], self.alpha) for agent in now.agents)
        totals = zip(now.agents, now.cumulative, strict=True)
        since = [0.0 if agent == now.selection else total for agent, total in totals]
        over = after.terminated or after.truncated
        self._show(
            Snapshot(
                now.env,
                now.config,
                after.state,
                now.agents,
                now.agents[0] if over else f"{self.workflow.actor(after.state)}_0",
                rewards,
                tuple(map(operator.add, since, rewards)),
                after.rewards,
                after.terminated,
                after.truncated,
            )
        )
        self._render_if_human()

    def snapshot(self) -> Snapshot:
        """The episode as it is now, to `restore` any number of times, here or in another process.

        Raises:
            RuntimeError: There is no episode yet.
        """
        return self._current

    def restore(self, snapshot: Snapshot) -> None:
        """Put the episode back exactly as it was. The environment's own random numbers stay as they are.

        Raises:
            TypeError: That is no snapshot.
            ValueError: It was taken from another environment, version or configuration.
        """
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"restore() got {type(snapshot).__name__}; expected what snapshot() returned.")
        if snapshot.env != self.metadata["name"] or snapshot.config != self._config:
            raise ValueError(
                f"the snapshot is of {snapshot.env} with {snapshot.config}; expected {self.metadata['name']}"
                f" with {self._config}. Restore it into an environment that was made in the same way."
            )
        self._show(snapshot)

    def state_hash(self) -> str:
        """SHA-256 of all that decides what can happen from here, 64 hex digits, the same in every process.

        The environment, its settings, the workflow's state and who is left count; the rewards so far do not.
        """
        now = self._current
        whole = (now.env, now.config, now.play, now.agents, now.selection, now.terminated, now.truncated)
        return hashlib.sha256(repr(whole).encode("utf-8", "surrogatepass")).hexdigest()

    def render(self) -> str | None:
        """The turn, who is to act, and the task's state; returned (`"ansi"`) or printed (`"human"`)."""
        if self.render_mode is None:
            warnings.warn("render() needs render_mode='ansi' or 'human'; make the environment with one.", stacklevel=2)
            return None
        now, workflow = self._current, self.workflow
        who = "solved" if now.terminated else "out of turns" if now.truncated else f"{now.selection} to act"
        text = f"Turn {now.play.turn} of {workflow.num_turns}, {who}.\n{workflow.task.show(now.play.task)}"
        if self.render_mode == "ansi":
            return text
        sys.stdout.write(f"{text}\n\n")
        return None

    def close(self) -> None:
        """Nothing to release."""

    @property
    def _current(self) -> Snapshot:
        if self._now is None:
            raise RuntimeError(f"{self.metadata['name']} has no episode yet. Call reset() or restore() first.")
        return self._now

    def _fields(self, options: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(options, Mapping):
            raise TypeError(f"reset() got options of type {type(options).__name__}; expected a mapping, or None.")
        known = self.metadata["reset_options"]
        unknown = [name for name in options if name not in known]
        if unknown:
            name = self.metadata["name"]
            warnings.warn(f"{name} ignores the reset options {unknown}; it knows {', '.join(known)}.", stacklevel=3)
        return {name: options[name] for name in known if name in options}

    def _leave(self, now: Snapshot, action: str | None) -> None:
        """Remove the selected agent, whose episode is over; PettingZoo's protocol of dead steps."""
        if action is not None:
            raise ValueError(f"the episode is over for {now.selection}; expected None, got {type(action).__name__}.")
        stay = [i for i, agent in enumerate(now.agents) if agent != now.selection]
        agents = tuple(now.agents[i] for i in stay)
        cumulative = tuple(now.cumulative[i] for i in stay)
        selection = agents[0] if agents else now.selection
        rewards = (0.0,) * len(agents)
        self._show(replace(now, agents=agents, selection=selection, rewards=rewards, cumulative=cumulative))

    def _show(self, now: Snapshot) -> None:
        """Make an episode the current one and rebuild PettingZoo's attributes from it."""
        self._now = now
        agents = now.agents
        self.agents = list(agents)
        self.agent_selection = now.selection
        self.rewards = dict(zip(agents, now.rewards, strict=True))
        self._cumulative_rewards = dict(zip(agents, now.cumulative, strict=True))
        self.terminations = dict.fromkeys(agents, now.terminated)
        self.truncations = dict.fromkeys(agents, now.truncated)
        outcome, turn = self.workflow.task.outcome(now.play.task), now.play.turn
        self.infos = {
            agent: {"rewards": self._parts(now.parts, agent), "outcome": dict(outcome), "turn": turn}
            for agent in agents
        }

    def _parts(self, parts: tuple[Reward, ...], agent: str) -> dict[str, float]:
        role, named = self._roles[agent], dict[str, float]()
        for part in parts:
            if part.scope == TEAM or part.scope == role:
                named[part.name] = named.get(part.name, 0.0) + part.value
        return named

    def _render_if_human(self) -> None:
        if self.render_mode == "human":
            self.render()


class OrderedTextEnv(OrderEnforcingWrapper[str, dict[str, str], str | None]):  # type: ignore[misc]
    """PettingZoo's order-enforcing wrapper, for which `restore` starts an episode just as `reset` does."""

    def restore(self, snapshot: Snapshot) -> None:
        """See `TextEnv.restore`."""
        self.env.restore(snapshot)
        self._has_reset = True
        self._has_updated = True


def _whole(seed: int) -> int:
    try:
        return operator.index(seed)
    except TypeError:
        raise TypeError(f"reset() got the seed {seed!r}; expected a whole number, or None for a random one.") from None
