"""Was each candidate of a group sampled on its own, and is it known which of them was played on?"""

from __future__ import annotations

from collections.abc import Hashable

from pettingllms_envs.audit.counting import FaultCheck, groups_of, where_of
from pettingllms_envs.audit.findings import Finding, counted
from pettingllms_envs.audit.rows import Candidate, Decision, Episode, RunFacts


MOST_PAIRS = 64
FEW_GROUPS = 16
"""Below that it is not said that siblings are copies: a few may be equal by chance."""
NEARLY_ALL = 0.9
LONG = 32
"""Tokens of a reply that is not sampled twice by chance, nor the only legal one."""


class WrongChoice(FaultCheck):
    """Exactly one candidate of each decision is the chosen one, and what was played is its reply."""

    name = "wrong choice"
    unit = "step"
    lacking = "the rows do not say which candidate was played on."
    bad = "were not played by one chosen candidate"
    good = "one candidate was chosen, and its reply played"
    remedy = (
        "The episode goes on from a reply that is not the one recorded. Mark the one candidate whose reply was played."
    )
    nothing = ("not applicable", "there is no decision.")

    def observe(self, episode: Episode) -> None:
        for decision in episode.decisions:
            if not episode.is_whole or any(each.is_chosen is None for each in decision.candidates):
                self._missing = True
            else:
                self._judge(where_of(episode, decision), _fault_of_choice(decision))

    def conclude(self) -> Finding:
        if not self._run.is_training:
            return self._concluded("not applicable", "a benchmark has one reply to choose from.")
        return super().conclude()


def _fault_of_choice(decision: Decision) -> str | None:
    number = sum(each.is_chosen is True for each in decision.candidates)
    if number != 1:
        return f"{number or 'no'} candidates are chosen"
    chosen = next(each for each in decision.candidates if each.is_chosen)
    is_other = decision.reply is not None and decision.reply != chosen.reply
    return "the reply is not the chosen candidate's" if is_other else None


class CopiedSiblings:
    """Candidates are samples of their own: not the same reply K times, or at the same two places every time.

    A policy that has collapsed gives equal siblings, too. But it says the same to every prompt, or once did not. And
    where one reply is legal, as under a mask of moves, siblings cannot but be equal: long replies that were sampled at
    a temperature above 0 are not equal by that, short ones and those of temperature 0 may be, which is a warning.
    """

    name = "copied siblings"

    def __init__(self, run: RunFacts) -> None:
        self._run = run
        self._groups = 0
        self._all_equal = 0
        self._long = 0  # of those whose replies are all equal
        self._early = [0, 0]  # the first FEW_GROUPS: how many, and how many of equal replies
        self._replies: set[Hashable] = set()
        self._pairs: dict[tuple[int, int], int] = {}
        self._where = ""

    def observe(self, episode: Episode) -> None:
        for decision in groups_of(episode):
            replies = [candidate.reply for candidate in decision.candidates]
            equal = len(set(replies)) == 1
            self._groups += 1
            self._all_equal += equal
            self._long += equal and _num_tokens(decision.candidates[0]) >= LONG
            if self._early[0] < FEW_GROUPS:
                self._early[0] += 1
                self._early[1] += equal
            if equal:
                self._where = self._where or where_of(episode, decision)
                if len(self._replies) < FEW_GROUPS:
                    self._replies.add(replies[0])
            elif len(replies) > 2:
                pairs = [(i, j) for j in range(1, len(replies)) for i in range(j)]
                for pair in pairs[:MOST_PAIRS]:
                    self._pairs[pair] = self._pairs.get(pair, 0) + (replies[pair[0]] == replies[pair[1]])

    def conclude(self) -> Finding:
        if self._run.kind == "bench" or (self._run.is_tree is False and not self._groups):
            return Finding(self.name, "not applicable", "no decision has several candidates.")
        if self._groups < FEW_GROUPS:
            text = f"{counted(self._groups, 'group')}, too few to tell; expected {FEW_GROUPS}."
            return Finding(self.name, "not applicable" if self._groups else "not recorded", text)
        if self._all_equal >= NEARLY_ALL * self._groups:
            return self._equal()
        varied = self._groups - self._all_equal
        worst = max(self._pairs, key=lambda pair: self._pairs[pair], default=None)
        if worst is not None and varied >= FEW_GROUPS and self._pairs[worst] >= NEARLY_ALL * varied:
            least = min(self._pairs.values())
            if least < 0.5 * varied:  # else the policy often repeats itself, wherever
                text = (
                    f"candidates {worst[0] + 1} and {worst[1] + 1} are equal in {self._pairs[worst]:,} of "
                    f"{counted(varied, 'group')} whose candidates are not all equal."
                )
                remedy = "One was copied, so that it counts twice. Sample every candidate on its own."
                return Finding(self.name, "failed", text, remedy=remedy)
        share = self._all_equal / self._groups
        return Finding(self.name, "passed", f"in {share:.0%} of {counted(self._groups, 'group')} all are equal.")

    def _equal(self) -> Finding:
        text = f"in {self._all_equal:,} of {counted(self._groups, 'group')} all candidates are the same reply"
        if self._early[1] < NEARLY_ALL * self._early[0]:
            return Finding(self.name, "passed", f"{text}; at first they were not, so the policy repeats itself.")
        if len(self._replies) < 2:
            return Finding(self.name, "passed", f"{text}, and the same one to every prompt: see lazy role.")
        text = f"{text}, from the first on, while replies differ from prompt to prompt"
        if self._run.temperature == 0 or 2 * self._long < self._all_equal:
            why = "the temperature is 0" if self._run.temperature == 0 else f"most have fewer than {LONG} tokens"
            remedy = (
                "Nothing is learnt where one reply is legal or likely. If others are, set temperature=1.0, and "
                "sample every candidate with a seed of its own."
            )
            return Finding(self.name, "warning", f"{text}; {why}.", self._where, remedy)
        remedy = (
            "Nothing can be learnt from copies. Set temperature=1.0, and sample every candidate with a seed of "
            "its own; or the policy was certain of every reply before this run."
        )
        return Finding(self.name, "failed", f"{text}.", self._where, remedy)


def _num_tokens(candidate: Candidate) -> int:
    """As recorded; else a token for every four characters."""
    if candidate.tokens is not None:
        return candidate.tokens
    return len(candidate.reply) // 4 if isinstance(candidate.reply, str) else 0
