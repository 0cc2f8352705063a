"""May the candidates of a group be compared? Each check reads single episodes, or those of an instance together."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from pettingllms_envs.audit.findings import Finding, Status, counted
from pettingllms_envs.audit.rows import Decision, Episode, Run


OPEN_INSTANCES = 10_000
"""Instances whose episodes may still come; of older ones nothing is held."""
MOST_PAIRS = 64
FEW_GROUPS = 16
"""Below that it is not said that siblings are copies: a few may be equal by chance."""
NEARLY_ALL = 0.9
USUAL = 0.8
"""Share of an agent's decisions that have its usual system prompt."""
ROUNDING = 1e-3
"""Of the sum of the absolute advantages: those of TRL are in single precision."""
FLAT = 0.01
"""Equal rewards less their rounded mean, divided by a deviation of 1e-4, are not quite zero."""


class _Faults:
    """Counts what was looked at and what was wrong.

    Args:
        name: What is looked for.
        unit: What is looked at.
    """

    def __init__(self, name: str, unit: str) -> None:
        self.name, self.unit = name, unit
        self.seen = self.wrong = 0
        self.first = self.detail = ""

    def add(self, where: str, fault: str | None) -> None:
        self.seen += 1
        if fault is not None:
            self.wrong += 1
            if not self.first:
                self.first, self.detail = where, fault

    def conclude(self, *, bad: str, good: str, remedy: str, nothing: Finding) -> Finding:
        """`nothing` where nothing could be looked at, else whether anything was wrong."""
        if not self.seen:
            return nothing
        of = f"{self.wrong:,} of {counted(self.seen, self.unit)}"
        if self.wrong:
            return Finding(
                name=self.name,
                status="failed",
                text=f"{of} {bad} ({self.detail}).",
                where=self.first,
                remedy=remedy,
            )
        return Finding(name=self.name, status="passed", text=f"{counted(self.seen, self.unit)}: {good}.")


def _none(name: str, status: Status, text: str) -> Finding:
    return Finding(name=name, status=status, text=text)


def _where(episode: Episode, decision: Decision | None = None) -> str:
    of = f"instance {episode.instance}" + (f", sample {episode.sample}" if episode.sample else "")
    step = "" if episode.step is None else f"step {episode.step}, "
    who = "" if decision is None else f", {decision.agent}"
    turn = "" if decision is None or decision.turn is None else f", turn {decision.turn}"
    return f"{episode.where}{': ' if episode.where else ''}{step}{of}{who}{turn}"


def _groups(episode: Episode) -> Iterator[Decision]:
    return (decision for decision in episode.decisions if len(decision.candidates) > 1)


class _OfInstances:
    """What is held of each instance while its episodes may still come, the latest `OPEN_INSTANCES` of them."""

    def __init__(self, close: Callable[[Hashable, Any], None] = lambda key, value: None) -> None:
        self.held: OrderedDict[Hashable, Any] = OrderedDict()
        self._close = close

    def of(self, episode: Episode, make: Callable[[], Any]) -> Any:
        key = (episode.step, episode.instance)
        if key not in self.held:
            self.held[key] = make()
            if len(self.held) > OPEN_INSTANCES:
                self._close(*self.held.popitem(last=False))
        return self.held[key]


