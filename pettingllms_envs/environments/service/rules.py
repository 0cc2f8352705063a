"""Service: a user and the assistant of a shop, a library or a telephone company, each with facts and tools of its own.

Rules: a user wants one of one or two outcomes. It knows facts that the assistant needs and cannot look up, such as an
order and an address; the assistant reads facts that the user needs, such as what to send back. There are two facts of
each kind, and the user's goal says which it means. The assistant's tools change the provider's table, the user's its
own things; neither sees the other's. The workflows say who speaks.
Replies, read in this order: a block whose first line is `call NAME` and whose content is the arguments as JSON (with
`wording="symbols"` a last line such as `call refund 41 u`), whatever else it says; several blocks, of which none is
made and which count as a wrong call; the last line, `Say: a message`, `End:`, or to a specialist `Ask: a message`.
Success: the episode has ended, and table and things are, as a whole, those that the planner's calls lead to, for an
outcome that the user accepts and the policy allows. Words are never read for it, and the start is no such state.
Rewards: team `progress` and `success`, both 1, at the end. To an agent, in shares of the needed facts: `found`, when a
result first shows it a needed fact of its own side; `told`, when a message first names a needed fact to one who needs
it, if the sender knew it: 1 / (1 + k) of a share, with k other values of that kind named to it by then. Whole words
are read. `forbidden`, -0.3: the assistant's for a forbidden write, which is carried out. Questions are paid later.
Lone bound: the user's needed facts are independent and uniform among `values` words, table and accepted outcomes do
not depend on them, and in all their combinations the golden tables differ. So an assistant that gets no messages is
right at most in 1 of `values` ** (their number).
Blind bound: who does not read which facts the goal names is right at most in 1 of 2 ** (needed facts). Both bounds
are of agents that see prompts and no rewards.
Instances: a seed decides everything. Splits have different random numbers and the same words; nothing is rejected to
keep them apart, as the proofs need independent facts.
Oracle: honest players of both roles, who ask, look up, write and tell; the planner where no message arrives.
Source: our own. After "tau-bench", arXiv:2406.12045, and "tau2-bench", arXiv:2506.07982, whose users have tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.bounds import BlindPolicy
from pettingllms_envs.core import SPLITS, Unreadable, check_choice, check_whole
from pettingllms_envs.environments.service.domains import DOMAINS, MOST_VALUES, NUM_KNOWN, Call, Domain, Rule
from pettingllms_envs.environments.service.instances import (
    ENGLISH,
    SYMBOLS,
    WORDINGS,
    Instance,
    Rows,
    Things,
    applied,
    changed,
    instance_of,
    words_of,
)
from pettingllms_envs.environments.service.moves import (
    ASK,
    ASSISTANT,
    CALL,
    END,
    SAY,
    SIDES,
    SPECIALIST,
    USER,
    ServiceMove,
    words_in,
)
from pettingllms_envs.replies.fences import fence
from pettingllms_envs.replies.moves import last_line, match_last_line
from pettingllms_envs.tasks.base import OpenTask
from pettingllms_envs.tools.calls import read_named_calls, strict_json


FORBIDDEN = -0.3
NO_TOOL, ONE_CALL = "There is no such tool.", "Make one call at a time."
BAD_ARGUMENTS, FOREIGN, DONE = "These are not its arguments.", "That is somebody else's.", "Done."

_LINE = re.compile(rf"({SAY}|{ASK}|{END}):(.*)", re.I | re.A)
_SYMBOLS = re.compile(r"call ([^\s]+)((?: [^\s]+)*)", re.I)
_OPENING = re.compile(r"```call (.*)", re.I)


class ServiceState(NamedTuple):
    """An episode."""

    split: str
    seed: int
    rows: Rows
    things: Things
    knows: tuple[tuple[bool, ...], ...]  # for each of `SIDES`: which of the needed facts it knows
    ended: bool = False
    named: tuple[tuple[str, str, str], ...] = ()  # sender, receiver, and a value that one has named to the other


class Used(NamedTuple):
    """What came of a call."""

    call: str  # as a prompt shows it; of one that makes no sense only what is known to be a tool's name
    text: str
    is_bad: bool = False
    is_forbidden: bool = False
    found: int = 0  # needed facts that it was the first to show


@dataclass(frozen=True, slots=True)
class Service(OpenTask[ServiceState]):
    """The task. Its state is a `ServiceState`, its move a `ServiceMove`.

    Args:
        domain: `"shop"`, `"library"` or `"phone"`.
        values: Words of each kind of fact, 2 to 8.
        wording: `"english"`, or `"symbols"` for calls and words that a tiny model can write.
        communication_reward: Whether `found` and `told` are paid.
    """

    domain: str = "shop"
    values: int = 6
    wording: str = ENGLISH
    communication_reward: bool = True
    alike: tuple[int, ...] | None = field(default=None, init=False, repr=False)
    """Of `look_alikes`: the user's needed facts, see `instance_of`."""

    name: ClassVar[str] = "service"
    single_agent: ClassVar[str] = "single"

    def __post_init__(self) -> None:
        check_choice("domain", self.domain, tuple(DOMAINS))
        check_whole("values", self.values, 2, MOST_VALUES)
        check_choice("wording", self.wording, WORDINGS)

    @property
    def words(self) -> Domain:
        return DOMAINS[self.domain]

    @property
    def blind_replies(self) -> tuple[str, ...]:  # type: ignore[override]
        """Every value of a kind, a denial, the end, and a call."""
        every = [word for kind in self.words.kinds for word in self.legal_words(kind)]
        call = self.write((next(iter(self.words.tools)), every[0]))
        return "Say: No.", f"Say: {' '.join(every)}", "End:", call, "Say: The goal is reached.", "Ask: Do it."

    def lone_bound(self) -> Fraction:
        """The greatest share of successes of an assistant that gets no messages, see the top."""
        return Fraction(1, self.values**NUM_KNOWN)

    def blind_bound(self) -> Fraction:
        """The greatest share of successes of agents that do not read which facts the goal names, see the top."""
        return Fraction(1, 2 ** len(self.words.kinds))

    @property
    def blind_policies(self) -> Mapping[str, BlindPolicy]:
        from pettingllms_envs.environments.service.users import blind_policies  # only checks ask for them

        return blind_policies(self)

    def look_alikes(self, state: ServiceState, settings: Mapping[str, Any]) -> Sequence[Service]:
        """The tasks in which the user means other facts, one for each combination."""
        alike = []
        for numbers in product(range(self.values), repeat=NUM_KNOWN):
            alike.append(copy(self))
            object.__setattr__(alike[-1], "alike", numbers)
        return alike

    def generate(self, seed: int, split: str | None = None) -> ServiceState:
        """The instance of a seed in a split, `"train"` (also for None), `"validation"` or `"test"`."""
        split = SPLITS[0] if split is None else split
        check_choice("split", split, SPLITS)
        instance = instance_of(self.domain, self.values, self.wording, split, seed, self.alike)
        nothing = (False,) * len(instance.facts)
        return ServiceState(split, seed, instance.rows, instance.things, (nothing,) * len(SIDES))

    def instance(self, state: ServiceState) -> Instance:
        return instance_of(self.domain, self.values, self.wording, state.split, state.seed, self.alike)

    def parse(self, reply: str) -> ServiceMove | Unreadable:
        """The call in a reply, or its last line; see the top."""
        if self.wording == SYMBOLS:
            found = _SYMBOLS.fullmatch(last_line(reply))
            if found is not None:
                return ServiceMove(CALL, found[2].strip(), found[1].lower())
        else:
            calls = read_named_calls(reply, {name.strip().lower() for name in _OPENING.findall(reply)})
            if isinstance(calls, Unreadable):
                return Unreadable("its call has no end")
            if calls:
                name, request = calls[0]
                return ServiceMove(CALL, request, name) if len(calls) == 1 else ServiceMove(CALL)
        line = match_last_line(_LINE, reply, "a call, 'Say:' with words or 'End:'")
        if isinstance(line, Unreadable):
            return line
        kind, text = line[1].lower(), line[2].strip()
        return ServiceMove(kind, text) if text or kind == END else Unreadable("it has no words")

    def apply(self, state: ServiceState, move: ServiceMove) -> ServiceState:
        """The state after a call, by whoever has the tool, or the end."""
        if move.kind == END:
            return state._replace(ended=True)
        names = (*self.words.tools, *self.words.user_tools)
        return self.use(state, ASSISTANT, names, move)[0] if move.kind == CALL else state

    def use(
        self, state: ServiceState, side: str, names: Collection[str], move: ServiceMove
    ) -> tuple[ServiceState, Used]:
        """The state after a call of an agent that has tools of these names, and what came of it."""
        instance, domain = self.instance(state), self.words
        call = self.read_call(move, names)
        if isinstance(call, str):
            return state, Used(move.name if move.name in names else "a tool", call, is_bad=True)
        shown, name = " ".join(call), call[0]
        if name in domain.user_tools:
            text = DONE if domain.user_tools[name].sets else _written_facts(instance)
            after, found = self.shown(state._replace(things=changed(instance, state.things, call)), side, text)
            return after, Used(shown, text, found=found)
        row = instance.row(state.rows, call[1])
        if not domain.tools[name].sets:
            text = ", ".join(f"{column} {cell}" for column, cell in row.items())
            after, found = self.shown(state, side, text) if call[1] == instance.key else (state, 0)
            return after, Used(shown, text, found=found)
        after = state._replace(rows=applied(instance, state.rows, call))
        return after, Used(shown, DONE, is_forbidden=not domain.permits(call, row))

    def read_call(self, move: ServiceMove, names: Collection[str]) -> Call | str:
        """A call of one of these tools, or what its result says where it makes no sense, in fixed words."""
        if not move.name:
            return ONE_CALL
        if move.name not in names:
            return NO_TOOL
        takes = self.rule(move.name).takes
        given = move.text.split() if self.wording == SYMBOLS else _arguments(move.text, self.words, takes)
        if given is None or len(given) != len(takes):
            return BAD_ARGUMENTS
        kinds = self.words.kinds
        for word, (name, kind) in zip(given, takes.items(), strict=True):
            if kind in kinds and word in kinds[kind].words[MOST_VALUES:]:
                return FOREIGN
            if word not in self.legal_words(kind):
                return f"There is no such {name}."
        return move.name, *given

    def rule(self, name: str) -> Rule:
        """A tool, of either side."""
        return self.words.tools.get(name) or self.words.user_tools[name]

    def legal_words(self, kind: str) -> tuple[str, ...]:
        return words_of(self.domain, self.values, self.wording)[kind]

    def shown(self, state: ServiceState, side: str, text: str) -> tuple[ServiceState, int]:
        """The state after an agent was shown a result, and how many needed facts of its own side it learnt."""
        instance, words, knows = self.instance(state), words_in(text), state.knows[SIDES.index(side)]
        own = instance.user_kinds if side == USER else instance.provider_kinds
        facts = enumerate(instance.facts.items())
        new = [at for at, (kind, fact) in facts if kind in own and fact.lower() in words and not knows[at]]
        return self.learnt(state, side, new), len(new)

    def tell(self, state: ServiceState, sender: str, receiver: str, text: str) -> tuple[ServiceState, float]:
        """The state after a message, as it arrives, and the shares of needed facts that it tells."""
        instance, words = self.instance(state), set(words_in(text))
        if receiver == SPECIALIST:
            needs: Collection[str] = {*self.rule(self.words.expert).takes.values()} & {*instance.user_kinds}
        else:
            needs = instance.provider_kinds if receiver == USER else instance.user_kinds
        knew, knows = (state.knows[SIDES.index(side)] for side in (sender, receiver))
        values = {each.lower() for kind in instance.facts for each in instance.words[kind]}
        named = {*state.named, *((sender, receiver, word) for word in values & words)}
        new, worth = [], 0.0
        for number, (kind, fact) in enumerate(instance.facts.items()):
            if kind in needs and fact.lower() in words and knew[number] and not knows[number]:
                others = [each.lower() for each in instance.words[kind] if each != fact]
                new.append(number)
                worth += 1 / (1 + sum((sender, receiver, each) in named for each in others))
        return self.learnt(state._replace(named=(*sorted(named),)), receiver, new), worth / len(instance.facts)

    def learnt(self, state: ServiceState, side: str, facts: Collection[int]) -> ServiceState:
        """The state in which somebody knows these needed facts as well, by number."""
        at, knows = SIDES.index(side), list(state.knows)
        knows[at] = tuple(was or number in facts for number, was in enumerate(knows[at]))
        return state._replace(knows=tuple(knows))

    def solved(self, state: ServiceState) -> bool:
        """Whether the episode has ended with both states as they should be."""
        return state.ended and (state.rows, state.things) in self.instance(state).golden

    def due(self, state: ServiceState, side: str) -> tuple[Call, ...]:
        """The planner's calls of a side that are still to be made."""
        instance, domain = self.instance(state), self.words
        rows, things = instance.golden[0]
        if side == USER:
            now, end, calls = dict(state.things), dict(things), domain.user_plan(instance.facts)
        else:
            start, now, end = (instance.row(each, instance.key) for each in (instance.rows, state.rows, rows))
            outcome = next(each for each in instance.accepts if domain.allows(each, start))
            is_done = state.rows in [each for each, _ in instance.golden]
            calls = () if is_done else domain.plan(outcome, start, instance.facts)
        sets = {call: self.rule(call[0]).sets.items() for call in calls}
        filled = {call: [[text.format(*call[1:]) for text in pair] for pair in each] for call, each in sets.items()}
        return tuple(call for call in calls if any(now[name] != value == end[name] for name, value in filled[call]))

    def rules(self) -> str:
        """The game in a few words; in symbols nothing."""
        if self.wording == SYMBOLS:
            return ""
        return (
            f"A user and the assistant of a {self.domain} write to each other. There are two facts of each kind, a"
            " first and a second one; the user knows which it means. Success is that in the end the assistant's table"
            " and the user's things are as the user wants and the policy allows, and all else is as before."
        )

    def reply_format(self) -> str:
        if self.wording == SYMBOLS:
            return "call, Say: or End:"
        example = fence('{"NAME": 0, "NAME": "word"}', "call TOOL")
        return (
            f"Reply with one call of a tool, a block such as\n{example}\nor end your reply with one line: Say: and a"
            " message, or End: which ends the episode."
        )

    def show(self, state: ServiceState) -> str:
        """The table and the user's things, in columns; what has changed is marked with *."""
        instance = self.instance(state)
        tables = zip(instance.rows, state.rows, strict=True)
        rows = [instance.columns, *(tuple(map(_marked, before, now)) for before, now in tables)]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        things = zip(instance.things, state.things, strict=True)
        return "\n".join([*lines, "", *(f"{name}: {_marked(was, now)}" for (name, was), (_, now) in things)])

    sheet = show

    def write(self, move: Call) -> str:
        """A `ServiceMove`, or a call, as a block, or a line such as `Say: order 41`."""
        move = move if isinstance(move, ServiceMove) else self.call_move(move)
        if move.kind != CALL:
            return f"{move.kind.capitalize()}: {move.text}".rstrip()
        if self.wording == SYMBOLS:
            return f"call {move.name} {move.text}".rstrip()
        return fence(move.text, f"call {move.name}")

    def call_move(self, call: Call) -> ServiceMove:
        name, *words = call
        if self.wording == SYMBOLS:
            return ServiceMove(CALL, " ".join(words), name)
        takes = self.rule(name).takes
        given = {each: int(word) if word.isdigit() else word for each, word in zip(takes, words, strict=True)}
        return ServiceMove(CALL, json.dumps(given), name)

    def oracle(self, state: ServiceState) -> Call:
        """The next call of the planner, of the provider's first; then the end."""
        return (*self.due(state, ASSISTANT), *self.due(state, USER), ServiceMove(END))[0]

    def outcome(self, state: ServiceState) -> Mapping[str, bool | int | float]:
        """`success`; whether each state is right; what agents without messages or without the goal reach at most."""
        rows, things = zip(*self.instance(state).golden, strict=True)
        right = {"right_table": state.rows in rows, "right_things": state.things in things}
        bounds = {"lone_bound": float(self.lone_bound()), "blind_bound": float(self.blind_bound())}
        return {"success": self.solved(state), **right, **bounds}


def _written_facts(instance: Instance) -> str:
    """The user's facts, as its first tool shows them."""
    return ", ".join(f"{kind} first {one}, {kind} second {two}" for kind, (one, two) in instance.known.items())


def _arguments(request: str, domain: Domain, takes: Mapping[str, str]) -> list[str] | None:
    """The words of a call's arguments; None unless they are JSON of the right names and types."""
    try:
        given = strict_json(request) if request.strip() or takes else {}
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict) or set(given) != set(takes):
        return None
    numbers = [name for name, kind in takes.items() if kind in domain.kinds and domain.kinds[kind].words[0].isdigit()]
    is_typed = all(type(each) is (int if name in numbers else str) for name, each in given.items())
    return [str(given[name]) for name in takes] if is_typed else None


def _marked(before: str, now: str) -> str:
    return now if now == before else f"*{now}*"
