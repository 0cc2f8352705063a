"""Does every role learn? Shares of what is trained on; roles that always say the same or are always paid the same."""

from __future__ import annotations

from collections.abc import Hashable

from pettingllms_envs.agent_names import role_of
from pettingllms_envs.audit.findings import Finding, counted
from pettingllms_envs.audit.rows import Episode, RunFacts
from pettingllms_envs.audit.series import Frequent, Series


FEW_GROUPS = 16
FEW_PROMPTS = 4
NEARLY_ALWAYS = 0.95
SMALL_SHARE = 0.02
"""Of the sum of the absolute advantages, which one of several roles has at least."""
SHOWN = 40
"""Characters of a reply."""


def dead_role(run: RunFacts, series: Series) -> Finding:
    """Some replies of each role that learns are paid otherwise than their siblings."""
    if not run.is_training:
        return Finding("dead role", "not applicable", "nothing is learnt in a benchmark.")
    totals = {role: series.total(role) for role in series.roles}
    learning = {role: counts for role, counts in totals.items() if counts.groups}
    if not learning:
        return Finding("dead role", "not recorded", "the rows have no groups with rewards.")
    shares = ", ".join(f"{role} {counts.flat / counts.groups:.0%}" for role, counts in learning.items())
    dead = [role for role, c in learning.items() if c.groups >= FEW_GROUPS and c.flat == c.groups]
    few = [role for role, c in learning.items() if c.groups < FEW_GROUPS and c.flat == c.groups]
    if few and not dead:
        text = f"fewer than {FEW_GROUPS} groups of {', '.join(few)}, all flat: too few to tell."
        return Finding("dead role", "not applicable", text)
    if not dead:
        text = f"share of groups in which nothing tells replies apart: {shares}."
        return Finding("dead role", "passed", text)
    # With parallel sampling a decision has one candidate, which is compared with those of other episodes.
    what = "decision" if run.is_tree is False else "group"
    number = counted(int(sum(learning[role].groups for role in dead)), what)
    if all(learning[role].judged and learning[role].solved == learning[role].judged for role in dead):
        text = f"all {number} of {', '.join(dead)} are flat, and every episode succeeded: it is solved."
        remedy = "Train on harder instances (curriculum=), or stop here."
        return Finding("dead role", "warning", text, remedy=remedy)
    of = f"{number} of {', '.join(dead)}"
    if run.is_tree is False:
        text = f"none of the {of} has an advantage"
    else:
        text = f"in all {of} all candidates are worth the same"
    remedy = "Look at its replies (`pettingllms view`)."
    if run.judges_own_step is not False:
        remedy = (
            "Where the role is paid at later steps, set credit={'at_grpo': {'value': 'return_to_go'}}, "
            "credit='counterfactual', or sampling='parallel' with credit='grpo'; else look at its replies "
            "(`pettingllms view`)."
        )
    text += f", so nothing is learnt there (flat {what}s: {shares})."
    return Finding("dead role", "failed", text, remedy=remedy)


def uneven_learning(run: RunFacts, series: Series) -> Finding:
    """No role has next to nothing of what is trained on."""
    if not run.is_training:
        return Finding("uneven learning", "not applicable", "nothing is learnt in a benchmark.")
    totals = {role: series.total(role) for role in series.roles}
    learning = {role: counts for role, counts in totals.items() if counts.trained}
    whole = sum(counts.advantages for counts in learning.values())
    if not learning:
        return Finding("uneven learning", "not recorded", "the rows have no advantages.")
    if len(learning) == 1:
        return Finding("uneven learning", "not applicable", f"{next(iter(learning))} alone is trained.")
    if not whole:
        return Finding("uneven learning", "not applicable", "all advantages are zero: see dead role.")
    shares = {role: counts.advantages / whole for role, counts in learning.items()}
    words = ", ".join(f"{role} {share:.0%}" for role, share in shares.items())
    # A role whose groups are all flat is the finding of dead_role.
    small = [
        role
        for role, share in shares.items()
        if share < SMALL_SHARE / len(shares) and learning[role].groups - learning[role].flat > 0
    ]
    if small and all(learning[role].groups >= FEW_GROUPS for role in small):
        text = f"shares of the sum of absolute advantages: {words}; {', '.join(small)} hardly learns."
        remedy = "Look whether the rewards of its own step depend on its replies (`pettingllms check`)."
        return Finding("uneven learning", "warning", text, remedy=remedy)
    return Finding("uneven learning", "passed", f"shares of the sum of absolute advantages: {words}.")


class LazyRole:
    """No role gives the same reply, or none, whatever it is asked."""

    name = "lazy role"

    def __init__(self, run: RunFacts) -> None:
        self._replies: dict[str, Frequent] = {}
        self._prompts: dict[str, set[Hashable]] = {}

    def observe(self, episode: Episode) -> None:
        for number, decision in enumerate(episode.decisions):
            role = role_of(decision.agent)
            replies = self._replies.setdefault(role, Frequent())
            prompts = self._prompts.setdefault(role, set())
            for candidate in decision.candidates:
                replies.add(candidate.reply)
                if len(prompts) < FEW_PROMPTS:
                    # Where prompts are not recorded, decisions of several instances and turns stand for them.
                    prompts.add(candidate.prompt if candidate.prompt is not None else (episode.instance, number))

    def conclude(self) -> Finding:
        shares = []
        for role, replies in self._replies.items():
            if replies.most is None or len(self._prompts[role]) < FEW_PROMPTS or replies.total < FEW_GROUPS:
                continue
            reply, number = replies.most
            shares.append((number / replies.total, role, reply, number, replies.total))
        if not shares:
            text = f"no role has {FEW_GROUPS} replies to {FEW_PROMPTS} different prompts: too few to tell."
            return Finding(self.name, "not applicable", text)
        lazy = [f"{_quoted(reply)} is {number:,} of {total:,} replies of {role}"
                for share, role, reply, number, total in shares if share >= NEARLY_ALWAYS]  # fmt: skip
        if lazy:
            remedy = (
                "The role collapsed, or its reply does not matter to its reward. See its influence (--replay), and "
                "resume from an older checkpoint or raise the temperature."
            )
            return Finding(self.name, "warning", f"{'; '.join(lazy)}, whatever the prompt.", remedy=remedy)
        words = ", ".join(f"{role} {share:.0%}" for share, role, *_ in shares)
        return Finding(self.name, "passed", f"share of the most frequent reply: {words}.")


def _quoted(reply: Hashable) -> str:
    if reply in ("", ()):
        return "the empty reply"
    if not isinstance(reply, str):
        return "one reply"
    return repr(reply if len(reply) <= SHOWN else f"{reply[:SHOWN]}...")