class MixedPrompts:
    """All candidates of a group were sampled after one prompt; all episodes of an instance begin with the same."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._faults = _Faults("mixed prompts", "group")
        self._first = _OfInstances()
        self._missing = False

    def observe(self, episode: Episode) -> None:
        for decision in _groups(episode):
            prompts = {candidate.prompt for candidate in decision.candidates}
            if None in prompts:
                self._missing = True
                continue
            fault = f"{len(prompts)} prompts for {len(decision.candidates)} candidates" if len(prompts) > 1 else None
            self._faults.add(_where(episode, decision), fault)
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
            self._faults.add(_where(episode, decision), "its first prompt is not that of the instance's first episode")
        elif held:
            self._faults.add("", None)
        held.setdefault("prompt", prompt)

    def conclude(self) -> Finding:
        if self._missing and not self._faults.wrong:
            return _none("mixed prompts", "not recorded", "the rows do not say after which prompt each was sampled.")
        return self._faults.conclude(
            bad="compare replies to different prompts",
            good="one prompt in each",
            remedy="Their advantages compare prompts, not replies. Group by agent, turn and instance.",
            nothing=_none("mixed prompts", "not applicable", "there is no group of several candidates or episodes."),
        )


class MixedTurns:
    """All candidates of a group are of one agent, turn and instance, and nobody decides twice at one turn."""

    def __init__(self, run: Run) -> None:
        self._faults = _Faults("mixed turns", "group")
        self._run = run
        self._missing = False

    def observe(self, episode: Episode) -> None:
        seen: set[tuple[str, int]] = set()
        for decision in episode.decisions:
            if decision.turn is None:
                self._missing = True
                continue
            at = (decision.agent, decision.turn)
            fault = _mixed(episode, decision) or (
                "the agent decided twice at this turn" if at in seen and episode.is_whole else None
            )
            seen.add(at)
            self._faults.add(_where(episode, decision), fault)

    def conclude(self) -> Finding:
        if self._missing and not self._faults.wrong:
            return _none("mixed turns", "not recorded", "the rows do not say at which turn each reply was given.")
        return self._faults.conclude(
            bad="mix agents, turns or instances",
            good="one agent, turn and instance in each",
            remedy="A reply is judged against those to another question. Group by agent, turn and instance.",
            nothing=_none("mixed turns", "not applicable", "there is no decision."),
        )


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


class MissingCandidates:
    """Every group that is trained on is complete."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._faults = _Faults("missing candidates", "group")
        self._episodes = _OfInstances(self._close)
        self._step: int | None = None

    def observe(self, episode: Episode) -> None:
        expected = self._run.num_candidates
        if expected is None or not self._run.is_training:
            return
        if self._run.is_tree is False:
            self._count(episode)
            return
        for decision in episode.decisions:
            number, wanted = len(decision.candidates), expected if _learns(decision) else 1
            fault = None if number == wanted else f"{counted(number, 'candidate')}, expected {wanted}"
            self._faults.add(_where(episode, decision), fault)

    def _count(self, episode: Episode) -> None:
        if episode.step != self._step:
            self._flush()
            self._step = episode.step
        self._episodes.of(episode, set).add(episode.sample)

    def _close(self, key: Any, samples: set[int]) -> None:
        self._faults.add(f"step {key[0]}, instance {key[1]}", self._fault(len(samples)))

    def _fault(self, number: int) -> str | None:
        expected = self._run.num_candidates
        return None if number == expected else f"{counted(number, 'episode')}, expected {expected}"

    def _flush(self) -> None:
        while self._episodes.held:
            self._close(*self._episodes.held.popitem(last=False))

    def conclude(self) -> Finding:
        name = "missing candidates"
        if not self._run.is_training:
            return _none(name, "not applicable", "a benchmark has no groups that are trained on.")
        if self._run.num_candidates is None or self._run.is_tree is None:
            return _none(name, "not recorded", "the run does not say how many candidates a group has.")
        self._flush()
        return self._faults.conclude(
            bad="are of another size",
            good=f"{self._run.num_candidates} in each",
            remedy="A smaller group has another baseline. Look for what dropped them: errors, filters, processes.",
            nothing=_none(name, "not applicable", "nothing was trained on."),
        )


def _learns(decision: Decision) -> bool:
    if decision.learns is not None:
        return decision.learns
    return any(candidate.advantage is not None for candidate in decision.candidates)


