"""The rule-based players of Hanabi: their rules on positions worked by hand, and what they score."""

from __future__ import annotations

from collections import Counter
from statistics import fmean, stdev
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.environments.hanabi.bots import BOTS
from pettingllms_envs.environments.hanabi.cards import (
    VARIANTS,
    Card,
    HanabiMove,
    HanabiView,
    HeldCard,
    Knowledge,
    all_cards,
    legal_moves,
    unseen,
)
from pettingllms_envs.environments.hanabi.rules import Hanabi


def known(words: str) -> Knowledge:
    """Such as `"RY 12"`."""
    colors, ranks = words.split()
    return Knowledge(sum(1 << "RYGWB".index(each) for each in colors), sum(1 << int(each) - 1 for each in ranks))


def held(words: str) -> HeldCard:
    """Such as `"R3 RY 12345"`."""
    card, rest = words.split(" ", 1)
    return HeldCard(Card("RYGWB".index(card[0]), int(card[1])), known(rest))


def view(own: str, other: str, **fields: Any) -> HanabiView:
    """Two players and two colors; cards are separated by commas."""
    base = HanabiView(
        VARIANTS[2], 0, 0, False, (0, 0), (), 3, 1, 8,
        tuple(known(each.strip()) for each in own.split(",")),
        (tuple(held(each.strip()) for each in other.split(",")),),
        (),
    )  # fmt: skip
    return base._replace(**fields)


def move_of(bot: str, seen: HanabiView) -> HanabiMove:
    return BOTS[bot](seen)


PLAY_0, PLAY_1 = HanabiMove("play", 0), HanabiMove("play", 1)
USELESS = {"fireworks": (2, 2), "information": 1}
"""R1, R2, Y1 and Y2 were played."""


@pytest.mark.parametrize(
    ("bot", "seen", "expected"),
    [
        # Known to be a 1, with no firework begun: whatever its color, it is playable.
        ("iggi", view("RY 2345, RY 1", "R4 RY 12345, Y4 RY 12345"), PLAY_1),
        # Not told, but certain by counting: of RY 12 only R2 is left to be held, which is next after R1.
        (
            "iggi",
            view(
                "RY 12, RY 345",
                "R4 RY 12345, Y4 RY 12345",
                fireworks=(1, 2),
                discards=(Card(0, 1), Card(0, 1), Card(1, 1), Card(1, 1), Card(1, 2)),
            ),
            PLAY_0,
        ),
        # The other's R1 is playable and unknown: its rank is told first, then its color.
        ("iggi", view("RY 12345, RY 12345", "R4 RY 12345, R1 RY 12345"), HanabiMove("rank", 1, 1)),
        ("iggi", view("RY 12345, RY 12345", "R4 RY 12345, R1 RY 1"), HanabiMove("color", 0, 1)),
        # Nothing to tell about a card that is known; a card of a rank that was played everywhere is useless.
        ("iggi", view("RY 345, RY 12", "R5 RY 345, Y5 RY 12345", **USELESS), HanabiMove("discard", 1)),
        # Nothing is known to be useless: the oldest card is discarded.
        ("iggi", view("RY 12345, RY 12345", "R5 R 5, Y5 Y 5", **USELESS), HanabiMove("discard", 0)),
        # R4 and R5 are useless if both R3 are lost.
        (
            "iggi",
            view("RY 12345, R 45", "Y5 Y 5, Y5 Y 5", **USELESS, discards=(Card(0, 3), Card(0, 3))),
            HanabiMove("discard", 1),
        ),
        # One token left: piers tells of the useless R1 what is missing, iggi discards its oldest card.
        ("piers", view("RY 345, RY 345", "R5 RY 345, R1 RY 12345", **USELESS), HanabiMove("rank", 1, 1)),
        ("iggi", view("RY 345, RY 345", "R5 RY 345, R1 RY 12345", **USELESS), HanabiMove("discard", 0)),
        # With an empty deck and a life to lose, piers plays the likelier card: 1/2 of RY 3 is next, RY 45 never is.
        (
            "piers",
            view("RY 45, RY 34", "R5 R 5, Y5 Y 5", fireworks=(2, 2), information=0, lives=2, deck_size=0),
            PLAY_1,
        ),
        # outer tells what is not known of a playable card, else of any card, and discards what is certainly useless.
        ("outer", view("RY 12345, RY 12345", "R4 RY 12345, R1 RY 1"), HanabiMove("color", 0, 1)),
        ("outer", view("RY 12345, RY 12345", "R4 R 12345, R5 R 5"), HanabiMove("rank", 4, 1)),
        ("outer", view("RY 12345, RY 12", "R4 RY 12345, R3 RY 12345", **USELESS), HanabiMove("discard", 1)),
        # A card that is playable with a probability of 6/14 is a risk for flawed, and not for piers.
        ("flawed", view("RY 12345, RY 2345", "R5 R 5, Y5 Y 5"), PLAY_0),
    ],
)  # fmt: skip
def test_the_first_rule_that_applies_gives_the_move(bot: str, seen: HanabiView, expected: HanabiMove) -> None:
    assert move_of(bot, seen) == expected


