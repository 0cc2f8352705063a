"""The domains of `service`, written as data: words, tables, tools, what a policy forbids and what it takes to comply.

A provider has one table, whose rows are named by their first column. Its user has things, by name: two facts of each
kind that it knows, and what its tools change. Every kind of fact has two, called first and second, of which the goal
names one; the facts of the provider stand in its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


LABELS = ("first", "second")
NONE, YES, NO, OPEN = "none", "yes", "no", "open"
MOST_VALUES = 8
NUM_KNOWN = 2
"""Kinds of facts that the user knows."""

DatabaseRow = Mapping[str, str]
Call = tuple[str, ...]
"""A call: the tool's name, and its arguments as words."""


class Kind(NamedTuple):
    """A kind of fact.

    Args:
        words: Its values, and after the first eight those of other people, where it names rows.
        topic: What the scripted users understand as a question about it; of a tool as a request to use it.
    """

    words: tuple[str, ...]
    topic: tuple[str, ...]


class Rule(NamedTuple):
    """A tool.

    Args:
        takes: Its arguments by name, with the kind of each.
        sets: What it changes, by name: a column of the row that its first argument names, or a thing of the user.
            `"{0}"` stands for the first argument. Nothing: it only reads.
    """

    takes: Mapping[str, str]
    does: str
    sets: Mapping[str, str]
    topic: tuple[str, ...]


class Domain(NamedTuple):
    """A domain.

    Args:
        policy: What the provider's agents are told of what is allowed; and the same in symbols.
        kinds: Kinds of facts: `NUM_KNOWN` of the user, of which the first names rows, then those of the provider.
        others: Kinds of words that are no facts; `drawn` has columns of such kinds, `flags` those with `yes` or `no`.
        tools: Of the provider; the first one shows a row. The first of the user shows its facts.
        outcomes: What a user may ask for: by its name the flag that the policy looks at, and the value that allows it.
        permits: Whether the policy allows a call of a tool that writes, given the row that it names.
        plan: The provider's calls for an outcome, given the row and the facts that the goal names, by kind.
    """

    policy: tuple[str, str]
    kinds: Mapping[str, Kind]
    others: Mapping[str, tuple[str, ...]]
    drawn: Mapping[str, str]
    flags: tuple[str, ...]
    starts: Mapping[str, str]
    tools: Mapping[str, Rule]
    user_tools: Mapping[str, Rule]
    expert: str
    outcomes: Mapping[str, tuple[str, str]]
    begins: Callable[[Mapping[str, tuple[str, ...]]], Mapping[str, str]]
    permits: Callable[[Call, DatabaseRow], bool]
    plan: Callable[[str, DatabaseRow, Mapping[str, str]], tuple[Call, ...]]
    user_plan: Callable[[Mapping[str, str]], tuple[Call, ...]]

    def allows(self, outcome: str, row: DatabaseRow) -> bool:
        flag, value = self.outcomes[outcome]
        return row[flag] == value


def _kind(words: str, topic: str) -> Kind:
    return Kind(tuple(words.split()), tuple(topic.split()))


def _rule(takes: str, does: str, topic: str = "", **sets: str) -> Rule:
    """A tool; its arguments are written as `name:kind`, or as the kind alone."""
    pairs = (each.split(":") for each in takes.split())
    return Rule({pair[0]: pair[-1] for pair in pairs}, does, sets, tuple(topic.split()))


def _shop_permits(call: Call, row: DatabaseRow) -> bool:
    name, _, *rest = call
    argument = {"exchange": [row["spare"]], "refund": [row["paid"]], "cancel": []}.get(name)
    is_next = row["address"] != NONE and row["done"] == OPEN
    return argument is None or (is_next and rest == argument and SHOP.allows(name, row))


def _shop_plan(outcome: str, row: DatabaseRow, facts: Mapping[str, str]) -> tuple[Call, ...]:
    order = facts["order"]
    rest = {"exchange": (row["spare"],), "refund": (row["paid"],), "cancel": ()}[outcome]
    return ("change_address", order, facts["address"]), (outcome, order, *rest)


SHOP = Domain(
    policy=(
        "Write to the order the address that the user means. Then carry out one outcome, and no second: exchange it"
        " for its spare if its stock is yes, refund it by the way in which it was paid if sale is no, or cancel it"
        " if sent is no. The user sends back one of the order's two items, the one that it means.",
        "address; exchange spare stock yes, refund paid sale no, cancel sent no; send_back item",
    ),
    kinds={
        "order": _kind("40 41 42 43 44 45 46 47 91 92", "order purchase receipt orders"),
        "address": _kind("Lima Oslo Cairo Quito Delhi Turin Perth Malmo", "address city live move"),
        "item": _kind("lamp cup vase chair kettle mirror carpet clock", "item thing article"),
    },
    others={"spare": ("red", "blue", "green", "grey"), "method": ("card", "cash", "cheque", "voucher")},
    drawn={"spare": "spare", "paid": "method"},
    flags=("stock", "sale", "sent"),
    starts={"address": NONE, "done": OPEN},
    tools={
        "find_order": _rule("order", "Shows an order."),
        "change_address": _rule("order address", "Writes an address to an order.", address="{1}"),
        "cancel": _rule("order", "Cancels an order.", done="cancel"),
        "exchange": _rule("order item:spare", "Exchanges an order.", done="exchange/{1}"),
        "refund": _rule("order method", "Refunds an order.", done="refund/{1}"),
    },
    user_tools={
        "read_letter": _rule("", "Shows your facts, two of each kind.", "read_letter letter look check"),
        "send_back": _rule("item", "Sends an item back.", "send_back send back parcel", **{"{0}": "sent"}),
    },
    expert="refund",
    outcomes={"exchange": ("stock", YES), "refund": ("sale", NO), "cancel": ("sent", NO)},
    begins=lambda words: dict.fromkeys(words["item"], "home"),
    permits=_shop_permits,
    plan=_shop_plan,
    user_plan=lambda facts: (("send_back", facts["item"]),),
)


