"""May the candidates of a group be compared? Each check reads single episodes, or those of an instance together."""

from __future__ import annotations

from typing import Any

from pettingllms_envs.audit.counting import FaultCheck, OfInstances, groups_of, where_of
from pettingllms_envs.audit.findings import Finding, counted
from pettingllms_envs.audit.rows import Decision, Episode, RunFacts


FEW_SYSTEMS = 16
"""System prompts of an agent that are told apart."""
USUAL = 0.8
"""Share of an agent's decisions that have its usual system prompt."""


class MixedPrompts(FaultCheck):
    """All candidates of a group were sampled after one prompt; all episodes of an instance begin with the same."""

    name = "mixed prompts"
    unit = "group"
    lacking = "the rows do not say after which prompt each came."
    bad = "compare replies to different prompts"
    good = "one prompt in each"
    remedy = "Their advantages compare prompts, not replies. Group by agent, turn and instance."
    nothing = ("not applicable", "no group has several candidates or episodes.")

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._first = OfInstances()

    def observe(self, episode: Episode) -> None:
        for decision in groups_of(episode):
            prompts = {candidate.prompt for candidate in decision.candidates}
            if None in prompts:
                self._missing = True
                continue
            fault = f"{len(prompts)} prompts for {len(decision.candidates)} candidates" if len(prompts) > 1 else None
            self._judge(where_of(episode, decision), fault)
        if episode.decisions and episode.is_whole and self._run.is_tree is not True:
            self._observe_start(episode)

    def _observe_start(self, episode: Episode) -> None:
        decision = episode.decisions[0]
        if len(decision.candidates) > 1:
            return
        if (prompt := decision.candidates[0].prompt) is None:
            self._missing = True
            return
        held = self._first.of(episode, dict)
        if held and held["prompt"] != prompt:
            self._judge(where_of(episode, decision), "its first prompt is not that of the instance's first")
        elif held:
            self._judge("", None)
        held.setdefault("prompt", prompt)


class MixedTurns(FaultCheck):
    """All candidates of a group are of one agent, turn and instance; in a training nobody decides twice at one turn.

    A benchmark's turns are the environment's, in which an agent may act several times.
    """

    name = "mixed turns"
    unit = "group"
    lacking = "the rows do not say at which turn each reply was given."
    bad = "mix agents, turns or instances"
    good = "one agent, turn and instance in each"
    remedy = "A reply is judged against those to another question. Group by agent, turn and instance."
    nothing = ("not applicable", "there is no decision.")

    def observe(self, episode: Episode) -> None:
        seen: set[tuple[str, int]] = set()
        for decision in episode.decisions:
            if decision.turn is None:
                self._missing = True
                continue
            at = (decision.agent, decision.turn)
            is_second = at in seen and episode.is_whole and self._run.is_training
            fault = _mixed(episode, decision) or ("the agent decided twice at this turn" if is_second else None)
            seen.add(at)
            self._judge(where_of(episode, decision), fault)


def _mixed(episode: Episode, decision: Decision) -> str | None:
    places = {"agent": decision.agent, "turn": decision.turn, "instance": episode.instance, "sample": episode.sample}
    for what, own in places.items():
        found = dict.fromkeys(getattr(candidate, what) for candidate in decision.candidates)
        values = dict.fromkeys(own if value is None else value for value in found)
        if len(values) > 1:
            return f"{what} {' and '.join(map(str, values))} in one group"
        if next(iter(values)) != own:
            return f"{what} {next(iter(values))} in an episode of {own}"
    return None


class MissingCandidates(FaultCheck):
    """Every group that is trained on is complete."""

    name = "missing candidates"
    unit = "group"
    bad = "are of another size"
    remedy = "A smaller group has another baseline. Look for what dropped them: errors, filters, processes."
    nothing = ("not applicable", "nothing was trained on.")

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._episodes = OfInstances(self._close)
        self.good = f"{run.num_candidates} in each"

    def observe(self, episode: Episode) -> None:
        expected = self._run.num_candidates
        if expected is None or not self._run.is_training:
            return
        if self._run.is_tree is False:
            self._episodes.of(episode, set).add(episode.sample)
            return
        for decision in episode.decisions:
            number = len(decision.candidates)
            if number == 1 and not _learns(decision):  # no group; it may be branched for those that follow
                continue
            fault = None if number == expected else f"{counted(number, 'candidate')}, expected {expected}"
            self._judge(where_of(episode, decision), fault)

    def _close(self, key: Any, samples: set[int]) -> None:
        number, expected = len(samples), self._run.num_candidates
        fault = None if number == expected else f"{counted(number, 'episode')}, expected {expected}"
        self._judge(f"step {key[0]}, instance {key[1]}", fault)

    def conclude(self) -> Finding:
        if not self._run.is_training:
            return self._concluded("not applicable", "a benchmark has no groups that are trained on.")
        if self._run.num_candidates is None or self._run.is_tree is None:
            return self._concluded("not recorded", "the run does not say how many candidates a group has.")
        self._episodes.flush()
        return super().conclude()


