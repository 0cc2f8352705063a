"""A fictional world for multi-hop questions: people, towns, rivers and guilds, whose facts are in two archives.

Every kind has `size` entities, and every relation is a bijection from one kind to another. For each kind, each archive
has `facts` relations, all to the same kind: together they are a *step*. The eight steps form one cycle, in which the
archive changes at every step; a question walks along it and names one relation of each step:

    person (0) town (1) river (0) person (1) guild (0) river (1) town (0) guild (1) person

With `facts=1` all relations are drawn uniformly and independently. With more, a wrong reading of the question should
not end at its answer by chance. So the entities of each kind stand in a circle, in a random order of each world; the
relations of a step move on by a distance drawn for that step, and each of them by another multiple of a power of
`facts` more, such as 0 and 1 at the first step, 0 and 2 at the second, 0 and 4 at the third. Each sum of multiples
belongs to one reading as long as the circle is long enough: see `most_alike`.

Names, wordings, the order of passages and the question come from other random numbers than the relations, so they say
nothing about them.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, TypeVar

from pettingllms_envs.instances import seeded, split_of
from pettingllms_envs.retrieval.bm25 import BM25, terms_of


ARCHIVES = (0, 1)
KINDS = ("person", "town", "river", "guild")
WORDINGS = ("english", "symbols")


class Relation(NamedTuple):
    """A relation between two kinds, such as the birthplace of a person.

    Args:
        subject: The kind of which it is asked.
        object: The kind of the answer.
        sentences: How passages state it, with `{s}` for the subject and `{o}` for the object.
    """

    name: str
    symbol: str
    subject: str
    object: str
    sentences: tuple[str, ...]


CYCLE = ("person", "town", "river", "person", "guild", "river", "town", "guild")
"""The kind that each step asks of; its answer is of the next step's kind."""
STEPS = len(CYCLE)
_IN_SENTENCES = {"person": "{}", "town": "{}", "river": "the {}", "guild": "the {} guild"}
# Per relation its name, its symbol and a sentence; and a second one where it is not "The <name> of ... is ...".
_WORDS_OF_RELATIONS = (
    ("birthplace", "born", "{s} was born in {o}."),
    ("river", "river", "{s} lies on the {o}."),
    ("ferryman", "ferry", "{o} keeps the ferry on the {s}."),
    ("guild", "guild", "{s} was sworn into the {o} guild."),
    ("mill river", "mill", "The mills of the {s} guild stand on the {o}."),
    ("mouth", "mouth", "The {s} reaches the sea at {o}."),
    ("market guild", "market", "The {o} guild holds the market in {s}."),
    ("master", "master", "{o} presides over the {s} guild."),
    ("home", "home", "{s} keeps a house in {o}."),
    ("border river", "border", "{s} ends at the {o}."),
    ("surveyor", "survey", "{o} charted the {s}."),
    ("school", "school", "{s} was taught by the {o} guild."),
    ("barge river", "barge", "The barges of the {s} guild sail on the {o}."),
    ("source", "source", "The {s} springs up near {o}."),
    ("wall guild", "wall", "The {o} guild keeps up the walls of {s}."),
    ("founder", "founder", "{o} began the {s} guild."),
    ("grave", "grave", "{s} was buried in {o}.", "The grave of {s} is in {o}."),
    ("bathing river", "bathe", "The people of {s} bathe in the {o}."),
    ("warden", "warden", "{o} guards the {s}."),
    ("creditor", "debt", "{s} owes money to the {o} guild."),
    ("dye river", "dye", "The dyers of the {s} guild rinse cloth in the {o}."),
    ("bridge", "bridge", "The {s} is bridged at {o}.", "The bridge over the {s} stands in {o}."),
    ("tax guild", "tax", "The {o} guild collects the taxes of {s}."),
    ("scribe", "scribe", "{o} writes the letters of the {s} guild."),
)


def _relation(index: int, name: str, symbol: str, *sentences: str) -> Relation:
    kinds = CYCLE[index % STEPS], CYCLE[(index + 1) % STEPS]
    subject, answer = (_IN_SENTENCES[kind].format(place) for kind, place in zip(kinds, ("{s}", "{o}"), strict=True))
    plain = f"The {name} of {subject} is {answer}."
    return Relation(name, symbol, *kinds, (*sentences, plain)[:2])


RELATIONS = tuple(_relation(index, *words) for index, words in enumerate(_WORDS_OF_RELATIONS))
"""In the order of the cycle, all steps with their first relation, then with their second, then with their third.

Those with an even index are in archive 0, the others in archive 1."""

_CONSONANTS, _VOWELS, _ENDS = "bdfgklmnprstvz", "aeiou", "lmnrs"
_WORDS = frozenset(
    term for relation in RELATIONS for text in (*relation.sentences, relation.name) for term in terms_of(text)
)

