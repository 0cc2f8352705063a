"""Players of `service` written as rules: scripted users, and honest players of all roles, some from prompts alone.

What an agent has seen is a sequence of entries, which its prompt shows one after another. Every player here is a
function of them, and of what its role is told at the start; only the planner, whom no message reaches, knows more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from random import Random
from typing import Any

from pettingllms_envs.bounds import BlindPolicy
from pettingllms_envs.environments.service.domains import LABELS, NUM_KNOWN, Call, Domain
from pettingllms_envs.environments.service.moves import ASK, ASSISTANT, END, SAY, USER, ServiceMove, words_in
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


def topics(domain: Domain) -> Mapping[str, tuple[str, ...]]:
    """What scripted users understand: a kind of fact, a tool of theirs, or the end, each by a few words."""
    tools = {name: rule.topic for name, rule in domain.user_tools.items()}
    return {**{kind: each.topic for kind, each in domain.kinds.items()}, **tools, "done": DONE_WORDS}


def scripted(manner: str, task: Any, labels: Mapping[str, str], view: View, seed: object) -> Call:
    """The reply of a scripted user.

    It first reads its facts. A message about a tool of its own, with what the tool takes, makes it use that tool; one
    about kinds of facts makes it tell them: `forthcoming` all and one more, `terse` the first, `confused` the first
    one, wrong at first and right when it is asked again. The words of `topics` decide what a message is about.

    Args:
        labels: Which fact of each kind the goal names.
        seed: Decides which further fact is told.
    """
    domain: Domain = task.words
    recent, facts = _since(view, SAID), facts_read(domain, view)
    used = [name.split()[0] for kind, name, _ in recent if kind == CALLED]
    if not facts:
        return (next(iter(domain.user_tools)),)
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
                return call
    about = {kind: (*each.topic, *map(str.lower, facts.get(kind, ()))) for kind, each in domain.kinds.items()}
    asked = list(dict.fromkeys(kind for word in words_in(heard) for kind in domain.kinds if word in about[kind]))
    said = [text for kind, _, text in view if kind == SAID]
    if manner == FORTHCOMING and asked:
        rest = [kind for kind in domain.kinds if kind not in asked and not any(kind in text for text in said)]
        asked += [seeded("service user", seed).choice(rest)] if rest else []
    told = []
    for kind in asked if manner == FORTHCOMING else asked[:1]:
        is_wrong = manner == CONFUSED and not any(words_in(text)[:1] == [kind] for text in said)
        label = LABELS[(LABELS.index(labels[kind]) + is_wrong) % 2]
        told.append(f"{kind} {facts[kind][LABELS.index(label)] if kind in facts else label}")
    if told or used:
        return ServiceMove(SAY, ", ".join(told) or "I have done it.")
    return ServiceMove(END if said[1 - MOST_LOST :] == [WHAT] * (MOST_LOST - 1) else SAY, WHAT)


def honest_user(task: Any, labels: Mapping[str, str], view: View) -> Call:
    """The reply of a user who reads its facts, tells those that the goal names, and does what the assistant tells."""
    domain: Domain = task.words
    facts = facts_read(domain, view)
    if not facts:
        return (next(iter(domain.user_tools)),)
    heard = {kind: _last_named(task, kind, view) for kind in labels if kind not in facts}
    if all(heard.values()) and any(kind == SAID for kind, _, _ in view):
        made = {call for kind, call, _ in _since(view, HEARD) if kind == CALLED}
        left = [call for call in domain.user_plan(heard) if " ".join(call) not in made]
        return left[0] if left else ServiceMove(END)
    told = (f"{kind} {facts[kind][LABELS.index(each)] if kind in facts else each}" for kind, each in labels.items())
    return ServiceMove(SAY, ", ".join(told))


def honest_assistant(task: Any, accepts: Sequence[str], view: View, expert: str = "") -> Call:
    """The reply of an assistant who asks twice for what it was not told, looks it up, writes what the policy allows
    among what the user `accepts`, by the specialist where it alone has the tool, tells the user its part, and ends."""
    domain: Domain = task.words
    told, said = _told(domain, view), [text for kind, _, text in view if kind == SAID]
    for kind in domain.kinds:
        times = sum(f"{kind}?" in text for text in said)
        if (kind not in told and not times) or times == 1:
            return ServiceMove(SAY, f"again {kind}?" if times else f"{kind}?")
    key, *own = (kind for at, kind in enumerate(domain.kinds) if not 0 < at < NUM_KNOWN)
    call = (next(iter(domain.tools)), told.get(key, ""))
    row = next((_columns(text) for kind, each, text in view if kind == CALLED and each == " ".join(call)), None)
    if row is None:
        return call if call[1] in task.legal_words(key) else ServiceMove(END)
    outcome = next((each for each in accepts if domain.allows(each, row)), "")
    if not outcome or len(told) < len(domain.kinds):
        return ServiceMove(END)
    made = {each if kind == CALLED else text for kind, each, text in view if kind in (CALLED, ASKED)}
    for each in domain.plan(outcome, row, told):
        if " ".join(each) not in made:
            return ServiceMove(ASK, " ".join(each)) if each[0] == expert else each
    words = ", ".join(map(" ".join, domain.user_plan({kind: row[f"{kind} {told[kind]}"] for kind in own})))
    return ServiceMove(END) if words in said else ServiceMove(SAY, words)


def honest_specialist(task: Any, view: View) -> Call:
    """The reply of a specialist who does what it is asked, if it has the tool."""
    call = tuple(next((text for kind, _, text in reversed(view) if kind == HEARD), "").split())
    is_made, takes = any(kind == CALLED for kind, _, _ in _since(view, HEARD)), task.rule(task.words.expert).takes
    if is_made or call[:1] != (task.words.expert,) or len(call) != 1 + len(takes):
        return ServiceMove(SAY, "done" if is_made else "What?")
    return call


def planner(task: Any, state: Any, side: str, view: View, *, is_alone: bool) -> Call:
    """The reply of an oracle to whom nobody can write: it reads, makes the planner's calls, of both sides if
    `is_alone`, and ends the episode."""
    tools = task.words.user_tools if side == USER else task.words.tools
    first = (next(iter(tools)), *(() if side == USER else (task.instance(state).key,)))
    if not any(kind == CALLED and call == " ".join(first) for kind, call, _ in view):
        return first
    due: dict[str, tuple[Call, ...]] = {each: task.due(state, each) for each in (ASSISTANT, USER)}
    for call in chain.from_iterable(due.values()) if is_alone else due[side]:
        return call
    return ServiceMove(SAY, "Your part is left.") if any(due.values()) else ServiceMove(END)


def facts_read(domain: Domain, view: View) -> dict[str, tuple[str, str]]:
    """The user's facts by kind, the first and the second, as its tool has shown them; empty before that."""
    reader = next(iter(domain.user_tools))
    cells = _columns(next((text for kind, call, text in view if kind == CALLED and call == reader), ""))
    known = [kind for kind in domain.kinds if f"{kind} first" in cells]
    return {kind: (cells[f"{kind} first"], cells[f"{kind} second"]) for kind in known}