def _library_permits(call: Call, row: DatabaseRow) -> bool:
    if call[0] == "waive_fine":
        return row["student"] == YES
    return (row["student"] == NO or row["fine"] == NONE) and row["done"] == OPEN and LIBRARY.allows(call[0], row)


def _library_plan(outcome: str, row: DatabaseRow, facts: Mapping[str, str]) -> tuple[Call, ...]:
    waived = (("waive_fine", facts["card"]),) if row["student"] == YES else ()
    return *waived, (outcome, facts["card"], facts["title"])


LIBRARY = Domain(
    policy=(
        "Waive the fine of a reader whose student is yes, and of nobody else. Then carry out one outcome for the title"
        " that the user means, and no second one: renew it if wanted is no, or reserve it if guest is no. The user"
        " returns one of the reader's two overdue books, the one that it means.",
        "waive_fine student yes; renew wanted no, reserve guest no; return_book overdue",
    ),
    kinds={
        "card": _kind("50 51 52 53 54 55 56 57 93 94", "card reader member account"),
        "title": _kind("Emma Dune Kim Nana Faust Candide Ulysses Walden", "title novel wish"),
        "overdue": _kind("atlas primer score comic guide almanac grammar cookbook", "overdue late due"),
    },
    others={},
    drawn={},
    flags=("student", "wanted", "guest"),
    starts={"fine": "owed", "done": OPEN},
    tools={
        "find_reader": _rule("card", "Shows a reader."),
        "renew": _rule("card loan:title", "Renews a loan.", done="renew/{1}"),
        "reserve": _rule("card book:title", "Reserves a book.", done="reserve/{1}"),
        "waive_fine": _rule("card", "Waives a fine.", fine=NONE),
    },
    user_tools={
        "read_card": _rule("", "Shows your facts, two of each kind.", "read_card look check wallet"),
        "return_book": _rule("book:overdue", "Returns a book.", "return_book return bring", **{"{0}": "returned"}),
    },
    expert="waive_fine",
    outcomes={"renew": ("wanted", NO), "reserve": ("guest", NO)},
    begins=lambda words: dict.fromkeys(words["overdue"], "home"),
    permits=_library_permits,
    plan=_library_plan,
    user_plan=lambda facts: (("return_book", facts["overdue"]),),
)


def _phone_permits(call: Call, row: DatabaseRow) -> bool:
    if call[0] == "unblock":
        return row["code"] == NONE
    return row["code"] != NONE and row["done"] == OPEN and PHONE.allows(call[2], row)


PHONE = Domain(
    policy=(
        "Unblock the contract with the code that the user means, once. After that change its plan, once: to flat if"
        " its flat is yes, or to data if its data is yes. The user sets one of the contract's two networks, restarts"
        " the telephone, and then enters one of the contract's two pins, those that it means.",
        "unblock code; flat flat yes, data data yes; set_network, restart, enter_pin",
    ),
    kinds={
        "number": _kind("60 61 62 63 64 65 66 67 95 96", "number contract phone line"),
        "code": _kind("70 71 72 73 74 75 76 77", "code puk blocked"),
        "pin": _kind("20 21 22 23 24 25 26 27", "pin sim secret"),
        "network": _kind("Astra Brio Corvo Delta Ember Fjord Gamma Helio", "network signal net"),
    },
    others={"plan": ("flat", "data")},
    drawn={},
    flags=("flat", "data"),
    starts={"code": NONE, "done": OPEN},
    tools={
        "find_contract": _rule("number", "Shows a contract."),
        "change_plan": _rule("contract:number plan", "Changes a contract's plan.", done="change_plan/{1}"),
        "unblock": _rule("contract:number code", "Unblocks a contract.", code="{1}"),
    },
    user_tools={
        "read_display": _rule("", "Shows your facts, two of each kind.", "read_display display look screen"),
        "set_network": _rule("name:network", "Sets the network.", "set_network set switch", network="{0}"),
        "restart": _rule("", "Restarts the telephone.", "restart reboot off", restarted=YES, pin=NONE),
        "enter_pin": _rule("code:pin", "Enters a pin.", "enter_pin enter type", pin="{0}"),
    },
    expert="unblock",
    outcomes={"flat": ("flat", YES), "data": ("data", YES)},
    begins=lambda words: {"pin": NONE, "network": NONE, "restarted": NO},
    permits=_phone_permits,
    plan=lambda outcome, row, facts: (
        ("unblock", facts["number"], facts["code"]),
        ("change_plan", facts["number"], outcome),
    ),
    user_plan=lambda facts: (("set_network", facts["network"]), ("restart",), ("enter_pin", facts["pin"])),
)

DOMAINS: Mapping[str, Domain] = {"shop": SHOP, "library": LIBRARY, "phone": PHONE}
