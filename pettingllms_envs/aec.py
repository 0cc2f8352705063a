"""TextEnv: the one adapter from the contract (`pettingllms_envs.core`) to PettingZoo's AEC interface.

An episode is one `Snapshot`, a named tuple that `step` replaces; every attribute that PettingZoo asks for is read off
it when asked. So `snapshot()` is a reference, `restore()` is exact, what a caller writes into a dictionary cannot
change the play, and a step pays only for what is looked at.
"""

from __future__ import annotations

import hashlib
import math
import operator
import random
import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from pettingzoo import AECEnv

from pettingllms_envs import features
from pettingllms_envs.core import FIELDS, TEAM, Parts, Workflow, check_choice, scalars
from pettingllms_envs.doors import VERSIONED
from pettingllms_envs.observations import Prompt
from pettingllms_envs.replies.reading import NOTES, Notes, last_reading
from pettingllms_envs.state_digest import ARRAY, with_task
from pettingllms_envs.views import apply_view, check_view


if TYPE_CHECKING:
    from gymnasium.spaces import Dict

    from pettingllms_envs.spaces import ChatText


NONE: Mapping[str, float] = {}
NO_PARTS: Parts = {}
RENDER_MODES = ("human", "ansi", "rgb_array")


class Snapshot(NamedTuple):
    """An episode at one moment; immutable, picklable, good for every `TextEnv` of the same environment and settings.

    Args:
        env: The environment's own name with its version, such as `"plan_path_v0"`; not its task's.
        config: The settings of workflow, task and rewards, in words.
        agents: The agents that are still there, in order; those that `left` until their dead steps.
        rewards: Of the last step, one for each agent.
        cumulative: Since each agent's own last step, one for each agent.
        parts: The named parts of the last step's reward, by scope; to be read only.
        terminated: Whether the workflow ended the episode by its own rule: the task is solved, or the roles agree.
        truncated: Whether it ended because the turns were used up.
        left: The agents that the workflow took out during the episode, in order.
        replies: How often each possible agent has replied, where the workflow is not cyclic; else empty.
        joined: The agents that joined after the last step, which did not pay them.
        reading: How the last reply was read, see `TextEnv.reading`.
    """

    env: str
    config: str
    play: Any
    agents: tuple[str, ...]
    selection: str
    rewards: tuple[float, ...]
    cumulative: tuple[float, ...]
    parts: Parts = {}  # noqa: RUF012  # read only, as all of it
    terminated: bool = False
    truncated: bool = False
    left: tuple[str, ...] = ()
    replies: tuple[int, ...] = ()
    joined: tuple[str, ...] = ()
    reading: str | None = None


