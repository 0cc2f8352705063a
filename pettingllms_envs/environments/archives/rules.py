"""Archives: questions of several hops about a fictional world whose facts lie in two archives.

Rules: an archive is searched with a few words, and shows passages of one fact each. The question is a chain that
changes archive at every hop, such as the river of the birthplace of somebody: one archive has birthplaces, the other
one rivers. With `facts` above 1, an archive has several facts of that kind about a name, such as the birthplace and
the grave of somebody, and the question says which one counts. The agents are those of the workflows: `team` (a
librarian for each archive, and an answerer who is shown messages only), `pair` (two librarians, the last of whom
answers), `cut` and `cut_pair` (these without messages), `alone` (one agent with one archive), `full` (one agent with
both), `directed` (the same, told in each turn which archive has the fact) and `routed` (told in each turn which one to
search, and shown no other).
Replies: the last line, `Search: a few words`, `Say: a message` or `Answer: a name`.
Rewards: team `progress` and `success`, both 1 for the right answer. In an agent's own scope, in shares of the hops:
`found`, when a search first shows the fact of a hop, and `told`, when after that a message first names the entity to
which the hop leads, which must be of the agent's own archive. If the message names k other entities, besides those of
the chain before, it earns 1 / (1 + k) of that, and nothing if one of them is where another fact of the same name
leads; a hop pays no more than its best message earned: guessing, repeating, flooding and lying do not pay. In a turn
that no step needs, `told` pays as much for a message that passes the name on, once in an episode.
Without them (`communication_reward=False`) only the answer is paid, and the librarians are declared as paid later.
Outcome: `found` and `told`, in shares of the hops; `lone_bound` and `blind_bound`, of agents that see prompts only.
Lone bound: the relations of each step are moved on by a uniform random distance, independent of all other steps (with
one fact: they are a uniform random bijection), and a chain has no step twice. Given all of one archive and the
question, the last hop in the other archive leads to each entity with the same probability, and so does the chain,
whose remaining hops are bijections. So who reads one archive alone, or gets no messages, is right in 1 of `size`
episodes at most: `Archives.lone_bound()`. It is a share of fresh worlds: an agent that has seen the worlds of public
seeds, or may make them, is not bound by it. A team is always right, since a search for a name finds what its archive
says about it.
Blind bound: agents to whom all relations are one word cannot tell the facts^hops readings of the question apart, all
equally likely, and are right at most as often as the most of them agree: `Archives.blind_bound()`. With one fact it
is 1, so that a team never has to read the question: who passes on the other name of what it is shown is always right.
Both hold for agents that see their prompts and nothing else. One that also reads its rewards, or `found` and
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
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pettingllms_envs.core import SPLITS, ToolResult, ToolSpec, Unreadable, check_choice, check_whole
from pettingllms_envs.environments.archives.world import (
    ARCHIVES,
    STEPS,
    WORDINGS,
    Passage,
    World,
    archive_of,
    contents,
    most_alike,
    world_of,
)
from pettingllms_envs.instances import seeded
from pettingllms_envs.replies.moves import match_last_line, move_of_kind
from pettingllms_envs.tasks.base import OpenTask


if TYPE_CHECKING:
    from pettingllms_envs.bounds import BlindPolicy


SEARCH, SAY, ANSWER = "search", "say", "answer"
MOST_QUERY, MOST_ANSWER = 64, 60
"""Characters of a query, after which it is cut, and of an answer."""

TOOLS = {f"archive_{archive}": archive for archive in ARCHIVES}
"""The tools of the task, see `teams.designs.HasTools`: a search in each archive."""

_LINE = re.compile(rf"({SEARCH}|{SAY}|{ANSWER}):(.*)", re.I | re.A)


class Words(NamedTuple):
    """What the workflows call things: the role that has an archive, an archive, what the role is asked to do in it,
    its job after that, the answerer's, how a search is written, what stands before what was found, or in its place."""

    member: str
    source: str
    search: str
    job: str
    answers: str
    search_format: str
    found: str
    nothing: str


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
        found: For each hop, whether a search in its archive has shown its fact.
        told: For each hop, what the best message with its entity earned: 1 / (1 + other entities), 0 if there is none.
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
        facts: Facts of a name in each archive, 1 to 3; the question says which of them counts. With one, an agent
            that knows the order of the archives need not read the question.
        results: Most passages that a search shows of an archive, `facts` to 10.
        wording: `"english"`, or `"symbols"` for short prompts of few words.
        communication_reward: Whether searches and messages are paid for what they find and tell, by `found` and
            `told`.
    """

    hops: int = 2
    size: int = 40
    results: int = 3
    wording: str = WORDINGS[0]
    communication_reward: bool = True
    facts: int = 2
    turned: tuple[int, int] = field(default=(0, 0), init=False, repr=False)
    """Of `look_alikes`: the step that is another one in all worlds, and by how much, see `World`."""

    name: ClassVar[str] = "archives"
    words: ClassVar[Words] = Words(
        member="librarian",
        source="archive",
        search="Search",
        job="First you search, then you see what was found, and tell in a message what is needed next.",
        answers="You are the answerer. You cannot search. The librarians tell you what they find, and you answer.",
        search_format=(
            f"When you are asked to search, end your reply with one line: Search: and at most {MOST_QUERY} characters."
        ),
        found="Your last search found:",
        nothing="Your last search found nothing.",
    )
    single_agent: ClassVar[str] = "full"
    blind_replies: ClassVar[tuple[str, ...]] = (
        "Search: guild",
        "Search: the river of a town",
        "Say: I found nothing.",
        "Answer: unknown",
        "Answer: t1",
    )

    def __post_init__(self) -> None:
        check_whole("hops", self.hops, 2, 8)
        check_whole("size", self.size, 4, 100)
        check_whole("facts", self.facts, 1, 3)
        check_whole("results", self.results, 1, 10)
        if self.results < self.facts:
            raise ValueError(
                f"results is {self.results} and facts is {self.facts}; expected at least as many results, or a search "
                f"hides facts at random, whatever is asked. Set results={self.facts}, or facts={self.results}."
            )
        check_choice("wording", self.wording, WORDINGS)

    def lone_bound(self) -> Fraction:
        """The greatest share of right answers of who reads one archive alone and no rewards: 1 / size, see the top."""
        return Fraction(1, self.size)

    def blind_bound(self) -> Fraction:
        """The greatest share of right answers of agents to whom all relations are one, even if they read everything.

        All readings of a question are equally likely to them, see `most_alike`: 1 / facts^hops while `size` is at
        least that many, and 1 with one fact.
        """
        return most_alike(self.size, self.hops, self.facts)

    @property
    def blind_policies(self) -> Mapping[str, BlindPolicy]:
        from pettingllms_envs.environments.archives.blind import blind_policies  # only checks ask for them

        return blind_policies(self.facts)

    def look_alikes(self, state: ArchivesState, settings: Mapping[str, Any]) -> Sequence[Archives]:
        """The `size` tasks whose worlds differ in the last step of the chain that the lone reader cannot search."""
        unknown = [each for each in self.world(state).chain.relations if archive_of(each) != settings["archive"]]
        alike = [copy(self) for _ in range(self.size)]
        for by, task in enumerate(alike):
            object.__setattr__(task, "turned", (unknown[-1] % STEPS, by))
        return alike

    def generate(self, seed: int, split: str | None = None) -> ArchivesState:
        """The instance of a seed in a split, `"train"` (also for None), `"validation"` or `"test"`."""
        split = SPLITS[0] if split is None else split
        check_choice("split", split, SPLITS)
        return ArchivesState(split, seed, (False,) * self.hops, (0.0,) * self.hops)

    def world(self, state: ArchivesState) -> World:
        """The world of the instance, with its passages and the chain of its question."""
        return world_of(
            self.size, self.hops, self.wording, state.split, state.seed, facts=self.facts, turned=self.turned
        )

    def parse(self, reply: str) -> ArchivesMove | Unreadable:
        """The words after `Search:`, `Say:` or `Answer:` in the last line; of a query the first 64 characters."""
        found = match_last_line(_LINE, reply, "'Search:', 'Say:' or 'Answer:' with words")
        if isinstance(found, Unreadable):
            return found
        kind, text = found[1].lower(), found[2].strip()
        if not text:
            return Unreadable("it has no words")
        if kind == ANSWER and len(text) > MOST_ANSWER:
            return Unreadable(f"its answer has more than {MOST_ANSWER} characters")
        return ArchivesMove(kind, text[:MOST_QUERY] if kind == SEARCH else text)

    def read(self, reply: str, kind: str) -> tuple[ArchivesMove | None, str]:
        """The move of a kind in a reply, or None and why there is none."""
        return move_of_kind(self.parse(reply), (kind,))

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

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """A search in each archive, for workflows in which agents have tools."""
        query = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
        return tuple(
            ToolSpec(name, f"Searches archive {each} for a few words.", query) for name, each in TOOLS.items()
        )

    def use(self, state: ArchivesState, name: str, request: str) -> tuple[ArchivesState, ToolResult]:
        """The state after a search by a tool, and the passages, a line each."""
        after, passages = self.search(state, (TOOLS[name],), request.strip()[:MOST_QUERY])
        return after, ToolResult("\n".join(each.text for each in passages))

    def tools_needed(self, state: ArchivesState) -> tuple[str, ...]:
        """The search of each hop's archive."""
        names = tuple(TOOLS)
        return tuple(names[archive_of(relation)] for relation in self.world(state).chain.relations)

    def best_request(self, state: ArchivesState, name: str) -> str | None:
        """The name of which the next hop asks, if the archive has its fact."""
        hop, chain = _first_unfound(state), self.world(state).chain
        return chain.names[hop] if hop < self.hops and archive_of(chain.relations[hop]) == TOOLS[name] else None

    def best_message(self, state: ArchivesState) -> str:
        """The name to which the hops found so far lead."""
        return self.world(state).chain.names[_first_unfound(state)]

    def tell(self, state: ArchivesState, archives: Sequence[int], message: str) -> ArchivesState:
        """The state after a message of an agent that has the archives, as it arrives."""
        world = self.world(state)
        names, named = [name.lower() for name in world.chain.names], set(world.named(message))
        told = list(state.told)
        for hop, relation in enumerate(world.chain.relations):
            if state.found[hop] and archive_of(relation) in archives and names[hop + 1] in named:
                others = named.difference(names[: hop + 2])
                earned = 0.0 if others & world.misreadings[hop] else 1 / (1 + len(others))
                told[hop] = max(told[hop], earned)
        return state._replace(told=tuple(told))

    def passed_on(self, state: ArchivesState, hop: int, message: str) -> float:
        """What a message is worth before the first hop is due, or after the last one, in [0, 1].

        1 if it names the name that comes next, the start or the answer if that was found, and no other; with n others
        1 / (1 + n).
        """
        chain, named = self.world(state).chain, set(self.world(state).named(message))
        if 0 <= hop < self.hops or (hop >= self.hops and not state.found[-1]):
            return 0.0
        return 1 / len(named) if chain.names[0 if hop < 0 else -1].lower() in named else 0.0

    def solved(self, state: ArchivesState) -> bool:
        """Whether the answer is the name to which the chain leads; case and a full stop do not matter."""
        return state.answer.strip().rstrip(".").lower() == self.world(state).chain.names[-1].lower()

    def rules(self) -> str:
        """The game in about 90 words."""
        which = f", {self.facts} facts of which the question asks for one" if self.facts > 1 else ""
        return (
            "You answer a question about people, towns, rivers and guilds of a fictional world. Its facts are in two"
            f" archives. Archive 0 has {contents(ARCHIVES[0], self.facts)}. Archive 1 has"
            f" {contents(ARCHIVES[1], self.facts)}. Every name is one word. A search for a name finds what the archive"
            f" says about it{which}; it shows at most {self.results} passages of an archive. Each step of the"
            " question needs the other archive than the step before."
        )

    def reply_format(self) -> str:
        return "When you are asked for the answer, end your reply with one line: Answer: and the name."

    def show(self, state: ArchivesState) -> str:
        return f"Question: {self.world(state).chain.question}"

    def disguised(self, state: ArchivesState) -> str:
        """The question of another name of the same kind, which leads to another answer."""
        world = self.world(state)
        start, relation = world.chain.names[0], world.chain.relations[0]
        alike = sorted({each.subject for each in world.passages[archive_of(relation)] if each.relation == relation})
        other = seeded("archives disguised", state.split, state.seed).choice([each for each in alike if each != start])
        return self.show(state).replace(start, other)

    def write(self, move: ArchivesMove) -> str:
        """Such as `Search: Zulo`."""
        return f"{move.kind.capitalize()}: {move.text}"

    def oracle(self, state: ArchivesState) -> ArchivesMove:
        """The answer; for searches and messages see `wanted`."""
        return ArchivesMove(ANSWER, self.world(state).chain.names[-1])

    def wanted(self, state: ArchivesState, archives: Sequence[int], kind: str, hop: int) -> ArchivesMove:
        """What an agent with the archives had best search, or say, when a hop is due.

        If the hop is in no archive of the agent's, it is its first hop for which this was not done yet. Before the
        first hop is due it is the start, and after the last one the answer.
        """
        chain = self.world(state).chain
        if not 0 <= hop < self.hops:
            return ArchivesMove(kind, chain.names[0 if hop < 0 else -1])
        own = [each for each, relation in enumerate(chain.relations) if archive_of(relation) in archives]
        undone = [each for each in own if not state.found[each] or (kind == SAY and state.told[each] < 1)]
        if hop not in own:
            hop = (*undone, own[-1])[0]
        return ArchivesMove(kind, chain.names[hop if kind == SEARCH else hop + 1])

    def outcome(self, state: ArchivesState) -> Mapping[str, bool | int | float]:
        """`success`; `found` and `told` in shares of the hops; what a lone and a blind agent reach at most."""
        return {
            "success": self.solved(state),
            "found": sum(state.found) / self.hops,
            "told": sum(state.told) / self.hops,
            "lone_bound": float(self.lone_bound()),
            "blind_bound": float(self.blind_bound()),
        }


def _first_unfound(state: ArchivesState) -> int:
    """The number, from 0, of the first hop whose fact has not been found; the hops if all have."""
    return (*state.found, False).index(False)