def _learns(decision: Decision) -> bool:
    if decision.learns is not None:
        return decision.learns
    return any(candidate.advantage is not None for candidate in decision.candidates)


class ChangedState(FaultCheck):
    """A decision is taken in the state that the chosen candidate before led to; an instance always begins alike."""

    name = "changed state"
    unit = "step"
    lacking = "the rows do not say which state each candidate led to."
    bad = "are taken in another state"
    good = "each goes on from the state that was reached"
    remedy = (
        "What is observed is not what was played. Check the environment's snapshot()/restore() and "
        "reset(seed=...) (`pettingllms check`), or set sampling='parallel'."
    )
    nothing = ("not applicable", "nothing is branched, and no instance was played twice.")

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._first = OfInstances()
        self._histories = False

    def observe(self, episode: Episode) -> None:
        if episode.is_history:
            self._histories = True
            return
        if not episode.is_whole:  # a row of a table, which says nothing of states
            self._missing = True
            return
        before: Decision | None = None
        for decision in episode.decisions:
            if before is not None:
                reached = None if before.chosen is None else before.chosen.state
                if decision.state is None or reached is None:
                    self._missing |= self._run.is_training  # in a benchmark nothing is branched
                else:
                    fault = None if decision.state == reached else "not the state that the chosen branch reached"
                    self._judge(where_of(episode, decision), fault)
            before = decision
        if episode.decisions and (state := episode.decisions[0].state) is not None:
            held = self._first.of(episode, dict)
            if held:
                fault = None if held["state"] == state else "not the state in which the instance's others began"
                self._judge(where_of(episode, episode.decisions[0]), fault)
            held.setdefault("state", state)

    def conclude(self) -> Finding:
        if self._histories and not self._seen:
            return self._concluded("not applicable", "states are histories here: they say what was replied.")
        return super().conclude()


class SwappedAgents(FaultCheck):
    """Each agent's replies come from its own policy, and it is shown its own system prompt, not another agent's."""

    name = "swapped agents"
    unit = "decision"
    bad = "come from another agent's policy"
    good = "each by the policy of its agent"
    remedy = "A policy is trained on another role's part. Check `policies` and the routing of requests."
    nothing = ("not recorded", "the rows do not say which policy sampled.")

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._systems: dict[str, dict[str, int]] = {}
        self._shown: dict[str, int] = {}
        self._where: dict[tuple[str, str], str] = {}

    def observe(self, episode: Episode) -> None:
        for decision in episode.decisions:
            configured = self._run.policies.get(decision.agent)
            if decision.policy is not None and configured is not None:
                fault = f"{decision.agent} played by {decision.policy!r}, expected {configured!r}"
                self._judge(where_of(episode, decision), None if decision.policy == configured else fault)
            if decision.system:
                counts = self._systems.setdefault(decision.agent, {})
                self._shown[decision.agent] = self._shown.get(decision.agent, 0) + 1
                if decision.system in counts or len(counts) < FEW_SYSTEMS:
                    counts[decision.system] = counts.get(decision.system, 0) + 1
                    self._where.setdefault((decision.agent, decision.system), where_of(episode, decision))

    def _shown_anothers(self) -> tuple[str, str, int, str] | None:
        """An agent that was shown the usual prompt of another, whose, how often, and where first.

        What is usual is what an agent is nearly always shown: prompts may also go by the phase of a game.
        """
        usual = {}
        for agent, counts in self._systems.items():
            system = max(counts, key=lambda system: counts[system])
            if counts[system] >= USUAL * self._shown[agent]:
                usual[agent] = system
        for agent, counts in self._systems.items():
            if agent not in usual:
                continue
            for other, system in usual.items():
                if other != agent and usual[agent] != system and system in counts:
                    return agent, other, counts[system], self._where[agent, system]
        return None

    def conclude(self) -> Finding:
        if (found := self._shown_anothers()) is not None:
            agent, other, number, where = found
            text = f"{agent} was shown the system prompt of {other} in {counted(number, 'decision')}."
            remedy = "A policy is trained on another role's part. Check agent_selection and observe(agent)."
            return self._concluded("failed", text, where, remedy)
        num_agents = len(self._run.policies) or len(self._systems)
        several = len(set(self._run.policies.values())) > 1
        kinds = {max(counts, key=lambda system: counts[system]) for counts in self._systems.values()}
        if not self._wrong and not several and len(kinds) < 2:
            if num_agents == 1:
                return self._concluded("not applicable", "there is a single agent.")
            text = "agents have neither policies nor system prompts of their own by which to tell."
            return self._concluded("not recorded", text)
        if not self._seen:
            return self._concluded("passed", f"{len(self._systems)} agents, each with its own system prompt.")
        return super().conclude()
