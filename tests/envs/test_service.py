"""Service: golden states by search, bounds by enumeration and by play, what messages are worth, attacks."""

from __future__ import annotations

import itertools
import math
import os
import random
import resource
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.core import Unreadable
from pettingllms_envs.environments.service.domains import DOMAINS, LABELS, Call
from pettingllms_envs.environments.service.hostile import ATTACKS
from pettingllms_envs.environments.service.instances import Instance, Rows, Things, applied, changed
from pettingllms_envs.environments.service.moves import ASSISTANT, SIDES, USER, ServiceMove
from pettingllms_envs.environments.service.rules import (
    BAD_ARGUMENTS,
    FOREIGN,
    NO_TOOL,
    ONE_CALL,
    Service,
    ServiceState,
)
from pettingllms_envs.environments.service.talks import WORKFLOWS
from pettingllms_envs.environments.service.users import (
    CALLED,
    HEARD,
    MANNERS,
    SAID,
    WHAT,
    Entry,
    from_prompt,
    honest_assistant,
    scripted,
    topics,
)
from pettingllms_envs.replies.fences import fence
from pettingllms_envs.testing import check, pairs, play


BY_NAME = {each.name: each for each in WORKFLOWS}
EVERY = tuple(DOMAINS)
WRITTEN = [(domain, wording) for domain in EVERY for wording in ("english", "symbols")]


def played(workflow: Any, seed: int, policy: Callable[[Any, Any], str]) -> Any:
    """The last state of an episode."""
    state, over = workflow.start(workflow.task.generate(seed)), False
    while not over:
        state, _, ended, truncated = workflow.step(state, policy(workflow, state))
        over = ended or truncated
    return state


def oracle(workflow: Any, state: Any) -> str:
    return str(workflow.oracle(state))


def succeeds(workflow: Any, seed: int, policy: Callable[[Any, Any], str] = oracle) -> bool:
    return bool(workflow.task.solved(played(workflow, seed, policy).task))


# ------------------------------------------------------------------------------------------- golden states and bounds


def right_row(instance: Instance, row: dict[str, str], before: dict[str, str]) -> bool:
    """Whether the row that the goal means is as goal and policy say, written down a second time."""
    facts, accepts = instance.facts, instance.accepts
    if "order" in facts:
        ends = {"exchange": ("stock", "yes", f"/{before['spare']}"), "refund": ("sale", "no", f"/{before['paid']}")}
        ends["cancel"] = ("sent", "no", "")
        done = {f"{each}{ends[each][2]}" for each in accepts if before[ends[each][0]] == ends[each][1]}
        return row == {**before, "address": facts["address"], "done": row["done"]} and row["done"] in done
    if "card" in facts:
        closed = {"renew": "wanted", "reserve": "guest"}
        done = {f"{each}/{facts['title']}" for each in accepts if before[closed[each]] == "no"}
        fine = "none" if before["student"] == "yes" else "owed"
        return row == {**before, "fine": fine, "done": row["done"]} and row["done"] in done
    done = {f"change_plan/{each}" for each in accepts if before[each] == "yes"}
    return row == {**before, "code": facts["code"], "done": row["done"]} and row["done"] in done


def right_things(instance: Instance, things: Things) -> bool:
    facts, now = instance.facts, dict(things)
    if "pin" in facts:
        return now == {"pin": facts["pin"], "network": facts["network"], "restarted": "yes"}
    kind, end = ("item", "sent") if "item" in facts else ("overdue", "returned")
    return now == {word: end if word == facts[kind] else "home" for word in instance.words[kind]}


def calls_of(task: Service, tools: Iterable[str]) -> list[Call]:
    """Every call that changes something."""
    writes = [name for name in tools if task.rule(name).sets]
    return [
        (name, *words)
        for name in writes
        for words in itertools.product(*map(task.legal_words, task.rule(name).takes.values()))
    ]


def tables_within(task: Service, instance: Instance, length: int) -> Iterator[tuple[Rows, bool]]:
    """The table after every sequence of calls, and whether the policy forbids one of them."""
    for calls in itertools.product(calls_of(task, task.words.tools), repeat=length):
        rows, forbidden = instance.rows, False
        for call in calls:
            row = instance.row(rows, call[1])
            forbidden = forbidden or not task.words.permits(call, row)
            rows = applied(instance, rows, call)
        yield rows, forbidden