def test_piers_plays_a_probable_card_only_while_a_life_may_be_lost() -> None:
    """Of "RY 12" five cards are unseen: R1, Y2 and Y2 are next, Y1 and Y1 were played: 3 of 5 are playable."""
    lost = (Card(0, 2), Card(0, 2), Card(0, 1), Card(0, 1))
    seen = view("RY 12, RY 345", "R5 R 5, Y5 Y 5", fireworks=(0, 1), discards=lost, information=0)
    assert move_of("piers", seen) == HanabiMove("discard", 0)
    assert move_of("piers", seen._replace(lives=2)) == PLAY_0


def test_unseen_cards_are_the_deck_less_all_that_is_seen() -> None:
    seen = view("RY 12345, RY 12345", "R4 RY 12345, Y5 RY 12345", fireworks=(2, 0), discards=(Card(1, 1),))
    left = unseen(seen)
    expected = Counter(all_cards(2)) - Counter([Card(0, 4), Card(1, 5), Card(0, 1), Card(0, 2), Card(1, 1)])
    assert left == expected
    assert sum(left.values()) == 15


def test_the_random_player_makes_every_legal_move_equally_often() -> None:
    """4 standard errors of 2,000 views, which differ in the number of cards to draw alone."""
    seen = view("RY 12345, RY 12345", "R4 RY 12345, Y4 RY 12345", information=2)
    legal = legal_moves(seen)
    assert len(legal) == 7  # two plays, two discards, R, Y and 4
    found = Counter(move_of("random", seen._replace(deck_size=size)) for size in range(2000))
    assert set(found) == set(legal)
    for count in found.values():
        assert count / 2000 == pytest.approx(1 / 7, abs=4 * (1 / 7 * 6 / 7 / 2000) ** 0.5)


def scores(bot: str, players: int, games: int) -> list[int]:
    """Of games in which the bot has all seats."""
    task, found = Hanabi(players=players), []
    for seed in range(games):
        state = task.generate(seed)
        while not task.is_terminal(state):
            move = task.bot(state, bot)
            assert not task.illegal(state, move)
            state = task.apply(state, move)
        found.append(task.score(state))
    return found


def test_rules_beat_chance_and_flawed_and_random_players_lose_all_lives() -> None:
    assert fmean(scores("piers", 2, 6)) > 15 < fmean(scores("iggi", 2, 6))
    assert fmean(scores("flawed", 2, 6)) == fmean(scores("random", 2, 6)) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("bot", "published"), [("piers", 16.99), ("iggi", 15.99)])
def test_two_players_score_at_least_what_is_published(bot: str, published: float) -> None:
    """Canaan et al., AIIDE 2020: their players leave out some of what hints and seen cards tell."""
    found = scores(bot, 2, 300)
    error = stdev(found) / len(found) ** 0.5
    assert published < fmean(found) - 2 * error < fmean(found) < published + 2.5


def test_an_agent_among_bots_acts_first_and_sees_what_they_did() -> None:
    env = pettingllms_envs.make("hanabi", players=3, workflow="ad_hoc", partner="iggi")
    env.reset(seed=0)
    assert env.possible_agents == ["player_0"]
    task, state = Hanabi(players=3), env.snapshot().play.task
    env.step("Action: play 0")
    for move in (HanabiMove("play", 0), None, None):
        state = task.apply(state, move or task.bot(state, "iggi"))
    assert env.snapshot().play.task == state
    assert "player_1 " in env.observe("player_0")["text"].split("Your hand")[0]


def test_bots_are_named_in_the_metadata_and_reply_for_the_acting_agent() -> None:
    env = pettingllms_envs.make("hanabi")
    env.reset(seed=0)
    assert env.metadata["bots"] == ["piers", "iggi", "outer", "flawed", "random"]
    assert env.bot("piers") == env.workflow.task.write(env.workflow.task.bot(env.snapshot().play.task, "piers"))
    with pytest.raises(
        ValueError, match=r"the bot is 'pier'; expected one of 'piers', 'iggi', 'outer', 'flawed', 'random'\. Did"
    ):
        env.bot("pier")
    other = pettingllms_envs.make("plan_path")
    other.reset(seed=0)
    assert other.metadata["bots"] == []
    with pytest.raises(ValueError, match=r"plan_path_v0 has no bots"):
        other.bot("piers")
