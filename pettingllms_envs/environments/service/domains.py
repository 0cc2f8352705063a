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
NUM_OTHERS = 2
"""Rows of other people in a provider's table."""

Row = Mapping[str, str]
Call = tuple[str, ...]
"""A call: the tool's name, and its arguments as words."""


class Kind(NamedTuple):
    """A kind of fact.

    Args:
        words: Its values, and after the first eight those of other people, where it names rows.
        topic: What the scripted users understand as a question about it.
    """

    words: tuple[str, ...]
    topic: tuple[str, ...]

    @property
    def is_number(self) -> bool:
        return self.words[0].isdigit()


class Rule(NamedTuple):
    """A tool.

    Args:
        takes: Its arguments by name, with the kind of each.
        does: What it does, for a prompt.
        sets: What it changes, by name: a column of the row that its first argument names, or a thing of the user.
            `"{0}"` stands for the first argument. Nothing: it only reads.
        topic: Of a user's tool, what the scripted users understand as a request to use it.
    """

    takes: Mapping[str, str]
    does: str
    sets: Mapping[str, str] = {}
    topic: tuple[str, ...] = ()


class Domain(NamedTuple):
    """A domain.

    Args:
        policy: What the provider's agents are told of what is allowed.
        kinds: Kinds of facts: those of the user, of which the first names rows, then those of the provider.
        num_known: How many of them are the user's.
        others: Kinds of words that are no facts.
        flags: Columns with `yes` or `no`.
        drawn: Columns with a word of another kind.
        tools: Of the provider; the first one shows a row.
        user_tools: The first one shows the user's facts.
        expert: The tool that the specialist alone has.
        outcomes: What a user may ask for.
        begins: The user's things that its tools change, as they are at first.
        permits: Whether the policy allows a call, given the row that it names.
        allows: Whether the policy allows an outcome, given the row.
        plan: The provider's calls for an outcome, given the row and the facts that the goal names, by kind.
        user_plan: Those of its user, given the facts.
    """

    policy: str
    kinds: Mapping[str, Kind]
    num_known: int
    others: Mapping[str, tuple[str, ...]]
    flags: tuple[str, ...]
    drawn: Mapping[str, str]
    starts: Mapping[str, str]
    tools: Mapping[str, Rule]
    user_tools: Mapping[str, Rule]
    expert: str
    outcomes: tuple[str, ...]
    begins: Callable[[Mapping[str, tuple[str, ...]]], Mapping[str, str]]
    permits: Callable[[Call, Row], bool]
    allows: Callable[[str, Row], bool]
    plan: Callable[[str, Row, Mapping[str, str]], tuple[Call, ...]]
    user_plan: Callable[[Mapping[str, str]], tuple[Call, ...]]


def _numbers(tens: int) -> tuple[str, ...]:
    return tuple(str(10 * tens + each) for each in range(MOST_VALUES))


def _shop_permits(call: Call, row: Row) -> bool:
    name, _, *rest = call
    if name == "change_address":
        return True
    argument = {"exchange": row["spare"], "refund": row["paid"], "cancel": ""}[name]
    return row["done"] == OPEN and "".join(rest) == argument and _shop_allows(name, row)


def _shop_allows(outcome: str, row: Row) -> bool:
    column, needed = {"exchange": ("stock", YES), "refund": ("sale", NO), "cancel": ("sent", NO)}[outcome]
    return row[column] == needed


def _shop_plan(outcome: str, row: Row, facts: Mapping[str, str]) -> tuple[Call, ...]:
    order = facts["order"]
    rest = {"exchange": (row["spare"],), "refund": (row["paid"],), "cancel": ()}[outcome]
    return ("change_address", order, facts["address"]), (outcome, order, *rest)


SHOP = Domain(
    policy=(
        "Write to the order the address that the user means. Then carry out one outcome, and no second: exchange it for"
        " its spare if its stock is yes, refund it by the way in which it was paid if sale is no, or cancel it if"
        " sent is no. The user sends back one of the order's two items, the one that it means."
    ),
    kinds={
        "order": Kind((*_numbers(4), "91", "92"), ("order", "purchase", "receipt", "orders")),
        "address": Kind(
            ("Lima", "Oslo", "Cairo", "Quito", "Delhi", "Turin", "Perth", "Malmo"), ("address", "city", "live", "move")
        ),
        "item": Kind(
            ("lamp", "cup", "vase", "chair", "kettle", "mirror", "carpet", "clock"), ("item", "thing", "article")
        ),
    },
    num_known=2,
    others={"spare": ("red", "blue", "green", "grey"), "method": ("card", "cash", "cheque", "voucher")},
    flags=("stock", "sale", "sent"),
    drawn={"spare": "spare", "paid": "method"},
    starts={"address": NONE, "done": OPEN},
    tools={
        "find_order": Rule({"order": "order"}, "Shows an order."),
        "change_address": Rule(
            {"order": "order", "address": "address"}, "Writes an address to an order.", {"address": "{1}"}
        ),
        "cancel": Rule({"order": "order"}, "Cancels an order.", {"done": "cancel"}),
        "exchange": Rule({"order": "order", "item": "spare"}, "Exchanges an order.", {"done": "exchange/{1}"}),
        "refund": Rule({"order": "order", "method": "method"}, "Refunds an order.", {"done": "refund/{1}"}),
    },
    user_tools={
        "read_letter": Rule(
            {}, "Shows your facts, two of each kind.", topic=("read_letter", "letter", "look", "check")
        ),
        "send_back": Rule(
            {"item": "item"}, "Sends an item back.", {"{0}": "sent"}, ("send_back", "send", "back", "parcel")
        ),
    },
    expert="refund",
    outcomes=("exchange", "refund", "cancel"),
    begins=lambda words: dict.fromkeys(words["item"], "home"),
    permits=_shop_permits,
    allows=_shop_allows,
    plan=_shop_plan,
    user_plan=lambda facts: (("send_back", facts["item"]),),
)