@pytest.mark.parametrize("domain", EVERY)
def test_a_search_over_all_calls_finds_the_golden_states_and_no_others(domain: str) -> None:
    task = Service(domain=domain, values=2)
    for seed in range(6):
        instance = task.instance(task.generate(seed))
        lengths = {len(task.words.plan(each, before_of(instance), instance.facts)) for each in instance.accepts}
        found = set()
        for rows, forbidden in itertools.chain.from_iterable(tables_within(task, instance, n) for n in lengths):
            others = [now == was for now, was in zip(rows, instance.rows, strict=True) if was[0] != instance.key]
            row = instance.row(rows, instance.key)
            if not forbidden and all(others) and right_row(instance, row, before_of(instance)):
                found.add(rows)
        ends = set()
        plan = task.words.user_plan(instance.facts)
        for calls in itertools.product(calls_of(task, task.words.user_tools), repeat=len(plan)):
            things = instance.things
            for call in calls:
                things = changed(instance, things, call)
            if right_things(instance, things):
                ends.add(things)
        assert set(itertools.product(found, ends)) == set(instance.golden)
        assert (instance.rows, instance.things) not in instance.golden


def before_of(instance: Instance) -> dict[str, str]:
    return instance.row(instance.rows, instance.key)


@pytest.mark.parametrize("domain", EVERY)
@pytest.mark.parametrize("values", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_no_end_is_right_for_two_combinations_of_facts_or_of_labels(domain: str, values: int) -> None:
    task = Service(domain=domain, values=values)
    for seed in range(5):
        state = task.generate(seed)
        alike = [each.instance(state) for each in task.look_alikes(state, {})]
        assert len(alike) == values**2
        assert {(each.rows, each.things, each.accepts) for each in alike} == {
            (alike[0].rows, alike[0].things, alike[0].accepts)
        }
        ends = Counter(rows for each in alike for rows in {rows for rows, _ in each.golden})
        assert Fraction(max(ends.values()), len(alike)) == task.lone_bound()
        meant = Counter(end for each in by_label(task, alike[0]) for end in each)
        assert Fraction(max(meant.values()), 2 ** len(task.words.kinds)) == task.blind_bound()


def by_label(task: Service, instance: Instance) -> Iterator[set[tuple[Rows, Things]]]:
    """The golden states for every choice of labels."""
    domain = task.words
    for labels in itertools.product(LABELS, repeat=len(domain.kinds)):
        meant = dict(zip(domain.kinds, labels, strict=True))
        facts = {kind: pair[LABELS.index(meant[kind])] for kind, pair in instance.known.items()}
        row = instance.row(instance.rows, next(iter(facts.values())))
        facts |= {kind: row[f"{kind} {meant[kind]}"] for kind in instance.provider_kinds}
        things = instance.things
        for call in domain.user_plan(facts):
            things = changed(instance, things, call)
        ends = set()
        for outcome in instance.accepts:
            rows = instance.rows
            for call in domain.plan(outcome, row, facts) if domain.allows(outcome, row) else ():
                rows = applied(instance, rows, call)
            ends |= {(rows, things)} - {(instance.rows, things)}
        yield ends


@pytest.mark.parametrize("domain", EVERY)
def test_words_of_different_kinds_and_topics_are_different(domain: str) -> None:
    for wording in ("english", "symbols"):
        task = Service(domain=domain, values=8, wording=wording)
        words = [word.lower() for kind in task.words.kinds for word in task.legal_words(kind)]
        about = [word for words in topics(task.words).values() for word in words]
        assert len({*words, *about}) == len(words) + len(about)
        assert all(3 <= len(each) <= 6 for each in topics(task.words).values())
        assert not {*words} & {*task.instance(task.generate(0)).columns[0:1], "first", "second", "none", "open"}


@pytest.mark.parametrize(("domain", "wording"), WRITTEN)
def test_players_who_know_their_prompts_alone_always_succeed(domain: str, wording: str) -> None:
    task = Service(domain=domain, wording=wording)
    for name in ("team", "specialist"):
        for seed in range(8):
            assert succeeds(BY_NAME[name](task), seed, partial(by_prompt, None, random.Random(0)))


def by_prompt(label: str | None, rng: random.Random, workflow: Any, state: Any) -> str:
    task, expert = workflow.task, workflow.task.words.expert if workflow.name == "specialist" else ""
    return from_prompt(task, label, workflow.observe(state, workflow.actor(state)), rng, expert)


@pytest.mark.parametrize("trials", [8, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("domain", EVERY)
@pytest.mark.parametrize("manner", ["", *MANNERS])
def test_the_oracle_always_succeeds_with_its_user_and_with_each_manner(domain: str, manner: str, trials: int) -> None:
    task = Service(domain=domain)
    workflow = BY_NAME["scripted"](task, manner=manner) if manner else BY_NAME["team"](task)
    ends = [played(workflow, seed, oracle) for seed in range(trials)]
    assert sum(task.solved(end.task) for end in ends) == trials
    assert {dict(end.reported).get("not_understood", 0.0) for end in ends} == {0.0}
    told = 1 - 1 / len(task.words.kinds) if manner == "confused" else 1.0  # it has named the other two facts first
    assert {round(dict(end.reported)["told"], 9) for end in ends} == {round(told, 9)}


def guesser(workflow: Any, state: Any) -> str:
    """Plays as if a user had told it facts that it draws, and knows all else: the best that it can do."""
    task: Service = workflow.task
    view, rng = dict(state.ask.keeps[0])[ASSISTANT], random.Random(f"a guess {state.task.seed}")
    told = {kind: rng.choice(task.legal_words(kind)) for kind in task.words.kinds}
    labels = task.instance(state.task).labels
    words = ", ".join(f"{kind} {told[kind] if at < 2 else labels[kind]}" for at, kind in enumerate(told))
    return task.write(honest_assistant(task, task.instance(state.task).accepts, [(HEARD, USER, words), *view]))


@pytest.mark.parametrize("trials", [150, pytest.param(5_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("domain", EVERY)
def test_the_best_assistant_without_messages_is_right_as_often_as_the_bound_says(domain: str, trials: int) -> None:
    task = Service(domain=domain, values=3)
    right = sum(succeeds(BY_NAME["alone"](task), seed, guesser) for seed in range(trials))
    near(right, trials, float(task.lone_bound()), 1 / 9)


@pytest.mark.parametrize("trials", [80, pytest.param(5_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("domain", "label"), [("shop", "first"), ("phone", ""), ("library", "first")])
def test_who_does_not_read_the_goal_is_right_as_often_as_the_bound_says(domain: str, label: str, trials: int) -> None:
    task, rng = Service(domain=domain), random.Random(1)
    right = sum(succeeds(BY_NAME["team"](task), seed, partial(by_prompt, label, rng)) for seed in range(trials))
    near(right, trials, float(task.blind_bound()), 1 / (16 if domain == "phone" else 8))


def near(right: int, trials: int, bound: float, expected: float) -> None:
    print(f"{right} of {trials}, bound {bound:.4f}")
    assert bound == pytest.approx(expected)
    assert abs(right / trials - bound) < 3.5 * math.sqrt(bound * (1 - bound) / trials)


# ---------------------------------------------------------------------------------------------------- what is paid


def known(task: Service, *sides: str) -> ServiceState:
    """A state in which these sides know all needed facts."""
    state = task.generate(0)
    for side in sides:
        state = task.learnt(state, side, range(len(task.words.kinds)))
    return state


SHOP = Service(values=4)
FACTS = SHOP.instance(SHOP.generate(0)).facts
OTHER = next(word for word in SHOP.legal_words("order") if word != FACTS["order"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FACTS["order"], 1 / 3),
        (f"it is order {FACTS['order']}, or {OTHER}", 1 / 6),
        (f"{FACTS['order']} {FACTS['address'].upper()}", 2 / 3),
        (f"{' '.join(SHOP.legal_words('order'))} {FACTS['address']}", 1 / 12 + 1 / 3),
        (f"order{FACTS['order']}", 0.0),
        (f"{FACTS['item']} {OTHER}", 0.0),  # the item is the assistant's to tell
        ("", 0.0),
    ],
)
def test_a_message_is_worth_the_needed_facts_that_its_receiver_learns(text: str, expected: float) -> None:
    after, worth = SHOP.tell(known(SHOP, USER), USER, ASSISTANT, text)
    assert worth == pytest.approx(expected)
    assert SHOP.tell(after, USER, ASSISTANT, text)[1] == 0.0
    assert SHOP.tell(known(SHOP), USER, ASSISTANT, text)[1] == 0.0  # guesses are worth nothing


def test_values_named_one_after_another_are_worth_as_little_as_at_once() -> None:
    state, worth = SHOP.tell(known(SHOP, USER, ASSISTANT), USER, "specialist", f"{OTHER} {OTHER}")
    assert worth == 0.0
    state, worth = SHOP.tell(state, ASSISTANT, "specialist", FACTS["order"])
    assert worth == pytest.approx(1 / 3)  # it was somebody else who named another
    state = known(SHOP, USER)
    for text, expected in ((OTHER, 0.0), (FACTS["address"], 1 / 3), (FACTS["order"], 1 / 6)):
        state, worth = SHOP.tell(state, USER, ASSISTANT, text)
        assert worth == pytest.approx(expected)


def test_another_row_shows_no_needed_fact() -> None:
    instance = SHOP.instance(state := SHOP.generate(0))
    alike = next(row[0] for row in instance.rows[:4] if FACTS["item"] in row and row[0] != FACTS["order"])
    assert SHOP.use(state, ASSISTANT, tuple(SHOP.words.tools), SHOP.call_move(("find_order", alike)))[1].found == 0


@pytest.mark.parametrize("domain", EVERY)
def test_the_policy_forbids_an_outcome_before_what_comes_first(domain: str) -> None:
    task, seen = Service(domain=domain), 0
    for seed in range(10):
        instance = task.instance(task.generate(seed))
        row = before_of(instance)
        *first, last = task.words.plan(
            next(each for each in instance.accepts if task.words.allows(each, row)), row, instance.facts
        )
        seen += len(first)
        assert task.words.permits(last, row) == (not first)
    assert seen


def test_a_result_is_worth_the_facts_of_its_own_side_once() -> None:
    task = SHOP
    key, address = FACTS["order"], FACTS["address"]
    tools = tuple(task.words.tools)
    state = task.generate(0)
    state, used = task.use(state, ASSISTANT, tools, task.call_move(("change_address", key, address)))
    state, used = task.use(state, ASSISTANT, tools, task.call_move(("find_order", key)))
    assert used.found == 1  # the item, and not the address that it has guessed
    assert task.use(state, ASSISTANT, tools, task.call_move(("find_order", key)))[1].found == 0
    assert task.use(state, USER, tuple(task.words.user_tools), task.call_move(("read_letter",)))[1].found == 2


def test_what_the_policy_forbids_is_carried_out_and_costs_once() -> None:
    env = pettingllms_envs.make("service", workflow="alone")
    env.reset(seed=0)
    state, task = env.snapshot().play.task, env.workflow.task
    assert isinstance(task, Service)
    row = before_of(task.instance(state))
    forbidden = next(call for call in calls_of(task, ["refund"]) if call[1] == row["order"] and call[2] != row["paid"])
    env.step(task.write(forbidden))
    assert env.infos["assistant_0"]["rewards"]["forbidden"] == -0.3
    assert f"refund/{forbidden[2]}" in task.show(env.snapshot().play.task)
    env.step("End:")
    assert env.infos["assistant_0"]["outcome"]["forbidden"] == 1
    assert not env.infos["assistant_0"]["outcome"]["success"]


# ------------------------------------------------------------------------------------------------------ bad input


CALL = fence('{"order": 41}', "call cancel")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (CALL, ServiceMove("call", '{"order": 41}', "cancel")),
        (f"{CALL}\nSay: done", ServiceMove("call", '{"order": 41}', "cancel")),
        (f"{CALL}\n{CALL}", ServiceMove("call")),
        (f"{CALL}\n{CALL}\nSay: done", ServiceMove("call")),
        (fence("{}", "call no_such"), ServiceMove("call", "{}", "no_such")),
        ("Say: it's \"so\" 'and' so", ServiceMove("say", "it's \"so\" 'and' so")),
        ("I think.\nsay: hello", ServiceMove("say", "hello")),
        ("End: now", ServiceMove("end", "now")),
        ("a\u017fk: hello", "its last line is not"),  # a long s
        ("Say:", "it has no words"),
        ("", "it is empty"),
        ("```call cancel\n{}", "its call has no end"),
        ("call cancel 41", "its last line is not"),
    ],
)
def test_a_reply_is_read_in_the_order_that_the_docs_state(reply: str, expected: Any) -> None:
    found = Service().parse(reply)
    assert expected in found.reason if isinstance(found, Unreadable) else found == expected


@pytest.mark.parametrize(
    ("name", "request_", "expected"),
    [
        ("", "", ONE_CALL),
        ("no_such", "{}", NO_TOOL),
        ("read_letter", "{}", NO_TOOL),  # the user's
        ("cancel", '{"order": "41"}', BAD_ARGUMENTS),
        ("cancel", '{"order": true}', BAD_ARGUMENTS),
        ("cancel", '{"order": 41, "why": ""}', BAD_ARGUMENTS),
        ("cancel", "{}", BAD_ARGUMENTS),
        ("cancel", '{"order": 41, "order": 41}', BAD_ARGUMENTS),
        ("cancel", "[" * 10**5, BAD_ARGUMENTS),
        ("cancel", '{"order": 1e999}', BAD_ARGUMENTS),
        ("cancel", '{"order": 39}', "There is no such order."),
        ("cancel", '{"order": 91}', FOREIGN),
        ("change_address", '{"order": 41, "address": "<|im_end|>"}', "There is no such address."),
        ("cancel", '{"order": 41}', ("cancel", "41")),
    ],
)
def test_a_call_that_makes_no_sense_has_a_fixed_sentence_and_changes_nothing(
    name: str, request_: str, expected: Any
) -> None:
    task = Service()
    state, tools = task.generate(0), tuple(task.words.tools)
    assert task.read_call(ServiceMove("call", request_, name), tools) == expected
    if isinstance(expected, str):
        after, used = task.use(state, ASSISTANT, tools, ServiceMove("call", request_, name))
        assert (after, used.text, used.is_bad) == (state, expected, True)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("call cancel 41", ("cancel", "41")),
        ("CALL refund 41 u", ("refund", "41", "u")),
        ("call refund 41", BAD_ARGUMENTS),
        ("call refund 41 u u", BAD_ARGUMENTS),
        ("call refund u 41", "There is no such order."),
        ("call fly", NO_TOOL),
    ],
)
def test_symbols_are_read_from_the_last_line(line: str, expected: Any) -> None:
    task = Service(wording="symbols")
    move = task.parse(f"so\n{line}\n")
    assert isinstance(move, ServiceMove)
    assert task.read_call(move, tuple(task.words.tools)) == expected


def test_the_turn_passes_after_four_calls_a_message_or_an_unreadable_reply() -> None:
    env = pettingllms_envs.make("service")
    env.reset(seed=0)
    for reply, acting in (
        *[(fence("{}", "call read_letter"), "user_0")] * 3,
        (fence("{}", "call read_letter"), "assistant_0"),
        ("Say: hello", "user_0"),
        ("nonsense", "assistant_0"),
        ("Ask: is there anybody?", "user_0"),
    ):
        env.step(reply)
        assert env.agent_selection == acting
    assert "The user wrote nothing." in env.observe("assistant_0")["text"]
    for _ in range(20):
        env.step("Say: hello")
    assert env.truncations == {"user_0": True, "assistant_0": True}


def ends(side: str, workflow: Any, state: Any) -> str:
    return "End:" if state.ask.role == side else "Say: hello"


def test_either_side_ends_at_once_and_reaching_the_goal_ends_nothing() -> None:
    workflow = BY_NAME["team"](Service())
    for ending in (USER, ASSISTANT):
        end = played(workflow, 1, partial(ends, ending))
        assert end.turn == 1
        assert not workflow.task.solved(end.task)
    state = workflow.start(workflow.task.generate(1))
    while workflow.oracle(state) != "End:":
        state, parts, over, _ = workflow.step(state, workflow.oracle(state))
        assert not over
        assert "team" not in parts
        assert workflow.task.value(state.task) == 0
    assert workflow.step(state, "End:")[1] == {"team": {"progress": 1.0, "success": 1.0}}


def test_the_specialist_alone_has_its_tool_and_sees_what_it_is_asked() -> None:
    env = pettingllms_envs.make("service", workflow="specialist")
    env.reset(seed=0)
    env.step("Say: hello")
    env.step(fence('{"order": 40, "method": "card"}', "call refund"))
    assert NO_TOOL in env.observe("assistant_0")["text"]
    env.step("Ask: refund 40 card")
    assert env.agent_selection == "specialist_0"
    assert env.observe("specialist_0")["text"] == "Turn 1 of 12.\nThe assistant wrote:\n> refund 40 card"
    env.step(fence('{"order": 40, "method": "card"}', "call refund"))
    assert [env.infos[each]["rewards"] for each in env.agents] == [{}, {"forbidden": -0.3}, {}]  # no address yet
    env.step("Say: done")
    assert env.agent_selection == "assistant_0"
    assert env.observe("assistant_0")["text"].endswith("The specialist wrote:\n> done")


# ------------------------------------------------------------------------------------------------- scripted users


TASK = Service()
LETTER: Entry = (CALLED, "read_letter", "order first 40, order second 41, address first Lima, address second Oslo")
MEANT = {"order": "second", "address": "first", "item": "second"}


@pytest.mark.parametrize(
    ("manner", "messages", "expected"),
    [
        ("forthcoming", ["Which order, please?"], ["order 41, *"]),
        ("terse", ["your purchase and address?"], ["order 41"]),
        ("terse", ["your address and purchase?"], ["address Lima"]),
        ("confused", ["order?", "the order again?", "city?"], ["order 40", "order 41", "address Oslo"]),
        ("confused", ["order?", "so it is 40?"], ["order 40", "order 41"]),
        ("terse", ["which article?"], ["item second"]),
        ("terse", ["Please send back the lamp.", "and now?"], ["call send_back", WHAT]),
        ("terse", ["Please send it back."], [WHAT]),  # what?
        ("terse", ["well", "so", "hm"], [WHAT, WHAT, WHAT]),
        ("terse", ["well", "order?", "hm"], [WHAT, "order 41", WHAT]),
        ("terse", ["We are done."], ["end"]),
    ],
)
def test_a_scripted_user_answers_by_topic(manner: str, messages: list[str], expected: list[str]) -> None:
    view: list[Entry] = []
    assert scripted(manner, TASK, MEANT, view, 0) == ("read_letter",)
    view.append(LETTER)
    assert scripted(manner, TASK, MEANT, view, 0) == ServiceMove("say", "Hello.")
    view.append((SAID, "", "Hello."))
    for message, end in zip(messages, expected, strict=True):
        view.append((HEARD, ASSISTANT, message))
        move = scripted(manner, TASK, MEANT, view, 0)
        if not isinstance(move, ServiceMove):
            assert (move, end) == (("send_back", "lamp"), "call send_back")
            view.append((CALLED, "send_back lamp", "Done."))
            move = scripted(manner, TASK, MEANT, view, 0)
            assert move == ServiceMove("say", "I have done it.")
        elif end.endswith("*"):
            assert move.text in (f"{end[:-1]}address Lima", f"{end[:-1]}item second")
        else:
            assert (move.text or move.kind) == end
        assert isinstance(move, ServiceMove)
        view.append((SAID, "", move.text))


def test_what_the_script_did_not_understand_is_counted() -> None:
    env = pettingllms_envs.make("service", workflow="scripted", manner="terse")
    env.reset(seed=0)
    for reply in ("Say: which order?", "Say: well", "Say: well", "Say: well"):
        env.step(reply)
    assert env.terminations["assistant_0"]
    assert env.infos["assistant_0"]["outcome"]["not_understood"] == 3 / 4


# -------------------------------------------------------------------------------------------------------- attacks


def attacked(attack: Callable[[Any, Any], str], env: Any, agent: str, said: Any) -> str:
    return attack(env.workflow, env.snapshot().play)


def gains(agents: dict[str, Any], domain: str, seed: int, ways: Iterable[pairs.Cheat]) -> list[str]:
    """The cheats that add to an agent's return, or to the sum of returns."""
    env = pettingllms_envs.make("service", domain=domain, **agents)
    found = pairs.margins(env, play.Start(seed, {}), ways, 400)
    return [each.cheat.name for each in found if max(each.most, each.total) > 1e-9]


@pytest.mark.parametrize("domain", [EVERY[0], *(pytest.param(each, marks=pytest.mark.slow) for each in EVERY[1:])])
@pytest.mark.parametrize("share", [40, pytest.param(1, marks=pytest.mark.slow)])
def test_no_hostile_policy_and_no_pair_of_them_gains(domain: str, share: int) -> None:
    ways = list(pairs.attacks(pettingllms_envs.make("service", domain=domain)))
    assert len(ways) == 13 + 13 + 13 * 13
    for role in (USER, ASSISTANT):
        for name, attack in ATTACKS[role].items():
            content = partial(attacked, attack)
            for when, times in pairs.TIMES.items():
                agent = {f"{role}_0": times}
                ways.append(pairs.Cheat(f"{role} {when}: {name}", (*agent,), partial(pairs.cheating, content, agent)))
    alone = Counter(way.name.split()[0] for way in ways if len(way.agents) == 1)
    assert min(alone[USER], alone[ASSISTANT]) > 40
    assert gains({}, domain, 3, ways[::share]) == []


def held() -> tuple[int, int]:
    """Open file descriptors, and child processes that were waited for and not."""
    tasks = [each for each in os.listdir("/proc") if each.isdigit()]
    parents = [stat.rsplit(") ", 1)[1].split()[1] for stat in map(stat_of, tasks) if stat]
    return len(os.listdir("/proc/self/fd")), parents.count(str(os.getpid()))


def stat_of(process: str) -> str:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # it has ended
        return ""


@pytest.mark.slow
def test_five_hundred_episodes_at_once_hold_nothing_but_memory() -> None:
    before, sizes = held(), []
    for number in range(3):
        envs = [pettingllms_envs.make("service", domain=EVERY[seed % 3]) for seed in range(500)]
        for seed, env in enumerate(envs):
            env.reset(seed=1000 * number + seed)
        for _ in range(12):
            for env in envs:
                if not any(env.terminations.values()):
                    env.step(env.oracle())
        assert all(env.infos["user_0"]["outcome"]["success"] for env in envs)
        sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(f"{before} before and {held()} after; peak memory after each 500: {[round(size) for size in sizes]} MiB")
    assert held() == before
    assert sizes[-1] - sizes[0] < 30


SETTINGS: dict[str, list[dict[str, Any]]] = {
    "team": [{}, {"domain": "phone", "wording": "symbols"}, {"domain": "library", "communication_reward": False}],
    "scripted": [{"manner": "confused"}, {"domain": "phone", "manner": "terse"}],
    "specialist": [{}, {"domain": "library", "wording": "symbols"}],
    **{name: [{}] for name in ("single", "cut", "alone")},
}


@pytest.mark.slow
@pytest.mark.parametrize(("workflow", "settings"), [(name, each) for name in BY_NAME for each in SETTINGS[name]])
def test_it_passes_every_check(workflow: str, settings: dict[str, Any]) -> None:
    report = check(partial(pettingllms_envs.make, "service", workflow=workflow, **settings), seeds=range(6))
    assert report.ok, str(report)


def test_an_honest_assistant_asks_for_what_is_no_label() -> None:
    view = [(HEARD, USER, "order 41, address Lima, item lamp")]
    assert honest_assistant(Service(), ["refund"], view) == ServiceMove("say", "item?")


def test_all_sides_are_named() -> None:
    assert set(ATTACKS) == set(SIDES)
