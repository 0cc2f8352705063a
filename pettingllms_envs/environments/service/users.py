"""Players of `service` written as rules: scripted users, and honest players of all roles.

What an agent has seen is a sequence of entries, which its prompt shows one after another. Every player here is a
function of them, and of what its role is told at the start; an oracle compares what it heard with the truth as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pettingllms_envs.environments.service.domains import LABELS, Call, Domain
from pettingllms_envs.environments.service.rules import (
    ASK,
    END,
    SAY,
    USER,
    Service,
    ServiceMove,
    words_in,
)
from pettingllms_envs.instances import seeded


FORTHCOMING, TERSE, CONFUSED = MANNERS = ("forthcoming", "terse", "confused")
SAID, ASKED, HEARD, CALLED, UNREAD = "said", "asked", "heard", "called", "unread"

Entry = tuple[str, str, str]
"""What kind of event; who wrote it, or the call; the text: a message, a result, why a reply was unreadable."""
View = Sequence[Entry]

DONE_WORDS = ("done", "bye", "goodbye", "finished")
WHAT = "What do you need?"
MOST_LOST = 3
"""Messages in a row that a scripted user does not understand, after which it ends the talk."""
MOST_ASKED = 2
"""Times that an honest assistant asks for a fact."""

_PAIR = re.compile(r"(\w+) (\w+)")


def topics(domain: Domain) -> Mapping[str, tuple[str, ...]]:
    """What scripted users understand: a kind of fact, a tool of theirs, or the end, each by a few words."""
    tools = {name: rule.topic for name, rule in domain.user_tools.items()}
    return {**{kind: each.topic for kind, each in domain.kinds.items()}, **tools, "done": DONE_WORDS}


def scripted(manner: str, task: Service, labels: Mapping[str, str], view: View, seed: object) -> ServiceMove:
    """The reply of a scripted user.

    It first reads its facts. A message about a tool of its own, with what the tool takes, makes it use that tool; one
    about kinds of facts makes it tell them: `forthcoming` all and one more, `terse` the first, `confused` the first
    one, wrong at first and right when it is asked again. The words of `topics` decide what a message is about.

    Args:
        labels: Which fact of each kind the goal names.
        seed: Decides which further fact is told.
    """
    domain, recent = task.words, _since(view, SAID)
    reader, used = next(iter(domain.user_tools)), [name.split()[0] for kind, name, _ in recent if kind == CALLED]
    facts = facts_read(domain, view)
    if not facts:
        return task.call_move((reader,))
    if not any(kind == HEARD for kind, _, _ in view):
        return ServiceMove(SAY, "Hello.")
    heard = next((text for kind, _, text in reversed(recent) if kind == HEARD), "")
    words = set(words_in(heard))
    if words.intersection(DONE_WORDS):
        return ServiceMove(END)
    for name, rule in domain.user_tools.items():
        if name not in used and words.intersection(rule.topic):
            call = (name, *(_last_named(task, kind, view) for kind in rule.takes.values()))
            if all(call):
                return task.call_move(call)
    asked = [kind for kind in domain.kinds if _is_about(domain, kind, facts, words)]
    if asked:
        return ServiceMove(SAY, _answer(manner, domain, labels, view, asked, seed))
    if used:
        return ServiceMove(SAY, "I have done it.")
    lost = [text == WHAT for kind, _, text in view if kind == SAID][1 - MOST_LOST :]
    return ServiceMove(END) if len(lost) == MOST_LOST - 1 and all(lost) else ServiceMove(SAY, WHAT)


def _answer(
    manner: str, domain: Domain, labels: Mapping[str, str], view: View, asked: Sequence[str], seed: object
) -> str:
    facts, kinds = facts_read(domain, view), list(asked)
    if manner != FORTHCOMING:
        kinds = kinds[:1]
    said = [text for kind, _, text in view if kind == SAID]
    if manner == FORTHCOMING:
        rest = [kind for kind in domain.kinds if kind not in kinds and not any(kind in text for text in said)]
        kinds += [seeded("service user", seed).choice(rest)] if rest else []
    told = []
    for kind in kinds:
        is_wrong = manner == CONFUSED and not any(words_in(text)[:1] == [kind] for text in said)
        label = LABELS[(LABELS.index(labels[kind]) + is_wrong) % 2]
        told.append(f"{kind} {facts[kind][LABELS.index(label)] if kind in facts else label}")
    return ", ".join(told)


def honest_user(task: Service, labels: Mapping[str, str], view: View, truth: Truth | None = None) -> ServiceMove:
    """The reply of a user who reads its facts, tells those that the goal names, and does what the assistant tells.

    Args:
        labels: Which fact of each kind the goal names.
    """
    domain = task.words
    facts = facts_read(domain, view)
    if not facts:
        return task.call_move((next(iter(domain.user_tools)),))
    told = {kind: facts[kind][LABELS.index(label)] if kind in facts else label for kind, label in labels.items()}
    heard = {kind: _last_named(task, kind, view) for kind in tuple(domain.kinds)[domain.num_known :]}
    if truth is not None:
        is_told = truth.is_deaf or all(truth.facts[kind] == value for kind, value in heard.items())
        heard, calls = {kind: truth.facts[kind] for kind in heard}, truth.due_user
    else:
        is_told = all(heard.values()) and any(kind == SAID for kind, _, _ in view)
        made = {call for kind, call, _ in _since(view, HEARD) if kind == CALLED}
        calls = [call for call in domain.user_plan(heard) if " ".join(call) not in made] if is_told else ()
    if is_told and calls:
        return task.call_move(calls[0])
    if is_told and (truth is None or not truth.due_provider):
        return ServiceMove(END)
    return ServiceMove(SAY, ", ".join(f"{kind} {value}" for kind, value in told.items()))


class Truth(NamedTuple):
    """What an oracle knows beside what its role has seen.

    Args:
        facts: The needed facts, by kind.
        labels: Which fact of each kind the goal names.
        due_provider: The planner's calls that are left.
        is_deaf: Whether no message arrives.
    """

    facts: Mapping[str, str]
    labels: Mapping[str, str]
    due_provider: Sequence[Call]
    due_user: Sequence[Call]
    is_deaf: bool


def honest_assistant(
    task: Service, accepts: Sequence[str], view: View, truth: Truth | None = None, expert: str = ""
) -> ServiceMove:
    """The reply of an assistant who asks for each fact, looks up the row, writes what the policy allows, and tells.

    Args:
        accepts: Outcomes that the user accepts.
        expert: The tool that the specialist alone has; empty if the assistant has all.
    """
    domain, kinds = task.words, tuple(task.words.kinds)
    own = kinds[domain.num_known :]
    told = {**_told(domain, view)}
    said = [text for kind, _, text in view if kind == SAID]
    if truth is not None:
        right = {kind: truth.labels[kind] if kind in own else truth.facts[kind] for kind in kinds}
        told = right if truth.is_deaf else {kind: word for kind, word in told.items() if word == right[kind]}
    for kind in kinds:
        times = sum(f"{kind}?" in text for text in said)
        if kind not in told and times < MOST_ASKED:
            return ServiceMove(SAY, f"again {kind}?" if times else f"{kind}?")
    told = {**told, **(right if truth is not None else {})}
    if len(told) < len(kinds):
        return ServiceMove(END)
    finder, key = next(iter(domain.tools)), told[kinds[0]]
    row = next((_columns(text) for kind, call, text in view if kind == CALLED and call == f"{finder} {key}"), None)
    if not row:
        return task.call_move((finder, key))
    if truth is not None:
        calls: Sequence[Call] = truth.due_provider
    else:
        outcome = next((each for each in accepts if domain.allows(each, row)), "")
        made = {call if kind == CALLED else text for kind, call, text in view if kind in (CALLED, ASKED)}
        calls = [each for each in domain.plan(outcome, row, told) if " ".join(each) not in made] if outcome else ()
    if calls:
        return ServiceMove(ASK, " ".join(calls[0])) if calls[0][0] == expert else task.call_move(calls[0])
    facts = {kind: row[f"{kind} {told[kind]}"] for kind in own}
    words = ", ".join(" ".join(call) for call in domain.user_plan(facts))
    is_over = words in said if truth is None else truth.is_deaf or not truth.due_user
    return ServiceMove(END) if is_over else ServiceMove(SAY, words)


def honest_specialist(task: Service, view: View) -> ServiceMove:
    """The reply of a specialist who does what it is asked, if it has the tool."""
    asked, name = next((text for kind, _, text in reversed(view) if kind == HEARD), ""), task.words.expert
    call = tuple(asked.split())
    is_known = call[:1] == (name,) and not isinstance(task.read_call(task_move(task, call), (name,)), str)
    is_made = any(kind == CALLED for kind, _, _ in _since(view, HEARD))
    return task.call_move(call) if is_known and not is_made else ServiceMove(SAY, "done" if is_made else "What?")


def task_move(task: Service, call: Call) -> ServiceMove:
    """The move of a call whose number of arguments may be wrong."""
    is_whole = len(call) == 1 + len(task.rule(call[0]).takes)
    return task.call_move(call) if is_whole else ServiceMove("call", "-", call[0])


def facts_read(domain: Domain, view: View) -> dict[str, tuple[str, str]]:
    """The user's facts by kind, the first and the second, as its tool has shown them; empty before that."""
    reader = next(iter(domain.user_tools))
    text = next((text for kind, call, text in view if kind == CALLED and call == reader), "")
    cells = _columns(text)
    return {
        kind: (cells[f"{kind} first"], cells[f"{kind} second"]) for kind in domain.kinds if f"{kind} first" in cells
    }