def _library_permits(call: Call, row: Row) -> bool:
    if call[0] == "waive_fine":
        return row["student"] == YES
    return row["done"] == OPEN and _library_allows(call[0], row)


def _library_allows(outcome: str, row: Row) -> bool:
    return row[{"renew": "wanted", "reserve": "guest"}[outcome]] == NO


def _library_plan(outcome: str, row: Row, facts: Mapping[str, str]) -> tuple[Call, ...]:
    waived = (("waive_fine", facts["card"]),) if row["student"] == YES else ()
    return *waived, (outcome, facts["card"], facts["title"])


LIBRARY = Domain(
    policy=(
        "Waive the fine of a reader whose student is yes, and of nobody else. Then carry out one outcome for the title"
        " that the user means, and no second one: renew it if wanted is no, or reserve it if guest is no. The user"
        " returns one of the reader's two overdue books, the one that it means."
    ),
    kinds={
        "card": Kind((*_numbers(5), "93", "94"), ("card", "reader", "member", "account")),
        "title": Kind(
            ("Emma", "Dune", "Kim", "Nana", "Faust", "Candide", "Ulysses", "Walden"), ("title", "novel", "wish")
        ),
        "overdue": Kind(
            ("atlas", "primer", "score", "comic", "guide", "almanac", "grammar", "cookbook"),
            ("overdue", "late", "due"),
        ),
    },
    num_known=2,
    others={},
    flags=("student", "wanted", "guest"),
    drawn={},
    starts={"fine": "owed", "done": OPEN},
    tools={
        "find_reader": Rule({"card": "card"}, "Shows a reader."),
        "renew": Rule({"card": "card", "loan": "title"}, "Renews a loan.", {"done": "renew/{1}"}),
        "reserve": Rule({"card": "card", "book": "title"}, "Reserves a book.", {"done": "reserve/{1}"}),
        "waive_fine": Rule({"card": "card"}, "Waives a fine.", {"fine": NONE}),
    },
    user_tools={
        "read_card": Rule({}, "Shows your facts, two of each kind.", topic=("read_card", "look", "check", "wallet")),
        "return_book": Rule(
            {"book": "overdue"}, "Returns a book.", {"{0}": "returned"}, ("return_book", "return", "bring")
        ),
    },
    expert="waive_fine",
    outcomes=("renew", "reserve"),
    begins=lambda words: dict.fromkeys(words["overdue"], "home"),
    permits=_library_permits,
    allows=_library_allows,
    plan=_library_plan,
    user_plan=lambda facts: (("return_book", facts["overdue"]),),
)


def _phone_permits(call: Call, row: Row) -> bool:
    if call[0] == "unblock":
        return row["code"] == NONE
    return row["code"] != NONE and row["done"] == OPEN and _phone_allows(call[2], row)


def _phone_allows(outcome: str, row: Row) -> bool:
    return row[outcome] == YES


def _phone_plan(outcome: str, row: Row, facts: Mapping[str, str]) -> tuple[Call, ...]:
    return ("unblock", facts["number"], facts["code"]), ("change_plan", facts["number"], outcome)


PHONE = Domain(
    policy=(
        "Unblock the contract with the code that the user means, once. After that change its plan, once: to flat if"
        " its flat is yes, or to data if its data is yes. The user sets one of the contract's two networks, restarts"
        " the telephone, and then enters one of the contract's two pins, those that it means."
    ),
    kinds={
        "number": Kind((*_numbers(6), "95", "96"), ("number", "contract", "phone", "line")),
        "code": Kind(_numbers(7), ("code", "puk", "blocked")),
        "pin": Kind(_numbers(2), ("pin", "sim", "secret")),
        "network": Kind(
            ("Astra", "Brio", "Corvo", "Delta", "Ember", "Fjord", "Gamma", "Helio"), ("network", "signal", "net")
        ),
    },
    num_known=2,
    others={"plan": ("flat", "data")},
    flags=("flat", "data"),
    drawn={},
    starts={"code": NONE, "done": OPEN},
    tools={
        "find_contract": Rule({"number": "number"}, "Shows a contract."),
        "change_plan": Rule(
            {"contract": "number", "plan": "plan"}, "Changes a contract's plan.", {"done": "change_plan/{1}"}
        ),
        "unblock": Rule({"contract": "number", "code": "code"}, "Unblocks a contract.", {"code": "{1}"}),
    },
    user_tools={
        "read_display": Rule(
            {}, "Shows your facts, two of each kind.", topic=("read_display", "display", "look", "screen")
        ),
        "set_network": Rule(
            {"name": "network"}, "Sets the network.", {"network": "{0}"}, ("set_network", "set", "switch")
        ),
        "restart": Rule({}, "Restarts the telephone.", {"restarted": YES, "pin": NONE}, ("restart", "reboot", "off")),
        "enter_pin": Rule({"code": "pin"}, "Enters a pin.", {"pin": "{0}"}, ("enter_pin", "enter", "type")),
    },
    expert="unblock",
    outcomes=("flat", "data"),
    begins=lambda words: {"pin": NONE, "network": NONE, "restarted": NO},
    permits=_phone_permits,
    allows=_phone_allows,
    plan=_phone_plan,
    user_plan=lambda facts: (("set_network", facts["network"]), ("restart",), ("enter_pin", facts["pin"])),
)

DOMAINS: Mapping[str, Domain] = {"shop": SHOP, "library": LIBRARY, "phone": PHONE}
