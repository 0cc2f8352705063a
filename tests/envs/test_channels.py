"""Messages between roles: capacity, alphabet; and the base class of workflows that send them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import pytest

import pettingllms_envs
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import Role
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.teams.base import TurnWorkflow
from pettingllms_envs.teams.channels import Channel, Sent
from pettingllms_envs.testing import check


@pytest.mark.parametrize(
    ("channel", "reply", "text"),
    [
        (Channel(5), "  Left. ", "Left."),
        (Channel(5), "Left, up", "Left,"),
        (Channel(3, "0123456789"), "1 a2\n3", "123"),
        (Channel(3, "0123456789"), "1234", "123"),
        (Channel(5), "", ""),
        (Channel(4), "ab  cd", "ab"),  # cut after two spaces, which nobody would see
        (Channel(9), "a\tb\r\nc\u2028d", "a   b\nc\nd"),
        (Channel(9), "a\u00a0b\u3000c", "a b c"),
        (Channel(), "l\u200be\U000e0041f\ufe0ft\x00\ud800\ue000\u0378\u202e", "left"),
        (
            Channel(),
            "caf\u00e9 e\u0301 \u0627\u0644 \u5de6 \u0939\u093f \U0001f600",
            "caf\u00e9 e\u0301 \u0627\u0644 \u5de6 \u0939\u093f \U0001f600",
        ),
        (Channel(2, "ab"), "\u200b", ""),
        (Channel(), "\u2800a\u2800b\U00016fe4\U0001d159\u2800", "a b"),
    ],
)
def test_what_passes_a_channel(channel: Channel, reply: str, text: str) -> None:
    assert channel.send("guide", reply) == Sent("guide", text)


@pytest.mark.parametrize(
    ("channel", "letters", "number"),
    [
        (Channel(2, "ab"), "ab", 7),  # 1 + 2 + 4
        (Channel(3), "a\n\u2028", 5),  # "", a, aa, aaa, and a under a
        (Channel(2), "<|\u200b", 7),
        (Channel(2), "a \u00a0\t\x00", 3),
    ],
)
def test_as_many_messages_arrive_as_texts_pass(channel: Channel, letters: str, number: int) -> None:
    replies = ["".join(each) for length in range(5) for each in product(letters, repeat=length)]
    sent = [channel.send("guide", reply) for reply in replies]
    assert (len({each.text for each in sent}), len({each.shown for each in sent})) == (number, number)


@pytest.mark.parametrize("alphabet", ["ab\u200b", "ab\t", "\U000e0041", "a\ufe0f"])
def test_an_alphabet_of_letters_that_nobody_sees_raises(alphabet: str) -> None:
    with pytest.raises(ValueError, match="expected characters that can be printed"):
        Channel(alphabet=alphabet)


@pytest.mark.parametrize("capacity", [0, -3, 2.5])
def test_a_capacity_below_1_raises(capacity: Any) -> None:
    with pytest.raises(ValueError, match="expected a whole number of at least 1"):
        Channel(capacity)


def test_a_silent_message_says_so_and_a_cut_one_does_not() -> None:
    assert Channel().send("guide", " \n").shown == "The guide wrote nothing."
    assert Channel(2).send("guide", "abc").shown == "The guide wrote:\n> ab"


WRITERS = (
    *(("aime", "debate"), ("aime", "ensemble"), ("archives", "team"), ("benches", "team"), ("hidden_bench", "team")),
    *(("laws", "lab"), ("sql", "explorer_writer"), ("two_arms", "team"), ("verilog", "architect_implementer")),
)


@pytest.mark.parametrize(("name", "workflow"), WRITERS)
def test_who_writes_a_message_is_told_where_it_is_cut(name: str, workflow: str) -> None:
    env = pettingllms_envs.make(name, workflow=workflow, capacity=47)
    env.reset(seed=0)
    prompts = []
    for _ in range(2):  # of those who write
        prompts.append(str(env.last()[0]))
        env.step("")
    assert "at most 47 characters" in "".join(prompts)


@dataclass(frozen=True, slots=True)
class Advise(TurnWorkflow[Any, Any]):
    """Two advisers write, the player moves."""

    name: ClassVar[str] = "advise"
    channel: ClassVar[Channel] = Channel(capacity=20)
    roles: ClassVar[tuple[Role, ...]] = (
        Role("adviser", "You are an adviser.", count=2, delayed=True),
        Role("player", "You are the player. Your moves are played."),
    )


@dataclass(frozen=True, slots=True)
class PaidAdvise(Advise):
    """Advisers are paid for the letter U."""

    name: ClassVar[str] = "paid_advise"

    def pay(self, state: Any, role: str, reply: str) -> Mapping[str, float]:
        return {"up": float("U" in reply)}

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {**TurnWorkflow.ranges(self), "up": (0.0, 1.0)}


def advise() -> TextEnv:
    return TextEnv(Advise(PlanPath(size=4)), name="advise_v0")


def test_a_workflow_of_a_name_and_roles_lets_each_act_once_in_a_turn_and_plays_the_last_reply() -> None:
    env = advise()
    env.reset(seed=1)
    start = env.observe("player_0")["text"]
    actors = []
    for reply in ("Moves: U", "Ignore the other one, please.", "nonsense"):
        actors.append(env.agent_selection)
        env.step(reply)
    assert (actors, env.agent_selection) == (["adviser_0", "adviser_1", "player_0"], "adviser_0")
    assert env.infos["player_0"]["rewards"] == {"format": -0.2}
    text = env.observe("player_0")["text"]
    assert text.startswith("Turn 2 of 4.")
    assert "adviser" not in start + text  # messages are of one turn
    env.step("Moves: U")
    env.step("Ignore the other one, please.")
    notes = "The adviser_0 wrote:\n> Moves: U\nThe adviser_1 wrote:\n> Ignore the other one"
    assert env.observe("player_0")["text"].endswith(notes)
    assert env.infos["player_0"]["outcome"]["messages"] == 4
    assert env.infos["player_0"]["outcome"]["message_chars"] == 2 * (8 + 20)


def test_messages_are_paid_where_the_workflow_says_so() -> None:
    env = TextEnv(PaidAdvise(PlanPath(size=4)), name="advise_v0")
    env.reset(seed=1)
    env.step("Go U")
    assert env.rewards == {"adviser_0": 1.0, "adviser_1": 0.0, "player_0": 0.0}


@pytest.mark.slow
def test_it_passes_every_check() -> None:
    report = check(advise, seeds=range(3))
    assert report.ok, str(report)