class WrongSums:
    """The advantages of each group sum to zero, where the credit scheme has a mean for a baseline."""

    name = "wrong sums of advantages"

    def __init__(self, run: Run) -> None:
        self._run = run
        self._faults = _Faults(self.name, "group")
        self._open = _OfInstances(self._close)
        self._step: int | None = None
        self._missing = False

    def observe(self, episode: Episode) -> None:
        if self._run.sums is None:
            return
        for decision in episode.decisions:
            if decision.learns is False:
                continue
            if any(candidate.advantage is None for candidate in decision.candidates):
                self._missing |= decision.learns is True
            elif self._run.sums == "siblings":
                self._add(_where(episode, decision), _pairs(decision))
            else:
                self._gather(episode, decision)

    def _gather(self, episode: Episode, decision: Decision) -> None:
        if episode.step != self._step:
            self._flush()
            self._step = episode.step
        turn = decision.turn if self._run.sums == "turn" else None
        group = self._open.of(episode, dict).setdefault((decision.agent, turn), {})
        for number, pair in enumerate(_pairs(decision)):
            member = (episode.sample,) if self._run.sums == "episodes" else (episode.sample, decision.turn, number)
            group[member] = pair

    def _close(self, key: Any, groups: dict[Any, dict[Any, Any]]) -> None:
        for (agent, _), members in groups.items():
            if len(members) > 1:
                self._add(f"step {key[0]}, instance {key[1]}, {agent}", list(members.values()))

    def _add(self, where: str, pairs: list[tuple[float, float | None]]) -> None:
        if len(pairs) < 2:
            return
        advantages = [advantage for advantage, _ in pairs]
        # Of schemes that judge by returns the rewards may be equal while the advantages are not.
        is_flat = len({reward for _, reward in pairs}) == 1 and max(map(abs, advantages)) < FLAT
        total = math.fsum(advantages)
        allowed = FLAT if is_flat else ROUNDING * math.fsum(map(abs, advantages)) + 1e-6
        fault = None if abs(total) <= allowed else f"{total:+.3g} over {len(advantages)} advantages"
        self._faults.add(where, fault)

    def _flush(self) -> None:
        while self._open.held:
            self._close(*self._open.held.popitem(last=False))

    def conclude(self) -> Finding:
        if not self._run.is_training:
            return _none(self.name, "not applicable", "a benchmark has no advantages.")
        if self._run.credit is None:
            return _none(self.name, "not recorded", "the run does not say which credit scheme it had.")
        if self._run.sums is None:
            return _none(self.name, "not applicable", f"credit {self._run.credit!r} promises no sum.")
        self._flush()
        if self._missing and not self._faults.seen:
            return _none(self.name, "not recorded", "the rows have no advantages.")
        return self._faults.conclude(
            bad="do not sum to zero",
            good="the advantages sum to zero in each",
            remedy=f"credit {self._run.credit!r} subtracts a mean, so a group was cut, joined or shifted after it.",
            nothing=_none(self.name, "not recorded", "no group has advantages."),
        )


def _pairs(decision: Decision) -> list[tuple[float, float | None]]:
    return [(each.advantage, each.reward) for each in decision.candidates if each.advantage is not None]


class CopiedSiblings:
    """Candidates are samples of their own: not the same reply K times, or at the same two places every time.

    A policy that has collapsed gives equal siblings, too. But it says the same to every prompt, or once did not.
    """

    name = "copied siblings"

    def __init__(self, run: Run) -> None:
        self._run = run
        self._groups = 0
        self._all_equal = 0
        self._early = [0, 0]  # the first FEW_GROUPS: how many, and how many of equal replies
        self._replies: set[Hashable] = set()
        self._pairs: dict[tuple[int, int], int] = {}
        self._where = ""

    def observe(self, episode: Episode) -> None:
        for decision in _groups(episode):
            replies = [candidate.reply for candidate in decision.candidates]
            equal = len(set(replies)) == 1
            self._groups += 1
            self._all_equal += equal
            if self._early[0] < FEW_GROUPS:
                self._early[0] += 1
                self._early[1] += equal
            if equal:
                self._where = self._where or _where(episode, decision)
                if len(self._replies) < FEW_GROUPS:
                    self._replies.add(replies[0])
            elif len(replies) > 2:
                for pair in _some_pairs(len(replies)):
                    self._pairs[pair] = self._pairs.get(pair, 0) + (replies[pair[0]] == replies[pair[1]])

    def conclude(self) -> Finding:
        if self._run.kind == "bench" or (self._run.is_tree is False and not self._groups):
            return _none(self.name, "not applicable", "no decision has several candidates.")
        if self._groups < FEW_GROUPS:
            text = f"{counted(self._groups, 'group')}, too few to tell; expected {FEW_GROUPS}."
            return _none(self.name, "not applicable" if self._groups else "not recorded", text)
        if self._all_equal >= NEARLY_ALL * self._groups:
            return self._equal()
        varied = self._groups - self._all_equal
        worst = max(self._pairs, key=lambda pair: self._pairs[pair], default=None)
        if worst is not None and varied >= FEW_GROUPS and self._pairs[worst] >= NEARLY_ALL * varied:
            least = min(self._pairs.values())
            if least < 0.5 * varied:  # else the policy often repeats itself, wherever
                return Finding(
                    name=self.name,
                    status="failed",
                    text=f"candidates {worst[0] + 1} and {worst[1] + 1} are equal in {self._pairs[worst]:,} of "
                    f"{counted(varied, 'group')} whose candidates are not all equal.",
                    remedy="One was copied, so that it counts twice. Sample every candidate on its own.",
                )
        share = self._all_equal / self._groups
        return Finding(
            name=self.name, status="passed", text=f"in {share:.0%} of {counted(self._groups, 'group')} all are equal."
        )

    def _equal(self) -> Finding:
        text = f"in {self._all_equal:,} of {counted(self._groups, 'group')} all candidates are the same reply"
        if self._early[1] < NEARLY_ALL * self._early[0]:
            return _none(self.name, "passed", f"{text}; at first they were not, so the policy repeats itself.")
        if len(self._replies) < 2:
            return _none(self.name, "passed", f"{text}, and the same one to every prompt: see lazy role.")
        return Finding(
            name=self.name,
            status="failed",
            text=f"{text}, from the first on, while replies differ from prompt to prompt.",
            where=self._where,
            remedy="Nothing can be learnt from copies. Set temperature=1.0, and sample every candidate with a seed of "
            "its own; or the policy was certain of every reply before this run.",
        )


