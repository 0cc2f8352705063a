"""HiddenBench: a group chooses between options; each member knows a fact that the others do not. For tests only.

Rules: all members know the shared facts, which speak for a wrong option. Each knows one hidden fact more, and is not
told which one. With all facts together the right option follows. The members talk, then each of them votes.
Replies: a message, in free words; a vote in the last line, `Vote: the option`. Capitals, articles and punctuation do
not matter. A vote for what is not an option is a wrong one.
Rewards: team `progress` and `success`, both 1 once more than half of the members have voted for the right option; to
each member `correct`, 1 for its own right vote. Messages are not paid.
Outcome: `success`, by the majority; `accuracy`, the share of the members that voted for the right option. It tells
a reader of infos whether the votes before were right: show members their prompts and nothing else.
Instances: the tasks in the order of their digests, all in the split `test`: do not train on them. Seed s is task s
modulo their number, and decides which member knows which fact and the order in which the options are shown, to all
members alike. So a vote for the option of any one place is right by chance only.
No claim that a team is needed: a member can guess. Li, Naito and Shirado report 30.1% for groups with hidden facts and
80.7% for members that know all of them. Their groups talk for 15 rounds, and members remember the conversation.
Oracle: tells the hidden fact and votes for the right option, also where no member could know it.
Source: Y. Li, A. Naito, H. Shirado, "Systematic Failures in Collective Reasoning under Distributed Information in
Multi-Agent LLMs" (arXiv:2505.11556).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pettingllms_envs.core import Unreadable
from pettingllms_envs.datasets.normalization import short_answer
from pettingllms_envs.environments.hidden_bench.rows import HiddenProfile
from pettingllms_envs.instances import seeded
from pettingllms_envs.quoting import quote_headings, quote_inline
from pettingllms_envs.replies.moves import match_last_line
from pettingllms_envs.tasks.data import DataTask


MOST_VOTE = 300
"""Characters of a vote."""

_LINE = re.compile(r"vote:(.*)", re.I | re.S)


class ProfileState(NamedTuple):
    """A task, who knows what, and the votes.

    Args:
        problem: The task; in a `repr` its digest stands for it.
        order: The indices of the hidden facts, of the first member, the second, and so on.
        options: The indices of the options in the order in which they are shown.
        num_members: How many vote: as many as there are hidden facts, or one who knows all.
        votes: The votes so far, in the order of the members; empty for one that was unreadable.
    """

    problem: HiddenProfile
    order: tuple[int, ...]
    options: tuple[int, ...]
    num_members: int
    votes: tuple[str, ...] = ()

    @property
    def num_right(self) -> int:
        return sum(short_answer(vote) == short_answer(self.problem.answer) for vote in self.votes)


@dataclass(frozen=True, slots=True)
class HiddenBench(DataTask[ProfileState]):
    """The task. Its state is a `ProfileState`, its move the text of a vote."""

    name: ClassVar[str] = "hidden_bench"
    problem_kind: ClassVar[type[HiddenProfile]] = HiddenProfile
    single_agent: ClassVar[str] = "full"
    own: ClassVar[str] = "own:hidden_bench"
    benchmark: ClassVar[str] = "HiddenBench"
    remedy: ClassVar[str] = (
        "pettingllms data prepare YuxuanLi1225/HiddenBench and --set data=YuxuanLi1225__HiddenBench for it"
    )
    instance_fields: ClassVar[Mapping[str, tuple[object, ...]]] = {"split": ("test",), "problem": (), "row": ()}
    blind_replies: ClassVar[tuple[str, ...]] = (
        "I agree.",
        "Vote: yes",
        *(f"Vote: the {place} option" for place in ("first", "second", "third", "fourth")),
        "Vote: A",
    )

    def begin(self, problem: HiddenProfile, seed: int, split: str | None) -> ProfileState:
        """The start state of a problem; the seed decides who knows which fact, and the order of the options."""
        num = len(problem.hidden)
        rng = seeded("hidden_bench", "v0", seed, problem.digest)
        order = rng.sample(range(num), num)
        options = rng.sample(range(len(problem.options)), len(problem.options))
        return ProfileState(problem, tuple(order), tuple(options), num)

    def facts(self, state: ProfileState, member: int) -> tuple[str, ...]:
        """What a member knows, one alone everything, in an order that does not tell which facts are hidden."""
        own = state.order if state.num_members == 1 else (state.order[member],)
        known = [*state.problem.shared, *(state.problem.hidden[index] for index in own)]
        rng = seeded("hidden_bench", "v0", "facts", state.order, own, state.problem.digest)
        return tuple(rng.sample(known, len(known)))

    def parse(self, reply: str) -> str | Unreadable:
        """The words after `Vote:` in the last line."""
        found = match_last_line(_LINE, reply, "'Vote:' and an option")
        if isinstance(found, Unreadable):
            return found
        vote = found[1].strip()
        return vote[:MOST_VOTE] if short_answer(vote[:MOST_VOTE]) else Unreadable("it names no option")

    def apply(self, state: ProfileState, move: str) -> ProfileState:
        return state._replace(votes=(*state.votes, move))

    def solved(self, state: ProfileState) -> bool:
        """Whether more than half of the members voted for the right option."""
        return 2 * state.num_right > state.num_members

    def rules(self) -> str:
        """The task in about 40 words."""
        return (
            "You are a member of a group that must choose one of several options. The members talk about it, then"
            " each of them votes. What others write is shown after '>'. The facts that you know are true."
        )

    def reply_format(self) -> str:
        """How a vote is written."""
        return "When you are asked to vote, end your reply with one line: Vote: and the option as it is written."

    def show(self, state: ProfileState) -> str:
        """The situation and the options, without facts."""
        options = "; ".join(quote_inline(state.problem.options[index]) for index in state.options)
        return f"{quote_headings(state.problem.statement)}\nThe options: {options}."

    def write(self, move: str) -> str:
        """Such as `Vote: Fox hut`."""
        return f"Vote: {move}"

    def oracle(self, state: ProfileState) -> str:
        return state.problem.answer

    def outcome(self, state: ProfileState) -> Mapping[str, bool | int | float]:
        """`success`, by the majority, and `accuracy`, the share of the members that voted for the right option."""
        return {"success": self.solved(state), "accuracy": state.num_right / state.num_members}
