"""Agents that remember: what they are asked, in messages and in tokens, along the branches that are played."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pettingllms_envs import plan_path_v0
from pettingllms_envs.observations import PNG, Image
from pettingllms_trl.records import Completion, Decision, Episode, Prompt, Request, Sampled
from pettingllms_trl.rollout import Rollout
from pettingllms_trl.rollout.prompts import HISTORIES, agents_with_history, check_conversations, num_restarted
from plays import play
from schedules import Dawdlers, Patient, Tidal, Whimsical
from third_party import Relay


END, NEXT = 0, 256  # a turn's end; the next turn's beginning. All other ids are bytes
AGENTS = ("opener_0", "closer_0")
PLAN_PATH = partial(plan_path_v0.env, size=4, num_turns=3)
GAMES = pytest.mark.parametrize("make_env", [partial(Relay, 3), PLAN_PATH], ids=["third_party", "plan_path"])


def after(spoken: Sequence[int], message: Mapping[str, str]) -> tuple[int, ...]:
    """A template that ends a turn, unless it has ended, and writes a message between two marks."""
    return (*spoken, *(() if spoken[-1] == END else (END,)), NEXT, *message["content"].encode(), NEXT)


BOTH = dict.fromkeys(AGENTS, after)
EVERYBODY = {**BOTH, "drafter_0": after, "planner_0": after}


class Speaks:
    """An engine's answers: each reply a function of the prompt's tokens alone, every other one cut off before its end.

    Where a request has no ids it writes the prompt itself, as an engine does by the chat template.
    """

    def __init__(self, engine: Any, *args: Any) -> None:
        self._engine = engine(self._text, *args)
        self.is_batched = self._engine.is_batched
        self.requests: list[Request] = []

    def _text(self, ticket: int, request: Request, k: int) -> str:
        rng = random.Random(f"{self._ids(request)}/{k}")
        moves = "Moves: " + " ".join(rng.choices("UDLR", k=2))
        return moves if request.agent in ("drafter_0", "planner_0") else "".join(rng.choices("AZ", k=4))

    def _ids(self, request: Request) -> tuple[int, ...]:
        opening = "".join(message["content"] for message in request.prompt.messages)
        return request.prompt.ids or (NEXT, *opening.encode(), NEXT)

    def submit(self, ticket: int, request: Request) -> None:
        self.requests.append(request)
        self._engine.submit(ticket, request)
        self._asked = {**getattr(self, "_asked", {}), ticket: request}

    def step(self) -> list[tuple[int, Sampled]]:
        return [(ticket, self._in_tokens(self._asked[ticket], said)) for ticket, said in self._engine.step()]

    def _in_tokens(self, request: Request, said: Sampled) -> Sampled:
        completions = tuple(
            Completion(ids=tuple(c.text.encode()) + (END,) * (k % 2), text=c.text)
            for k, c in enumerate(said.completions)
        )
        return Sampled(replace(request.prompt, ids=self._ids(request)), completions)


def rollout(
    make_env: Any, engine: Any = None, *, num_rows: int = 3, extensions: Any = EVERYBODY, **options: Any
) -> Rollout:
    options = {"sampling": "tree", "num_candidates": 3, **options}
    rows = [{"seed": seed} for seed in range(num_rows)]
    return play(rows, make_env=make_env, engine=engine or Speaks(Tidal), seed="s", extensions=extensions, **options)


def of(episode: Episode, agent: str) -> list[Decision]:
    return [decision for decision in episode.decisions if decision.agent == agent]


# ---- The prompt of an agent that remembers --------------------------------------------------------------------------


def test_the_prompts_of_an_episode_are_those_worked_by_hand() -> None:
    says = {"opener_0": ["AZ", "ZA"], "closer_0": ["A", "AA"]}

    class Recites(Speaks):
        def _text(self, ticket: int, request: Request, k: int) -> str:
            return says[request.agent][sum(message["role"] == "assistant" for message in request.prompt.messages)]

    (episode,) = rollout(Relay, Recites(Tidal), num_rows=1, num_candidates=1).episodes
    first, _, second, last = episode.decisions
    ask, answer = ({"role": role} for role in ("user", "assistant"))
    assert first.prompt.messages == [{**ask, "content": "opener_0, task 0: "}]
    assert second.prompt.messages == [
        {**ask, "content": "opener_0, task 0: "},
        {**answer, "content": "AZ"},
        {**ask, "content": "opener_0, task 0: AZ|A"},
    ]
    # "AZ" was cut off, so the template ends the turn.
    expected = (NEXT, *b"opener_0, task 0: ", NEXT, *b"AZ", END, NEXT, *b"opener_0, task 0: AZ|A", NEXT)
    assert second.prompt.ids == expected
    assert [message["content"] for message in last.prompt.messages] == [
        "closer_0, task 0: AZ",
        "A",
        "closer_0, task 0: AZ|A|ZA",
    ]


@GAMES
@pytest.mark.parametrize("sampling", ["tree", "parallel"])
def test_every_prompt_goes_on_from_the_tokens_prompted_and_sampled_before(make_env: Any, sampling: str) -> None:
    engine = Speaks(Tidal)
    found = rollout(make_env, engine, sampling=sampling)
    continued = 0
    for episode in found.episodes:
        for agent in dict.fromkeys(d.agent for d in episode.decisions):
            decisions = of(episode, agent)
            for before, now in pairwise(decisions):
                spoken = before.prompt.ids + before.played.completion.ids
                assert now.prompt.ids[: len(spoken)] == spoken
                assert now.prompt.ids[len(spoken) :].count(END) == (spoken[-1] != END)
                assert len(now.prompt.messages) == len(before.prompt.messages) + 2
                continued += 1
    assert continued > len(found.episodes)
    check_conversations(found.episodes, list(EVERYBODY))
    assert all(request.prompt.ids or len(request.prompt.messages) <= 2 for request in engine.requests)
    assert {END in r.prompt.ids for r in engine.requests if r.prompt.ids} == {True}


def test_a_siblings_reply_and_anothers_are_in_nobodys_conversation() -> None:
    for episode in rollout(partial(Relay, 3)).episodes:
        for agent in AGENTS:
            replies = [d.played.completion.text for d in of(episode, agent)]
            for turn, decision in enumerate(of(episode, agent)):
                said = [message["content"] for message in decision.prompt.messages if message["role"] == "assistant"]
                assert said == replies[:turn]


def test_who_remembers_and_who_does_not_sit_at_one_table() -> None:
    for episode in rollout(partial(Relay, 3), extensions={"closer_0": after}).episodes:
        assert [len(d.prompt.messages) for d in of(episode, "opener_0")] == [1, 1, 1]
        assert [len(d.prompt.messages) for d in of(episode, "closer_0")] == [1, 3, 5]


def test_without_conversations_everything_is_as_it_was() -> None:
    engine = Speaks(Tidal)
    found = rollout(Relay, engine, extensions=None)
    assert all(not request.prompt.ids and len(request.prompt.messages) == 1 for request in engine.requests)
    assert found == rollout(Relay, extensions={})


def test_an_api_partner_is_given_messages_and_no_tokens() -> None:
    engine = Speaks(Tidal)
    rollout(Relay, engine, extensions={"opener_0": None})
    own = [request for request in engine.requests if request.agent == "opener_0"]
    assert [len(request.prompt.messages) for request in own] == [1, 1, 1, 3, 3, 3]
    assert all(request.prompt.ids == () for request in own)


def test_an_environment_may_say_less_to_who_remembers() -> None:
    class Brief(Relay):
        def observe(self, agent: str) -> Any:
            return {**super().observe(agent), "system": "Be brief.", "followup": f"then {self.written[-1:]}"}

    (episode,) = rollout(partial(Brief, 2), num_rows=1, extensions={"opener_0": after}).episodes
    first, second = of(episode, "opener_0")
    assert [message["role"] for message in second.prompt.messages] == ["system", "user", "assistant", "user"]
    assert second.prompt.messages[:2] == first.prompt.messages
    assert second.prompt.messages[-1]["content"] == f"then {[episode.decisions[1].played.completion.text]}"
    assert of(episode, "closer_0")[1].prompt.messages[-1]["content"].startswith("closer_0, task 0: ")


# ---- Begun anew -----------------------------------------------------------------------------------------------------


def test_a_conversation_that_does_not_fit_is_begun_anew_from_the_present_observation() -> None:
    def at_most_one_reply(spoken: Sequence[int], message: Mapping[str, str]) -> tuple[int, ...] | None:
        ids = after(spoken, message)
        return ids if ids.count(NEXT) <= 4 else None

    found = rollout(partial(Relay, 5), extensions={"opener_0": at_most_one_reply})
    for episode in found.episodes:
        assert [len(d.prompt.messages) for d in of(episode, "opener_0")] == [1, 3, 1, 3, 1]
        begun = of(episode, "opener_0")[2]
        written = [d.played.completion.text for d in episode.decisions[:4]]
        assert begun.prompt.messages[0]["content"] == f"opener_0, task {episode.instance}: {'|'.join(written)}"
    assert num_restarted(found.episodes, ["opener_0"]) == 2 * 3
    assert num_restarted(found.episodes, []) == 0
    check_conversations(found.episodes, ["opener_0"])


def test_a_conversation_whose_system_message_has_changed_is_begun_anew() -> None:
    class Promoted(Relay):
        def observe(self, agent: str) -> Any:
            return {**super().observe(agent), "system": "Lead." if len(self.written) >= 4 else "Help."}

    (episode,) = rollout(partial(Promoted, 4), num_rows=1, extensions={"opener_0": after}).episodes
    assert [len(d.prompt.messages) for d in of(episode, "opener_0")] == [2, 4, 2, 4]
    assert of(episode, "opener_0")[2].prompt.messages[0]["content"] == "Lead."


# ---- Branches, failures, orders -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_env", [partial(Relay, 2), partial(plan_path_v0.env, size=4, num_turns=2)])
def test_what_continues_a_candidate_remembers_that_candidate_and_not_the_one_played(make_env: Any) -> None:
    engine = Speaks(Tidal)
    found = rollout(make_env, engine, num_rows=1, num_continuations=1)
    (episode,) = found.episodes
    agent = episode.decisions[0].agent
    # Every candidate of the agent's first decision is gone on from: the played one by the episode, too.
    firsts = {episode.decisions[0].prompt.ids + c.completion.ids for c in episode.decisions[0].candidates}
    later = [r for r in engine.requests if r.agent == agent and len(r.prompt.messages) in (3, 4)]
    found_firsts = {first for first in firsts for r in later if r.prompt.ids[: len(first)] == first}
    assert found_firsts == firsts


@GAMES
@pytest.mark.parametrize("num_continuations", [0, 1])
def test_no_order_of_answers_and_steps_changes_a_conversation(make_env: Any, num_continuations: int) -> None:
    expected = rollout(make_env, num_continuations=num_continuations)
    for seed in range(3):
        rng = random.Random(seed)
        engine = Speaks(Whimsical, rng)
        options = {"num_continuations": num_continuations, "max_envs": 2 + seed}
        assert rollout(make_env, engine, workers=Dawdlers(rng), **options) == expected
    assert rollout(make_env, Speaks(Patient), num_threads=3, num_continuations=num_continuations) == expected


def test_who_begins_anew_after_a_failure_has_forgotten() -> None:
    failures = [1]

    class Fails(Relay):
        def step(self, action: str | None) -> None:
            if action is not None and len(self.written) == 3 and self.task == 1 and failures:
                raise OSError(failures.pop())
            super().step(action)

    found = rollout(Fails)
    assert found.retried == 1
    assert found.episodes == rollout(Relay).episodes


# ---- Who remembers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ("none", []),
        (None, []),
        ("conversation", ["planner_0", "coder_0", "coder_1"]),
        ({"coder": "conversation"}, ["coder_0", "coder_1"]),
        ({"coder": "conversation", "coder_1": "none"}, ["coder_0"]),
        ({"planner_0": "conversation"}, ["planner_0"]),
    ],
)
def test_history_is_said_for_all_or_by_agent_or_role(history: Any, expected: list[str]) -> None:
    found = agents_with_history(history, ["planner_0", "coder_0", "coder_1"])
    assert found == dict.fromkeys(expected, "conversation")


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ("chat", "history is 'chat' for 'planner_0', expected one of"),
        (
            {"coder": "conversation"},
            "history is given for 'coder', but the environment has the agents planner_0. Name",
        ),
    ],
)
def test_a_history_that_does_not_exist_or_is_nobodys_is_refused(history: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        agents_with_history(history, ["planner_0"])


def test_a_prompt_of_other_tokens_than_were_sampled_is_found_by_the_check() -> None:
    def forgetful(spoken: Sequence[int], message: Mapping[str, str]) -> tuple[int, ...]:
        return after((spoken[0], *spoken[2:]), message)

    found = rollout(Relay, extensions={"closer_0": forgetful})
    with pytest.raises(AssertionError, match="instance 0, closer_0, turn 1: not the tokens that were sampled before"):
        check_conversations(found.episodes, ["closer_0"])


ASK = {"role": "user", "content": "?"}
RED, BLUE = Image(PNG + b"red", alt="red"), Image(PNG + b"blue", alt="blue")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Prompt([ASK], (1, 2)), Prompt([], (1, 2)), True),  # of one encoding: what the model reads
        (Prompt([ASK], (1, 2)), Prompt([ASK], (1, 3)), False),
        (Prompt([ASK], (1, 2), (RED,)), Prompt([ASK], (1, 2), (BLUE,)), False),  # one placeholder, two pictures
        (Prompt([ASK]), Prompt((dict(ASK),)), True),  # not encoded: what it says
        (Prompt([ASK]), Prompt([{**ASK, "role": "system"}]), False),
        (Prompt([ASK]), Prompt([{**ASK, "name": "a"}]), False),
        (Prompt([ASK]), Prompt([ASK], tools=[{"type": "function"}]), False),
        (Prompt([ASK], tools=[{"type": "function"}]), Prompt([ASK], tools=({"type": "function"},)), True),
    ],
)
def test_prompts_have_one_key_if_a_model_cannot_tell_them_apart(one: Prompt, other: Prompt, same: bool) -> None:
    assert (one.key == other.key) is same
    assert len({one.key, other.key}) == 2 - same


def test_the_table_of_histories_says_what_the_modes_are() -> None:
    page = (Path(__file__).parents[3] / "docs" / "options.md").read_text("utf-8")
    rows = [f'| `"{name}"` | {prompt} | {where} |' for name, (prompt, where, _) in HISTORIES.items()]
    assert "\n".join(rows) in page
    assert [name for name, (_, _, keeps_turns) in HISTORIES.items() if keeps_turns] == ["conversation"]