def _columns(text: str) -> dict[str, str]:
    return {column: cell for column, _, cell in (each.rpartition(" ") for each in text.split(", "))}


def _told(domain: Domain, view: View) -> dict[str, str]:
    """What was heard last of each kind: the user's facts, and the labels of the provider's."""
    told, known = dict[str, str](), {kind: at >= NUM_KNOWN for at, kind in enumerate(domain.kinds)}
    for event, sender, text in view:
        if event == HEARD and sender == USER:
            words = text.replace(",", " ").split()
            told |= {kind: word for kind, word in pairwise(words) if (word in LABELS) == known.get(kind)}
    return told


def _last_named(task: Any, kind: str, view: View) -> str:
    """The word of a kind that was heard last; of several in one message the first; empty if there was none."""
    by_word: dict[str, str] = {word.lower(): word for word in task.legal_words(kind)}
    for event, _, text in reversed(view):
        named = [by_word[word] for word in words_in(text) if word in by_word] if event == HEARD else ()
        if named:
            return named[0]
    return ""


def _since(view: View, event: str) -> View:
    """What came after the last event of a kind."""
    return view[max((at for at, (kind, _, _) in enumerate(view, 1) if kind == event), default=0) :]


_BEGINNINGS = {
    "You called ": CALLED,
    "You wrote to": ASKED,
    "You wrote": SAID,
    "The user wrote": HEARD,
    "The assistant wrote": HEARD,
    "The specialist wrote": HEARD,
    "Your reply was": UNREAD,
}
"""How an entry begins in a prompt."""


def blind_policies(task: Any) -> Mapping[str, BlindPolicy]:
    """Honest players who do not read the goal, and take the first fact of each kind, or any."""
    return {
        "the first of each kind": partial(from_prompt, task, "first"),
        "any of each kind": partial(from_prompt, task, ""),
    }


def from_prompt(task: Any, label: str | None, prompt: str, rng: Random, expert: str = "") -> str:
    """The reply of an honest player of any role to its prompt.

    Args:
        label: Which fact of each kind it takes for the one that the goal names; empty for any, None to read the goal.
        expert: The tool that the specialist alone has, if there is one.
    """
    told = {line.partition(": ")[0]: line.partition(": ")[2].rstrip(".").split(", ") for line in prompt.splitlines()}
    view = entries(prompt)
    if "The user accepts" in told:
        return str(task.write(honest_assistant(task, told["The user accepts"], view, expert)))
    if "You mean" in told:
        pairs = (each.split(" ") for each in told["You mean"])
        labels = {kind: word if label is None else label or rng.choice(LABELS) for kind, word in pairs}
        return str(task.write(honest_user(task, labels, view)))
    return str(task.write(honest_specialist(task, view)))


def entries(prompt: str) -> list[Entry]:
    """What an agent has seen, as its prompt shows it."""
    view: list[Entry] = []
    for line in prompt.splitlines():
        kind = next((kind for words, kind in _BEGINNINGS.items() if line.startswith(words)), "")
        if line.startswith("> ") and view:
            view[-1] = (*view[-1][:2], f"{view[-1][2]} {line[2:]}".strip())
        elif kind:
            name = line.removeprefix("You called ").rstrip(":") if kind == CALLED else line.split(" ")[1]
            view.append((kind, name, ""))
    return view