class TextEnv(AECEnv[str, dict[str, Any], str | None]):  # type: ignore[misc]  # pettingzoo ships no types
    """A workflow over a task as a PettingZoo AEC environment for language models.

    Agents are `<role>_0`, `<role>_1`, ... An observation is `{"system": str, "text": str}`; of a role that observes
    `"parts"` it is `{"system": str, "parts": tuple}` with texts and images, of one that observes `"messages"`
    `{"messages": list, "tools": list}`. An action is any `str`. At each step *every* agent gets
    `alpha * team + local` of that step's reward parts. `infos[agent]` has

    * `rewards`: the step's parts by name, those of the team (before alpha) and the agent's own;
    * `team_rewards`: the names of those that are the team's;
    * `outcome`: the task's report on the state, at least `success` unless its agents compete;
    * `turn`: the turn now being played, from 1; at the end the last one. Where the workflow is not cyclic, it is the
      number of the agent's next reply (at the end of its last one);
    * `judged`, only where rewards are left to a trainer's reward functions: whether they judge the last reply.

    Solving the task terminates all agents; so does agreement, right or wrong, where a workflow ends by it (`outcome`
    says which it was). Using up the turns truncates them. An agent that the workflow takes out earlier (see
    `features.ChangingTeam`) is terminated alone; one that joins later appears in `agents`. `metadata` has

    * `name`, the environment's own with its version, and `task`, its task's;
    * `roles`, the role of each agent, `delayed_roles`, those that are paid at later steps only, and `informed_roles`,
      those whose observations may contain the solution;
    * `cyclic`, whether every agent acts once in each turn, see `core.Workflow`;
    * `reset_options`, the options of `reset`, each with its legal values, or () if it is open, and `required_options`,
      those without which a training's row is no instance;
    * `judged`, whether the infos say which replies a trainer's reward functions judge, see `features.LeavesRewards`;
    * `reward_ranges`, least and greatest of each part, and `alpha`;
    * `max_return`, the most that the team's parts can add up to over an episode, before alpha; None of a competitive
      task, whose `competitive` is `"zero_sum"` or `"mixed"` (else None);
    * `state`, only where it is `"history"`: see `state_hash`. Of a team that is written as a function it is known from
      the first episode on;
    * `state_form`, only where it is more than 1: the form of `state_hash`, see `features.HasStateForm`;
    * `has_oracle`, `bots`, the names of its rule-based players, and `branching`, `"snapshot"`;
    * of a task on a data set `data`, what `features.DataSet` says of it: name, note, remedy;
    * of one that `pettingllms_envs.assembly` made `settings`, which make another like it (without what no file
      holds), `defaults` of the others, `workflows`, the names of those that it can be played in, and where roles have
      tools `tools`: of each role's name,
      digest, and whether they are deterministic. Where one is not, an episode may not replay exactly;
    * of a team that `pettingllms cooperation` can compare `cooperation`, the settings of its other forms, see
      docs/cooperation.md.

    The order of calls is enforced here, with no wrapper around it: a call that comes too early or too late raises.

    Args:
        name: The environment's name with its version, such as `"council_v0"`; None is that of the task.
        alpha: Weight of the team's rewards, a finite number of at least 0.
        render_mode: None, `"ansi"` (`render` returns text), `"rgb_array"` (a picture) or `"human"` (every reset and
            step prints the board).
        view: What agents are shown of a board: its `"text"`, its picture (`"image"`), or `"both"`. It changes what
            they observe, and no state.

    Raises:
        ValueError: `name`, `alpha`, `render_mode` or `view` is not as above, two roles or agents have one name, or the
            task draws no board to be viewed.
    """

    def __init__(
        self,
        workflow: Workflow[Any],
        *,
        name: str | None = None,
        alpha: float = 1.0,
        render_mode: str | None = None,
        view: str = "text",
    ) -> None:
        super().__init__()
        _check_roles(workflow)
        check_view(view, workflow)
        if name is not None and not VERSIONED.fullmatch(name):
            raise ValueError(f"name is {name!r}; expected a name with its version, such as 'council_v0'.")
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 <= alpha < math.inf:
            raise ValueError(f"alpha is {alpha!r}; expected the weight of the team's rewards, finite and at least 0.")
        if render_mode is not None:
            check_choice("render_mode", render_mode, RENDER_MODES)
        task = workflow.task
        self.workflow = workflow
        self.alpha = float(alpha)
        self.render_mode = render_mode
        self.view = view
        self.metadata: dict[str, Any] = {
            "name": f"{task.name}_v{task.version}" if name is None else name,
            "task": f"{task.name}_v{task.version}",
            "render_modes": list(RENDER_MODES),
            "render_fps": 2,
            "view": view,
            "is_parallelizable": False,
            "branching": "snapshot",
            "roles": {agent: role.name for role in workflow.roles for agent in role.agents},
            "reset_options": dict(task.instance_fields),
            "required_options": list(task.required_options) if isinstance(task, features.RequiresOptions) else [],
            "judged": isinstance(workflow, features.LeavesRewards) and workflow.leaves_rewards,
            "reward_ranges": dict(workflow.ranges()),
            "alpha": self.alpha,
            "max_return": None if isinstance(task, features.Competitive) else task.ranges()["value"][1] + 1,
            "cyclic": workflow.cyclic,
            "has_oracle": isinstance(task, features.HasOracle),
            "bots": list(workflow.bots) if isinstance(workflow, features.HasBots) else [],
            "competitive": ("zero_sum" if task.zero_sum else "mixed")
            if isinstance(task, features.Competitive)
            else None,
            "delayed_roles": [role.name for role in workflow.roles if role.delayed],
            "informed_roles": [role.name for role in workflow.roles if role.informed],
        }
        if isinstance(workflow, features.HasStateForm):
            self.metadata["state_form"] = workflow.state_form
        if isinstance(task, features.OnDataSet):
            data = task.data_set
            self.metadata["data"] = {"name": data.name, "note": data.note, "remedy": data.remedy}
        self.possible_agents = [agent for role in workflow.roles for agent in role.agents]
        observes = "text" if view == "text" else "parts"
        self._observes = {
            agent: observes if role.observes == "text" else role.observes
            for role in workflow.roles
            for agent in role.agents
        }
        self._name: str = self.metadata["name"]
        pairs = [pair for role in workflow.roles for pair in zip(role.agents, role.members, strict=True)]
        self._roles = dict(pairs)  # agent -> how the workflow names it
        self._agents = {role: agent for agent, role in pairs}
        self._systems = {agent: workflow.system(role) for agent, role in self._roles.items()}
        self._cyclic = workflow.cyclic
        self._is_fixed = workflow.cyclic and not isinstance(workflow, features.ChangingTeam)
        self._changing = workflow if isinstance(workflow, features.ChangingTeam) else None
        self._reporting = workflow if isinstance(workflow, features.HasOutcome) else None
        self._recalling = workflow if isinstance(workflow, features.HasHistories) else None
        self._judging = workflow if isinstance(workflow, features.LeavesRewards) and workflow.leaves_rewards else None
        self._digesting = task if isinstance(task, features.HasDigest) else None
        self._config = repr((workflow, self.alpha))
        self._seeds: random.Random | int | None = None
        self._now: Snapshot | None = None

    @cached_property
    def observation_spaces(self) -> dict[str, Dict]:
        """See `observation_space`, by agent."""
        from pettingllms_envs.spaces import observation_space  # only those pay for spaces who look at them

        return {agent: observation_space(each) for agent, each in self._observes.items()}

    @cached_property
    def action_spaces(self) -> dict[str, ChatText]:
        """See `action_space`, by agent."""
        from pettingllms_envs.spaces import ChatText

        return {agent: ChatText(replies=self.workflow.task.blind_replies) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> Dict:
        """The `spaces.observation_space` of what the agent's role observes, the same object at every call."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> ChatText:
        """`ChatText`, the same object at every call."""
        return self.action_spaces[agent]

    @property
    def agents(self) -> list[str]:
        """The agents that are not removed yet, in order; empty before the first episode."""
        return [] if self._now is None else list(self._now.agents)

    @property
    def agent_selection(self) -> str:
        return (self._now or self._missing("agent_selection")).selection

    @property
    def rewards(self) -> dict[str, float]:
        """Rewards of the last step, by agent."""
        now = self._now or self._missing("rewards")
        return dict(zip(now.agents, now.rewards, strict=True))

    @property
    def _cumulative_rewards(self) -> dict[str, float]:
        now = self._now or self._missing("_cumulative_rewards")
        return dict(zip(now.agents, now.cumulative, strict=True))

    @property
    def terminations(self) -> dict[str, bool]:
        """Whether the workflow ended the episode by its own rule, by agent."""
        now = self._now or self._missing("terminations")
        return {agent: now.terminated or agent in now.left for agent in now.agents}

    @property
    def truncations(self) -> dict[str, bool]:
        """Whether the turns were used up, by agent."""
        now = self._now or self._missing("truncations")
        return dict.fromkeys(now.agents, now.truncated)

    @property
    def infos(self) -> dict[str, dict[str, Any]]:
        """Parts of the last step's reward, outcome so far and turn, by agent; see the class."""
        now = self._now or self._missing("infos")
        outcome = self._outcome(now.play)
        return {agent: self._info(now, self._roles[agent], agent, outcome) for agent in now.agents}

    @property
    def reading(self) -> str | None:
        """How the last reply was read as a move: `"strictly"`, `"leniently"` or `"unreadable: why"`.

        None if there was none, or if it was no move: a message, a program. Only the tasks of environments that
        `assemble` made say so.
        """
        return None if self._now is None else self._now.reading

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start an episode.

        Args:
            seed: Decides the instance, in every process alike. None draws a seed from the environment's own random
                numbers, which the last seed given decides.
            options: Fields of the instance, such as `{"split": "test"}`; None stands for a field that is not given.
                Unknown ones are ignored with a UserWarning.

        Raises:
            TypeError: The seed is not a whole number, or the options are not a mapping.
            ValueError: A field has a value that the task does not know.
        """
        fields = self._fields(options) if options else {}
        if seed is None:
            if not isinstance(self._seeds, random.Random):  # made when needed, for it takes as long as some resets
                self._seeds = random.Random(self._seeds)
            seed = self._seeds.getrandbits(32)
        else:
            seed = self._seeds = _whole(seed)
        outside = FIELDS.set(fields)
        try:
            play = self.workflow.start(self.workflow.task.generate(seed, **fields))
        finally:
            FIELDS.reset(outside)
        if self._recalling is not None and self._recalling.is_history(play):
            self.metadata["state"] = "history"
        agents = tuple(self.possible_agents) if self._changing is None else self._present(self._changing, play)
        zeros = (0.0,) * len(agents)
        first = self._agents[self.workflow.actor(play)]
        replies = () if self._cyclic else (0,) * len(self.possible_agents)
        self._now = Snapshot(self._name, self._config, play, agents, first, zeros, zeros, replies=replies)
        if self.render_mode == "human":
            self.render()

    def observe(self, agent: str) -> dict[str, Any]:
        """The agent's observation, whether or not it is the acting agent.

        Raises:
            ValueError: There is no such agent.
        """
        if agent not in self._roles:
            raise ValueError(f"no agent {agent!r}; expected one of {', '.join(self._roles)}.")
        return self._shown(self.workflow.observe(self._current.play, self._roles[agent]), agent)

    def last(self, observe: bool = True) -> tuple[dict[str, Any] | None, float, bool, bool, dict[str, Any]]:
        """Observation, reward since its own last step, termination, truncation and info of the agent to act."""
        now = self._now or self._current
        if not now.agents:
            raise RuntimeError("last() came after the last agent left. Call reset() to start the next episode.")
        agent = now.selection
        role = self._roles[agent]
        shown = self._shown(self.workflow.observe(now.play, role), agent) if observe else None
        reward = now.cumulative[now.agents.index(agent)]
        info = self._info(now, role, agent, self._outcome(now.play))
        return shown, reward, now.terminated or agent in now.left, now.truncated, info

    def agent_iter(self, max_iter: int = 2**63) -> Iterator[str]:
        """The agent to act, round after round until the last one has left.

        Raises:
            RuntimeError: There is no episode, or a round went by without a `step`.
        """
        for _ in range(max_iter):
            now = self._current
            if not now.agents:
                return
            yield now.selection
            if self._now is now:
                raise RuntimeError("agent_iter() came around without a step. Call step() once in every round.")

    def step(self, action: str | None) -> None:
        """Take the reply of `agent_selection`, any string; None for a terminated or truncated agent.

        Raises:
            TypeError: The reply is not a `str`.
            ValueError: A terminated or truncated agent was given something other than None.
            RuntimeError: There is no episode, or no agents are left in it.
        """
        now = self._now or self._current
        env, config, play, agents, selection, _, totals, _, terminated, truncated, left, replies, _, _ = now
        if not agents:
            raise RuntimeError("step() came after the last agent left. Call reset() to start the next episode.")
        if terminated or truncated or selection in left:
            self._now = self._after_dead_step(now, action)
            return
        if not isinstance(action, str):
            raise TypeError(f"step() got {type(action).__name__} for {selection}; expected a str. Any str is legal.")
        notes: Notes = []
        outside = NOTES.set(notes)
        try:
            play, parts, terminated, truncated = self.workflow.step(play, action)
        finally:
            NOTES.reset(outside)
        names = self._agents if self._is_fixed else [self._roles[agent] for agent in agents]
        rewards = cumulative = scalars(parts, names, self.alpha)
        then = agents[0]
        if len(agents) > 1:  # a lone agent's every step is its own
            since = [0.0 if agent == selection else total for agent, total in zip(agents, totals, strict=True)]
            cumulative = tuple(map(operator.add, since, rewards))
            if not (terminated or truncated):
                then = self._agents[self.workflow.actor(play)]
        paid, reading = (rewards, cumulative, parts), last_reading(notes, action) if notes else None
        made = env, config, play, agents, then, *paid, terminated, truncated, left, replies, (), reading
        # In half the time of `Snapshot(...)`, which is a tenth of a step.
        self._now = tuple.__new__(Snapshot, made)
        if not self._is_fixed:
            self._now = self._with_changes(self._now, selection)
        if self.render_mode == "human":
            self.render()

    def oracle(self) -> str:
        """An optimal reply of the acting agent, for tests, demonstrations and upper bounds.

        Raises:
            RuntimeError: There is no episode, or it is over.
            ValueError: The task has no oracle (`metadata["has_oracle"]`).
        """
        now = self._current
        if now.terminated or now.truncated:
            raise RuntimeError("oracle() came after the end of the episode. Call reset() to start the next one.")
        return self.workflow.oracle(now.play)

    def bot(self, name: str) -> str:
        """The reply of a rule-based player for the acting agent, by what that agent is shown.

        Args:
            name: One of `metadata["bots"]`.

        Raises:
            RuntimeError: There is no episode, or it is over.
            ValueError: There is no such bot.
        """
        now = self._current
        if not isinstance(self.workflow, features.HasBots) or not self.workflow.bots:
            raise ValueError(f"{self._name} has no bots, got {name!r}. Choose another agent, such as 'random'.")
        check_choice("the bot", name, tuple(self.workflow.bots))
        if now.terminated or now.truncated:
            raise RuntimeError("bot() came after the end of the episode. Call reset() to start the next one.")
        return self.workflow.bot(now.play, name)

    def snapshot(self) -> Snapshot:
        """A snapshot of the episode, which can be restored any number of times, here or in another process.

        It also has what is no part of the state, such as figures that only the outcome reports: see `state_hash`.

        Raises:
            RuntimeError: There is no episode yet.
        """
        return self._current

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the episode exactly. The environment's own random state is not changed.

        Raises:
            TypeError: It is not a snapshot.
            ValueError: It was taken from another environment, version or configuration.
        """
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"restore() got {type(snapshot).__name__}; expected what snapshot() returned.")
        if snapshot.env != self._name or snapshot.config != self._config:
            raise ValueError(
                f"the snapshot is of {snapshot.env} with {snapshot.config}; expected {self._name}"
                f" with {self._config}. Restore it into an environment that was made in the same way."
            )
        self._now = snapshot

    def state_hash(self) -> str:
        """SHA-256 of everything that determines the rest of the episode, 64 hex digits, the same in every process.

        It covers the environment, its settings, the workflow's state and the remaining agents, but not past rewards.
        A state is what later prompts, payments and ends depend on: two replies that mean the same move lead to the
        same one, and what only the outcome reports is no part of it. Where `metadata["state"]` is `"history"`, it is
        the replies so far instead, and two states that differ may be alike in all that follows.
        """
        now = self._current
        play = now.play
        if self._digesting is not None:
            play = (self._digesting.digest(play.task), with_task(play, None))
        # Agents that left are named only where there are some.
        left = (now.left,) if now.left else ()
        whole = (now.env, now.config, play, now.agents, now.selection, now.terminated, now.truncated, *left)
        text = repr(whole)
        if ARRAY in text:
            from pettingllms_envs.array_digest import written  # only those pay for it whose states have arrays

            text = written(whole)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def render(self) -> str | np.ndarray[Any, np.dtype[np.uint8]] | None:
        """The turn, who is to act, and the board.

        Returned as text (`"ansi"`), printed in colour (`"human"`), or the board alone as a picture (`"rgb_array"`),
        an array of shape (height, width, 3).
        """
        if self.render_mode is None:
            modes = ", ".join(map(repr, RENDER_MODES))
            warnings.warn(f"render() needs a render_mode; make the environment with one of {modes}.", stacklevel=2)
            return None
        now, task = self._current, self.workflow.task
        title = f"Turn {now.play.turn} of {self.workflow.num_turns}, {self.standing() or f'{now.selection} to act'}."
        if self.render_mode == "ansi":
            return f"{title}\n{task.show(now.play.task)}"
        from pettingllms_envs import rendering  # Pillow and rich are loaded only by those who look

        if self.render_mode == "rgb_array":
            return rendering.rgb_array(task, now.play.task)
        rendering.to_terminal(task, now.play.task, title)
        return None

    def standing(self) -> str:
        """How the episode ended, in a word or two: solved, settled (on something else), out of turns. Empty if not."""
        now = self._current
        if now.terminated:
            return "solved" if self.workflow.task.solved(now.play.task) else "settled"
        return "out of turns" if now.truncated else ""

    def close(self) -> None:
        """Nothing to release."""

    @property
    def _current(self) -> Snapshot:
        if self._now is None:
            raise RuntimeError(f"{self._name} has no episode yet. Call reset() or restore() first.")
        return self._now

    def _missing(self, attribute: str) -> NoReturn:
        raise AttributeError(f"{self._name} has no {attribute} before the first episode. Call reset() first.")

    def _fields(self, options: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(options, Mapping):
            raise TypeError(f"reset() got options of type {type(options).__name__}; expected a mapping, or None.")
        known = self.metadata["reset_options"]
        unknown = [name for name in options if name not in known]
        if unknown:
            expected = ", ".join(known) or "none"
            warnings.warn(f"{self._name} ignores the reset options {unknown}; it knows {expected}.", stacklevel=3)
        given = {name: options[name] for name in known if options.get(name) is not None}
        for name, value in given.items():
            if known[name]:
                check_choice(name, value, known[name])
                given[name] = known[name][known[name].index(value)]  # 1 for the 1.0 of a column that lacks values
        return given

    def _shown(self, seen: Any, agent: str) -> dict[str, Any]:
        """What the workflow shows an agent, as an observation."""
        if self.view != "text":
            play, role = self._current.play, self._roles[agent]
            shown = self.workflow.shown(play, role) if isinstance(self.workflow, features.ShowsEarlier) else play.task
            seen = apply_view(seen, self.view, self.workflow, shown)
        observes = self._observes[agent]
        if observes == "text" and isinstance(seen, str):
            return {"system": self._systems[agent], "text": seen}
        if observes == "parts" and not isinstance(seen, Prompt):
            return {"system": self._systems[agent], "parts": (seen,) if isinstance(seen, str) else tuple(seen)}
        if observes == "messages" and isinstance(seen, Prompt):
            return {"messages": list(seen.messages), "tools": list(seen.tools)}
        raise TypeError(
            f"the workflow {self.workflow.name!r} shows {agent} a {type(seen).__name__}, but its role observes "
            f"{observes!r}. Give the role observes={_kind_of(seen)!r}, or have observe() return what it says."
        )

    def _outcome(self, play: Any) -> Mapping[str, Any]:
        outcome: Mapping[str, Any] = self.workflow.task.outcome(play.task)
        reported = None if self._reporting is None else self._reporting.outcome(play)
        return {**outcome, **reported} if reported else outcome

    def _info(self, now: Snapshot, role: str, agent: str, outcome: Mapping[str, Any]) -> dict[str, Any]:
        play, parts = now.play, NO_PARTS if agent in now.joined else now.parts
        team = parts.get(TEAM, NONE)
        return {
            "rewards": {**team, **parts.get(role, NONE)},
            "team_rewards": [*team],
            "outcome": {**outcome},
            "turn": play.turn if self._cyclic else self._turn_of(now, agent),
            **({} if self._judging is None else {"judged": self._judging.judged(play)}),
        }

    def _turn_of(self, now: Snapshot, agent: str) -> int:
        """The number of the agent's next reply, from 1; once it is done, of its last one."""
        done = now.replies[self.possible_agents.index(agent)]
        return max(done, 1) if now.terminated or now.truncated or agent in now.left else done + 1

    def _with_changes(self, now: Snapshot, actor: str) -> Snapshot:
        """The episode with one more reply of the actor, and with the agents that joined and left."""
        paid = [self._agents.get(scope) for scope in now.parts if scope != TEAM]
        if not set(paid) <= set(now.agents):
            raise ValueError(
                f"the workflow {self.workflow.name!r} pays {sorted(now.parts)}; expected {TEAM!r}, or agents that "
                f"take part: {', '.join(self._roles[agent] for agent in now.agents)}. Pay one of them, or nobody."
            )
        if now.replies:
            at = self.possible_agents.index(actor)
            now = now._replace(replies=(*now.replies[:at], now.replies[at] + 1, *now.replies[at + 1 :]))
        if self._changing is None or now.terminated or now.truncated:
            return now
        return self._with_present(now, self._present(self._changing, now.play))

    def _present(self, workflow: features.ChangingTeam, play: Any) -> tuple[str, ...]:
        """The agents that take part, in the order of `possible_agents`."""
        names = set(workflow.present(play))
        if unknown := names - self._agents.keys():
            raise ValueError(
                f"the workflow {self.workflow.name!r} has present {sorted(unknown)}; expected names among "
                f"{', '.join(self._agents)}."
            )
        if (actor := self.workflow.actor(play)) not in names:
            raise ValueError(f"the workflow {self.workflow.name!r} lets {actor!r} act, who is not present.")
        return tuple(agent for agent in self.possible_agents if self._roles[agent] in names)

    def _with_present(self, now: Snapshot, present: tuple[str, ...]) -> Snapshot:
        """The episode with the agents that have joined, and with those that left about to take their dead steps."""
        if back := set(present) & set(now.left):
            raise ValueError(
                f"the workflow {self.workflow.name!r} has {sorted(back)} present again; expected other agents, since "
                "PettingZoo's cannot come back. Give the role a larger count."
            )
        gone = tuple(agent for agent in now.agents if agent not in present and agent not in now.left)
        left = now.left + gone
        joined = tuple(agent for agent in present if agent not in now.agents)
        agents = tuple(agent for agent in self.possible_agents if agent in now.agents or agent in joined)
        rewards, cumulative = (dict(zip(now.agents, each, strict=True)) for each in (now.rewards, now.cumulative))
        return now._replace(
            agents=agents,
            selection=gone[0] if gone else self._agents[self.workflow.actor(now.play)],
            rewards=tuple(rewards.get(agent, 0.0) for agent in agents),
            cumulative=tuple(cumulative.get(agent, 0.0) for agent in agents),
            left=left,
            joined=joined,
        )

    def _after_dead_step(self, now: Snapshot, action: str | None) -> Snapshot:
        """Remove the selected agent, which is terminated or truncated: PettingZoo's dead step."""
        if action is not None:
            raise ValueError(f"the episode is over for {now.selection}; expected None, got {type(action).__name__}.")
        stay = [i for i, agent in enumerate(now.agents) if agent != now.selection]
        agents = tuple(now.agents[i] for i in stay)
        waiting = agents if now.terminated or now.truncated else [agent for agent in agents if agent in now.left]
        following = waiting[0] if waiting else now.selection
        if agents and not waiting:
            following = self._agents[self.workflow.actor(now.play)]
        cumulative = tuple(now.cumulative[i] for i in stay)
        rewards = (0.0,) * len(agents)
        return now._replace(agents=agents, selection=following, rewards=rewards, cumulative=cumulative)


def _kind_of(seen: Any) -> str:
    return "messages" if isinstance(seen, Prompt) else "text" if isinstance(seen, str) else "parts"


def _check_roles(workflow: Workflow[Any]) -> None:
    names = [role.name for role in workflow.roles]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"the workflow {workflow.name!r} has {names.count(name)} roles called {name!r}; expected a name "
                f"of its own for each. For several agents of one role, give it a count: "
                f"Role({name!r}, ..., count={names.count(name)})."
            )
        if name == TEAM:
            raise ValueError(
                f"the workflow {workflow.name!r} has a role called {TEAM!r}; expected another name, since rewards of "
                "that scope are everybody's. Rename the role."
            )


def _whole(seed: int) -> int:
    try:
        return operator.index(seed)
    except TypeError:
        raise TypeError(f"reset() got the seed {seed!r}; expected a whole number, or None for a random one.") from None