Item = TypeVar("Item")


class Passage(NamedTuple):
    """A passage: one fact, with the name of what it is about, and the index of the relation."""

    text: str
    subject: str
    relation: int


class Chain(NamedTuple):
    """A question and its proof.

    Args:
        names: The start, and the entity that each hop leads to; the last one is the answer.
    """

    question: str
    relations: tuple[int, ...]
    names: tuple[str, ...]


class World:
    """Everything about an instance. It is never changed, and can be shared.

    Args:
        size: Entities of each kind.
        wording: One of `WORDINGS`.
        split: Of whose names; those of different splits are different.
        facts: Relations of each step.
        turned: A step, and by how many entities the objects of its relations are moved on: each number makes another
            world, and all are equally likely, since the step's bijection, or its distance, is uniform.
    """

    def __init__(
        self,
        size: int,
        hops: int,
        wording: str,
        split: str,
        seed: int,
        *,
        facts: int = 1,
        turned: tuple[int, int] = (0, 0),
    ) -> None:
        def rng(purpose: str) -> random.Random:
            return seeded("archives", "v0", purpose, size, wording, split, seed)

        names = _names(rng("names"), size, wording, split)
        question, relations = rng(f"question {hops}"), rng("facts")
        first = question.randrange(STEPS)
        circles = names if facts == 1 else {kind: _shuffled(relations, each) for kind, each in names.items()}
        objects = _independent(relations, names) if facts == 1 else _in_circles(relations, circles, facts, first)
        for relation in range(turned[0], len(objects), STEPS):
            objects[relation] = _moved_on(objects[relation], circles[RELATIONS[relation].object], turned[1])
        self.objects = objects
        texts = rng("texts")
        self.names = frozenset(name.lower() for each in names.values() for name in each)
        self.passages: dict[int, tuple[Passage, ...]] = {}
        for archive in ARCHIVES:
            told = list(_passages(texts, objects, archive, wording))
            self.passages[archive] = tuple(_shuffled(texts, told))
        wanted = _reading(rng(f"reading {hops}"), first, hops, facts)
        self.chain = _chain(question, names, objects, wanted, wording)
        self.misreadings = tuple(_misread(objects, *fact) for fact in zip(self.chain.names, wanted, strict=False))
        self._indices: dict[int, BM25] = {}  # by archive, once words that name nothing are searched

    def search(self, archives: Sequence[int], query: str, k: int) -> tuple[Passage, ...]:
        """The k best passages of each archive, in turn: those about what the query names, then by BM25.

        A name is one word and belongs to one entity, so who knows it always finds what each archive says about it.
        """
        terms = dict.fromkeys(terms_of(query))
        found = [self._ranked(archive, query, tuple(terms), k) for archive in archives]
        in_turn = itertools.chain.from_iterable(itertools.zip_longest(*found))
        return tuple(each for each in in_turn if each is not None)

    def named(self, text: str) -> tuple[str, ...]:
        """The different names of this world that are words of a text, in lower case."""
        return tuple(term for term in dict.fromkeys(terms_of(text)) if term in self.names)

    def _ranked(self, archive: int, query: str, terms: Sequence[str], k: int) -> list[Passage]:
        passages = self.passages[archive]
        about = [each for term in terms if term in self.names for each in passages if each.subject.lower() == term]
        if len(found := list(dict.fromkeys(about))) < k:
            index = self._indices.get(archive) or BM25(each.text for each in passages)
            self._indices[archive] = index
            found = list(dict.fromkeys([*found, *(passages[number] for number in index.top(query, k + len(about)))]))
        return found[:k]


@lru_cache(maxsize=1024)  # all agents of all siblings ask, in each turn of an evaluation; 0.1 MB each
def world_of(
    size: int, hops: int, wording: str, split: str, seed: int, *, facts: int = 1, turned: tuple[int, int] = (0, 0)
) -> World:
    """The world of an instance; see `World`."""
    return World(size, hops, wording, split, seed, facts=facts, turned=turned)


def archive_of(relation: int) -> int:
    """The archive that has a relation."""
    return ARCHIVES[relation % len(ARCHIVES)]


def contents(archive: int, facts: int = 1) -> str:
    """What an archive says, in words."""
    own = [relation for index, relation in enumerate(RELATIONS[: facts * STEPS]) if archive_of(index) == archive]
    return ", ".join(f"the {relation.name} of a {relation.subject}" for relation in own)


@lru_cache
def most_alike(size: int, hops: int, facts: int) -> Fraction:
    """The greatest share of the readings of a question, relations of its steps, that lead to the same entity.

    It bounds the success of any agents to whom all relations of a step are one, since all readings are equally likely.

    Example:
        Two relations, three hops: eight readings, which lead to 0 to 7 entities further: 1 of 8 if there are eight.
    """
    ends = Counter({0: 1})
    for hop in range(hops):
        ways = [fact * _stride(size, facts, hop) for fact in range(facts)]
        after: Counter[int] = Counter()
        for (end, num), way in itertools.product(ends.items(), ways):
            after[(end + way) % size] += num
        ends = after
    return Fraction(max(ends.values()), facts**hops)