def _some_pairs(number: int) -> list[tuple[int, int]]:
    pairs = [(i, j) for j in range(1, number) for i in range(j)]
    return pairs[:MOST_PAIRS]


class ChangedState:
    """A decision is taken in the state that the chosen candidate before led to; an instance always begins alike."""

    name = "changed state"

    def __init__(self, run: Run) -> None:
        self._run = run
        self._faults = _Faults(self.name, "step")
        self._first = _OfInstances()
        self._missing = False

    def observe(self, episode: Episode) -> None:
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
                    self._faults.add(_where(episode, decision), fault)
            before = decision
        if episode.decisions and (state := episode.decisions[0].state) is not None:
            held = self._first.of(episode, dict)
            if held:
                fault = None if held["state"] == state else "not the state in which the instance's others began"
                self._faults.add(_where(episode, episode.decisions[0]), fault)
            held.setdefault("state", state)

    def conclude(self) -> Finding:
        if self._missing and not self._faults.wrong:
            return _none(self.name, "not recorded", "the rows do not say which state each candidate led to.")
        return self._faults.conclude(
            bad="are taken in another state",
            good="each goes on from the state that was reached",
            remedy="What is observed is not what was played. Check the environment's snapshot()/restore() and "
            "reset(seed=...) (`pettingllms check`), or set sampling='parallel'.",
            nothing=_none(self.name, "not applicable", "nothing is branched, and no instance was played twice."),
        )


class SwappedAgents:
    """Each agent's replies come from its own policy, and it is shown its own system prompt, not another agent's."""

    name = "swapped agents"

    def __init__(self, run: Run) -> None:
        self._run = run
        self._faults = _Faults(self.name, "decision")
        self._systems: dict[str, dict[str, int]] = {}
        self._shown: dict[str, int] = {}
        self._where: dict[tuple[str, str], str] = {}

    def observe(self, episode: Episode) -> None:
        for decision in episode.decisions:
            configured = self._run.policies.get(decision.agent)
            if decision.policy is not None and configured is not None:
                fault = f"{decision.agent} played by {decision.policy!r}, expected {configured!r}"
                self._faults.add(_where(episode, decision), None if decision.policy == configured else fault)
            if decision.system:
                counts = self._systems.setdefault(decision.agent, {})
                self._shown[decision.agent] = self._shown.get(decision.agent, 0) + 1
                if decision.system in counts or len(counts) < FEW_GROUPS:
                    counts[decision.system] = counts.get(decision.system, 0) + 1
                    self._where.setdefault((decision.agent, decision.system), _where(episode, decision))

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
            return Finding(
                name=self.name,
                status="failed",
                text=f"{agent} was shown the system prompt of {other} in {counted(number, 'decision')}.",
                where=where,
                remedy="A policy is trained on another role's part. Check agent_selection and observe(agent).",
            )
        num_agents = len(self._run.policies) or len(self._systems)
        several = len(set(self._run.policies.values())) > 1
        kinds = {max(counts, key=lambda system: counts[system]) for counts in self._systems.values()}
        if not self._faults.wrong and not several and len(kinds) < 2:
            if num_agents == 1:
                return _none(self.name, "not applicable", "there is a single agent.")
            text = "agents have neither policies nor system prompts of their own by which to tell."
            return _none(self.name, "not recorded", text)
        if not self._faults.seen:
            return _none(self.name, "passed", f"{len(self._systems)} agents, each with its own system prompt.")
        return self._faults.conclude(
            bad="come from another agent's policy",
            good="each by the policy of its agent",
            remedy="A policy is trained on another role's part. Check `policies` and the routing of requests.",
            nothing=_none(self.name, "not recorded", "the rows do not say which policy sampled."),
        )


EXCHANGE = (MixedPrompts, MixedTurns, MissingCandidates, WrongSums, CopiedSiblings, ChangedState, SwappedAgents)
