"""Archives: questions of several hops about a fictional world whose facts lie in two archives.

Rules: an archive is searched with a few words, and shows passages of one fact each. The question is a chain that
changes archive at every hop, such as the river of the birthplace of somebody: one archive has birthplaces, the other
one rivers. The agents are those of the workflows: `team` (a librarian for each archive, and an answerer who is shown
messages only), `pair` (two librarians, the last of whom answers), `cut` (the team without messages), `alone` (one
agent with one archive) and `full` (one agent with both).
Replies: the last line, `Search: a few words`, `Say: a message` or `Answer: a name`.
Rewards: team `progress` and `success`, both 1 for the right answer. In an agent's own scope, in shares of the hops:
`found`, when a search first shows the fact of a hop, and `told`, when after that a message first names the entity to
which the hop leads, which must be of the agent's own archive. If the message names k other entities, besides those of
the chain before, it earns 1 / (1 + k) of that, and a hop pays no more than its best message earned: guessing,
repeating, flooding and lying do not pay.
Without them (`communication_reward=False`) only the answer is paid, and the librarians are declared as paid later.
Outcome: `found` and `told`, in shares of the hops; `lone_bound`, of agents that see prompts only, see below.
Lone bound: every relation is a uniform random bijection between kinds of `size` entities, independent of the
others, and a chain has no relation twice. Given all of one archive and the question, the last hop in the other archive
leads to each entity with the same probability, and so does the chain, whose remaining hops are bijections. So who
reads one archive alone, or gets no messages, is right in 1 of `size` episodes at most, in every instance:
`Archives.lone_bound()`. A team is always right, since a search for a name finds what its archive says about it.
The bound holds for agents that see their prompts and nothing else. One that also reads its rewards, or `found` and
`told` in the outcome, learns from them which facts belong to the chain, and is right more often.
Instances: a seed decides everything. Names of different splits are different (in symbols they are not: `p0`, `p1`).
With `wording="symbols"` and a small `size`, prompts are short and have few words, for models of a million parameters.
Oracle: searches, tells and answers the entities of the chain, also in workflows where no agent could know them.
Source: our own; multi-hop questions by composition as in H. Trivedi et al., "MuSiQue: Multihop questions via
single-hop question composition", TACL 2022 (arXiv:2108.00573).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import SPLITS, Unreadable, check_choice
from pettingllms_envs.replies.moves import last_line
from pettingllms_envs.tasks.archives_world import ARCHIVES, WORDINGS, Passage, World, archive_of, contents, world_of
from pettingllms_envs.tasks.base import OpenTask


SEARCH, SAY, ANSWER = "search", "say", "answer"
MOST_QUERY, MOST_ANSWER = 64, 60
"""Characters of a query, after which it is cut, and of an answer."""

_LINE = re.compile(rf"({SEARCH}|{SAY}|{ANSWER}):[ \t]*(.*)", re.I)


class ArchivesMove(NamedTuple):
    """What a reply asks or says.

    Args:
        kind: `"search"`, `"say"` or `"answer"`.
        text: The words after it, not empty.
    """

    kind: str
    text: str


class ArchivesState(NamedTuple):
    """An instance, and what has been found and told.

    Args:
        split: Of the instance.
        seed: Of the instance.
        found: For each hop, whether a search in its archive has shown its fact.
        told: For each hop, what the best message with its entity earned: 1 / (1 + other entities), 0 if there is none.
        answer: The answer; empty if there is none.
    """

    split: str
    seed: int
    found: tuple[bool, ...]
    told: tuple[float, ...]
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Archives(OpenTask[ArchivesState]):
    """The task. Its state is an `ArchivesState`, its move an `ArchivesMove`.

    Args:
        hops: Hops of a question, 2 to 8.
        size: Entities of each of the four kinds, 4 to 100.
        results: Most passages that a search shows of an archive, 1 to 10.
        wording: `"english"`, or `"symbols"` for short prompts of few words.
        communication_reward: Whether searches and messages are paid for what they find and tell, by `found` and
            `told`.

    Raises:
        ValueError: A value is out of its range.
    """

    hops: int = 2
    size: int = 40
    results: int = 3
    wording: str = WORDINGS[0]
    communication_reward: bool = True
    turned: tuple[int, int] = field(default=(0, 0), init=False, repr=False)
    """Of `look_alikes`: the relation that is another one in all worlds, and by how much, see `World`."""

    name: ClassVar[str] = "archives"
    blind_replies: ClassVar[tuple[str, ...]] = (
        "Search: guild",
        "Search: the river of a town",
        "Say: I found nothing.",
        "Answer: unknown",
        "Answer: t1",
    )

    def __post_init__(self) -> None:
        _check_whole("hops", self.hops, 2, 8)
        _check_whole("size", self.size, 4, 100)
        _check_whole("results", self.results, 1, 10)
        check_choice("wording", self.wording, WORDINGS)

    def lone_bound(self) -> Fraction:
        """The greatest share of right answers of who reads one archive alone and no rewards: 1 / size, see the top."""
        return Fraction(1, self.size)

    def look_alikes(self, state: ArchivesState, settings: Mapping[str, Any]) -> Sequence[Archives]:
        """The `size` tasks whose worlds differ in the last relation of the chain that the lone reader cannot search.

        Args:
            state: A state from `generate`.
            settings: Those of the form `alone`, with its `archive`.
        """
        unknown = [each for each in self.world(state).chain.relations if archive_of(each) != settings["archive"]]
        alike = [copy(self) for _ in range(self.size)]
        for by, task in enumerate(alike):
            object.__setattr__(task, "turned", (unknown[-1], by))
        return alike

    def generate(self, seed: int, split: str | None = None) -> ArchivesState:
        """The instance of a seed in a split.

        Args:
            seed: Any whole number.
            split: `"train"` (also for None), `"validation"` or `"test"`.

        Raises:
            ValueError: There is no such split.
        """
        split = SPLITS[0] if split is None else split
        check_choice("split", split, SPLITS)
        return ArchivesState(split, seed, (False,) * self.hops, (0.0,) * self.hops)

    def world(self, state: ArchivesState) -> World:
        """The world of the instance, with its passages and the chain of its question."""
        return world_of(self.size, self.hops, self.wording, state.split, state.seed, self.turned)

    def parse(self, reply: str) -> ArchivesMove | Unreadable:
        """The words after `Search:`, `Say:` or `Answer:` in the last line; of a query the first 64 characters."""
        line = last_line(reply)
        found = _LINE.fullmatch(line)
        if found is None:
            return Unreadable(
                "its last line is not 'Search:', 'Say:' or 'Answer:' with words" if line else "it is empty"
            )
        kind, text = found[1].lower(), found[2].strip()
        if not text:
            return Unreadable("it has no words")
        if kind == ANSWER and len(text) > MOST_ANSWER:
            return Unreadable(f"its answer has more than {MOST_ANSWER} characters")
        return ArchivesMove(kind, text[:MOST_QUERY] if kind == SEARCH else text)

    def apply(self, state: ArchivesState, move: ArchivesMove) -> ArchivesState:
        """The state after an answer; for searches and messages see `search` and `tell`, which take the archives."""
        return state._replace(answer=move.text) if move.kind == ANSWER else state

    def search(
        self, state: ArchivesState, archives: Sequence[int], query: str
    ) -> tuple[ArchivesState, tuple[Passage, ...]]:
        """The state after a search in the archives, and the passages that it shows, best first."""
        world = self.world(state)
        passages = world.search(archives, query, self.results)
        shown = {(passage.subject, passage.relation) for passage in passages}
        facts = zip(world.chain.names, world.chain.relations, strict=False)
        found = tuple(was or fact in shown for was, fact in zip(state.found, facts, strict=True))
        return state._replace(found=found), passages

    def tell(self, state: ArchivesState, archives: Sequence[int], message: str) -> ArchivesState:
        """The state after a message of an agent that has the archives, as it arrives."""
        world = self.world(state)
        names, named = [name.lower() for name in world.chain.names], set(world.named(message))
        told = list(state.told)
        for hop, relation in enumerate(world.chain.relations):
            if state.found[hop] and archive_of(relation) in archives and names[hop + 1] in named:
                others = named.difference(names[: hop + 2])
                told[hop] = max(told[hop], 1 / (1 + len(others)))
        return state._replace(told=tuple(told))

    def solved(self, state: ArchivesState) -> bool:
        """Whether the answer is the name to which the chain leads; case and a full stop do not matter."""
        return state.answer.strip().rstrip(".").lower() == self.world(state).chain.names[-1].lower()

    def rules(self) -> str:
        """The game in about 90 words."""
        return (
            "You answer a question about people, towns, rivers and guilds of a fictional world. Its facts are in two"
            f" archives. Archive 0 has {contents(ARCHIVES[0])}. Archive 1 has {contents(ARCHIVES[1])}. Every name is"
            " one word. A search for a name finds what the archive says about it; it shows at most"
            f" {self.results} passages of an archive. Each step of the question needs the other archive than the step"
            " before."
        )

    def reply_format(self) -> str:
        """How a reply ends."""
        return "When you are asked for the answer, end your reply with one line: Answer: and the name."

    def show(self, state: ArchivesState) -> str:
        """The question."""
        return f"Question: {self.world(state).chain.question}"

    def write(self, move: ArchivesMove) -> str:
        """Such as `Search: Zulo`."""
        return f"{move.kind.capitalize()}: {move.text}"

    def oracle(self, state: ArchivesState) -> ArchivesMove:
        """The answer; for searches and messages see `wanted`."""
        return ArchivesMove(ANSWER, self.world(state).chain.names[-1])

    def wanted(self, state: ArchivesState, archives: Sequence[int], kind: str, turn: int) -> ArchivesMove:
        """What an agent with the archives had best search, or say, in a turn.

        It is the hop of that turn; if that is in no archive of the agent's or there is none, its first hop for which
        this was not done yet.
        """
        chain = self.world(state).chain
        own = [hop for hop, relation in enumerate(chain.relations) if archive_of(relation) in archives]
        undone = [hop for hop in own if not state.found[hop] or (kind == SAY and state.told[hop] < 1)]
        hop = turn - 1 if turn - 1 in own else (*undone, own[-1])[0]
        return ArchivesMove(kind, chain.names[hop if kind == SEARCH else hop + 1])

    def outcome(self, state: ArchivesState) -> Mapping[str, bool | int | float]:
        """See the top of this file."""
        return {
            "success": self.solved(state),
            "found": sum(state.found) / self.hops,
            "told": sum(state.told) / self.hops,
            "lone_bound": float(self.lone_bound()),
        }


def _check_whole(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}; expected a whole number from {low} to {high}. Choose another.")