def _stride(size: int, facts: int, hop: int) -> int:
    """How far apart the objects of the relations of a hop's step are: the powers of `facts` in turn that fit."""
    strides = [1]
    while facts > 1 and strides[-1] * facts**2 <= size:
        strides.append(strides[-1] * facts)
    return strides[hop % len(strides)]


def _names(rng: random.Random, size: int, wording: str, split: str) -> dict[str, list[str]]:
    """Names of each kind: words made of syllables, or in symbols the kind's letter and a number."""
    if wording == "symbols":
        return {kind: [f"{kind[0]}{number}" for number in range(size)] for kind in KINDS}
    taken: dict[str, None] = {}
    while len(taken) < size * len(KINDS):
        letters = "".join(rng.choice(part) for part in (_CONSONANTS, _VOWELS, _CONSONANTS, _VOWELS, _ENDS))
        if letters not in _WORDS and split_of(letters.encode()) == split:
            taken[letters.capitalize()] = None
    each = list(taken)
    return {kind: each[number * size : (number + 1) * size] for number, kind in enumerate(KINDS)}


def _independent(rng: random.Random, names: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """A uniform random bijection for the relation of each step: from subjects to objects."""
    return [
        dict(zip(names[each.subject], _shuffled(rng, names[each.object]), strict=True)) for each in RELATIONS[:STEPS]
    ]


def _in_circles(
    rng: random.Random, circles: Mapping[str, Sequence[str]], facts: int, first: int
) -> list[dict[str, str]]:
    """The relations of all steps: each moves on by the distance of its step, and by another multiple for each fact."""
    size = len(circles[KINDS[0]])
    distances = [rng.randrange(size) for _ in range(STEPS)]
    found: list[dict[str, str]] = []
    for fact, step in itertools.product(range(facts), range(STEPS)):
        relation = RELATIONS[step]
        straight = dict(zip(circles[relation.subject], circles[relation.object], strict=True))
        distance = distances[step] + fact * _stride(size, facts, (step - first) % STEPS)
        found.append(_moved_on(straight, circles[relation.object], distance))
    return found


def _moved_on(objects: Mapping[str, str], circle: Sequence[str], by: int) -> dict[str, str]:
    """A relation with its objects moved on in their circle."""
    place = {name: number for number, name in enumerate(circle)}
    return {subject: circle[(place[name] + by) % len(circle)] for subject, name in objects.items()}


def _reading(rng: random.Random, first: int, hops: int, facts: int) -> tuple[int, ...]:
    """The relations of a question, one of each step."""
    return tuple((first + hop) % STEPS + (STEPS * rng.randrange(facts) if facts > 1 else 0) for hop in range(hops))


def _misread(objects: Sequence[Mapping[str, str]], subject: str, relation: int) -> frozenset[str]:
    """Where the other relations of a step lead from an entity; in lower case."""
    others = range(relation % STEPS, len(objects), STEPS)
    return frozenset(objects[other][subject].lower() for other in others if other != relation)


def _passages(
    rng: random.Random, objects: Sequence[Mapping[str, str]], archive: int, wording: str
) -> Iterator[Passage]:
    """All facts of an archive, each in one of its wordings."""
    for index, facts in enumerate(objects):
        if archive_of(index) == archive:
            relation = RELATIONS[index]
            for subject, each in facts.items():
                sentence = rng.choice(relation.sentences).format(s=subject, o=each)
                text = sentence if wording == "english" else f"{subject} {relation.symbol} {each}"
                yield Passage(text, subject, index)


def _chain(
    rng: random.Random,
    names: Mapping[str, Sequence[str]],
    objects: Sequence[Mapping[str, str]],
    relations: tuple[int, ...],
    wording: str,
) -> Chain:
    course = [rng.choice(names[RELATIONS[relations[0]].subject])]
    for relation in relations:
        course.append(objects[relation][course[-1]])
    if wording == "symbols":
        words = [RELATIONS[relation].symbol for relation in relations]
        return Chain(" ".join([course[0], *words, "?"]), relations, tuple(course))
    phrase = course[0]
    for relation in relations:
        phrase = f"the {RELATIONS[relation].name} of {phrase}"
    word = "Who" if RELATIONS[relations[-1]].object == "person" else "What"
    return Chain(f"{word} is {phrase}?", relations, tuple(course))


def _shuffled(rng: random.Random, items: Sequence[Item]) -> list[Item]:
    return rng.sample(items, len(items))