def _columns(text: str) -> dict[str, str]:
    """A result by column."""
    return {column: cell for column, _, cell in (each.rpartition(" ") for each in text.split(", "))}


def _told(domain: Domain, view: View) -> dict[str, str]:
    """What was heard last of each kind: the user's facts, and the labels of the provider's."""
    heard = (text for kind, sender, text in view if kind == HEARD and sender == USER)
    pairs = (pair for text in heard for pair in _PAIR.findall(text))
    return {kind: word for kind, word in pairs if kind in domain.kinds}


def _last_named(task: Service, kind: str, view: View) -> str:
    """The word of a kind that was heard last; of several in one message the first; empty if there was none."""
    by_word = {word.lower(): word for word in task.legal_words(kind)}
    for event, _, text in reversed(view):
        named = [by_word[word] for word in words_in(text) if word in by_word] if event == HEARD else ()
        if named:
            return named[0]
    return ""


def _is_about(domain: Domain, kind: str, facts: Mapping[str, tuple[str, str]], words: set[str]) -> bool:
    """Whether a message asks for a kind of fact, by a word of its topic, or repeats a fact of it."""
    repeated = (word.lower() for word in facts.get(kind, ()))
    return not words.isdisjoint((*domain.kinds[kind].topic, *repeated))


def _since(view: View, event: str) -> list[Entry]:
    """What came after the last event of a kind."""
    return list(_backwards(view, event))[::-1]


def _backwards(view: View, event: str) -> Iterator[Entry]:
    for entry in reversed(view):
        if entry[0] == event:
            return
        yield entry
