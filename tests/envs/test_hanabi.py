"""Hanabi: its rules against tables worked by hand and a second implementation, what is seen, and what is paid."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from functools import partial
from typing import Any

import pytest

import pettingllms_envs
from hanabi_table import Table
from pettingllms_envs.core import SPLITS, Unreadable
from pettingllms_envs.environments.hanabi.cards import VARIANTS, Card, HanabiMove, all_cards, canonical, legal_moves
from pettingllms_envs.environments.hanabi.rules import Hanabi, HanabiState
from pettingllms_envs.testing import check


EXACT = 1e-12


def cards(words: str) -> list[Card]:
    """Such as `"R1 Y2"`."""
    return [Card("RYGWB".index(word[0]), int(word[1])) for word in words.split()]


def deal(words: str, *, players: int = 2, level: int = 2) -> HanabiState:
    """A game in which these cards are dealt and drawn first, and the rest of the deck in order."""
    first = cards(words)
    rest = Counter(all_cards(VARIANTS[level].colors)) - Counter(first)
    return Hanabi(players=players, level=level).dealt([*first, *rest.elements()], level)


def play(state: HanabiState, *replies: str, players: int = 2) -> HanabiState:
    """The state after moves that are legal."""
    task = Hanabi(players=players)
    for reply in replies:
        move = task.parse(reply)
        assert not isinstance(move, Unreadable), move
        assert not task.illegal(state, move), f"{reply}: {task.illegal(state, move)}"
        state = task.apply(state, move)
    return state


def made(words: str, *replies: str, **settings: Any) -> Any:
    """An environment of two colors in which these cards are dealt, after some replies."""
    env = pettingllms_envs.make("hanabi", level=2, **settings)
    env.reset(seed=0)
    start = env.unwrapped.workflow.start(deal(words))
    env.unwrapped.restore(env.unwrapped.snapshot()._replace(play=start))
    for reply in replies:
        env.step(reply)
    return env


def same(task: Hanabi, state: HanabiState, table: Table) -> None:
    """Both implementations are in the same state."""
    assert task.is_terminal(state) == table.is_over
    assert (task.score(state), sum(state.fireworks)) == (table.score, len(table.table))
    assert (state.information, state.lives, len(state.deck)) == (table.tokens, table.lives, len(table.pile))
    assert [str(card) for card in state.discards] == table.trash
    for hand, other in zip(state.hands, table.hands, strict=True):
        assert [(str(held.card), str(held.known)) for held in hand] == [
            (held["card"], table.known(held)) for held in other
        ]
    if not table.is_over:
        assert state.player == table.turn
        legal = legal_moves(task.view(state, state.player))
        assert sorted(map(task.write, legal)) == sorted(table.moves())
        assert not any(task.illegal(state, move) for move in legal)


def compare_games(number: int) -> Counter[str]:
    """Random games in both implementations, of all sizes; how many ended in which way.

    Two thirds of the players look at their cards, or else few games would come to other ends than a lost life.
    """
    ends: Counter[str] = Counter()
    for seed in range(number):
        rng = random.Random(seed)
        players, level, style = 2 + seed % 4, 1 + seed // 4 % 3, seed // 12 % 3
        task, variant = Hanabi(players=players), VARIANTS[level]
        deck = all_cards(variant.colors)
        rng.shuffle(deck)
        state = task.dealt(deck, level)
        table = Table(
            [str(card) for card in deck], players, variant.cards_held(players), variant.information, variant.lives
        )
        same(task, state, table)
        while not table.is_over:
            reply = rng.choice(good_moves(table, style))
            table.do(reply)
            state = play(state, reply, players=players)
            same(task, state, table)
        ends["life" if not table.lives else "best score" if task.solved(state) else "cards"] += 1
    return ends


def good_moves(table: Table, style: int) -> list[str]:
    """All legal moves (0), those that lose no life (1), or the best ones for who sees everything (2)."""
    moves = sorted(table.moves())
    if style == 0:
        return moves
    own = table.hands[table.turn]
    plays = {f"Action: play {i}": table.is_next(held["card"]) for i, held in enumerate(own)}
    safe = [move for move in moves if plays.get(move, True)] or moves
    if style == 1:
        return safe
    useless = [f"Action: discard {i}" for i, held in enumerate(own) if held["card"] in table.table]
    return (
        [move for move in safe if move in plays]
        or [move for move in safe if move in useless]
        or [move for move in safe if "reveal" in move]
        or safe
    )


def test_random_games_are_the_same_in_a_second_implementation() -> None:
    ends = compare_games(144)
    assert min(ends[end] for end in ("life", "best score", "cards")) >= 5, ends


@pytest.mark.slow
def test_ten_thousand_random_games_are_the_same_in_a_second_implementation() -> None:
    ends = compare_games(10_000)
    assert ends.total() == 10_000
    assert min(ends[end] for end in ("life", "best score", "cards")) >= 200, ends


def test_a_deck_has_ten_cards_of_each_color() -> None:
    assert Counter(map(str, all_cards(1))) == {"R1": 3, "R2": 2, "R3": 2, "R4": 2, "R5": 1}
    assert [len(all_cards(VARIANTS[level].colors)) for level in (1, 2, 3)] == [10, 20, 50]


@pytest.mark.parametrize(
    ("players", "level", "held", "drawn"),
    [(2, 1, 2, 6), (5, 1, 2, 0), (2, 2, 2, 16), (2, 3, 5, 40), (3, 3, 5, 35), (4, 3, 4, 34), (5, 3, 4, 30)],
)
def test_hands_have_the_sizes_of_the_hanabi_learning_environment(
    players: int, level: int, held: int, drawn: int
) -> None:
    state = Hanabi(players=players).generate(0, level=level)
    assert [len(hand) for hand in state.hands] == [held] * players
    assert len(state.deck) == drawn


def test_a_card_that_is_next_in_its_color_is_added_and_another_one_costs_a_life() -> None:
    state = play(deal("R1 Y2 R3 R4 R5 Y1 R2 R2 Y3 Y4 G1 G2", level=3), "Action: play 0", "Action: play 0")
    assert (state.fireworks, state.lives, state.discards) == ((1, 1, 0, 0, 0), 3, ())
    assert [str(held.card) for held in state.hands[0]] == ["Y2", "R3", "R4", "R5", "G1"]
    state = play(state, "Action: play 3")
    assert (state.fireworks, state.lives, [*map(str, state.discards)]) == ((1, 1, 0, 0, 0), 2, ["R5"])


def test_a_hint_tells_of_every_card_in_the_hand_and_new_cards_are_unknown() -> None:
    """player_1 holds R1 Y2: of color R, the first is R, the second is not."""
    state = play(deal("R2 R3 R1 Y2 Y3 Y4"), "Action: reveal +1 color R")
    assert [str(held.known) for held in state.hands[1]] == ["R 12345", "Y 12345"]
    assert state.information == 2
    state = play(state, "Action: reveal +1 rank 3", "Action: reveal +1 rank 1")
    assert [str(held.known) for held in state.hands[0]] == ["RY 1245", "RY 3"]
    assert [str(held.known) for held in state.hands[1]] == ["R 1", "Y 2345"]
    state = play(deal("R2 R3 R1 Y2 Y3 Y4"), "Action: reveal +1 color R", "Action: play 0")
    assert [str(held.known) for held in state.hands[1]] == ["Y 12345", "RY 12345"]


def test_a_discard_and_a_completed_firework_give_back_a_token_but_never_more_than_there_were() -> None:
    """One color, two players: R1 to R5 are played in turn after two hints; the fifth gives one token back."""
    state = deal("R1 R3 R2 R4 R5 R1 R1 R2 R3 R4", level=1)
    state = play(state, "Action: reveal +1 rank 2", "Action: reveal +1 rank 1")
    assert state.information == 1
    state = play(state, "Action: play 0", "Action: play 0", "Action: play 0", "Action: play 0")
    assert (state.fireworks, state.information) == ((4,), 1)
    state = play(state, "Action: play 0")
    assert (state.fireworks, state.information) == ((5,), 2)
    assert Hanabi().is_terminal(state)
    assert Hanabi().solved(state)
    again = play(deal("R1 R3 R2 R4 R5 R1 R1 R2 R3 R4", level=1), *["Action: play 0"] * 5)
    assert (again.fireworks, again.information) == ((5,), 3)
    state = play(deal("R2 R3 R1 Y2"), "Action: reveal +1 color R", "Action: discard 0")
    assert (state.information, [*map(str, state.discards)]) == (3, ["R1"])


def test_after_the_last_card_is_drawn_every_player_has_one_turn() -> None:
    """One color, two players: of 10 cards 4 are dealt and 6 drawn, four after a hint and two after the fifth."""
    state = deal("R4 R2 R3 R5 R3 R4 R1 R1 R1 R2", level=1)
    task = Hanabi()
    state = play(state, "Action: reveal +1 color R", "Action: reveal +1 color R", "Action: reveal +1 color R")
    state = play(state, "Action: discard 0", "Action: discard 0", "Action: discard 0")
    state = play(state, *["Action: reveal +1 color R"] * 3, *["Action: discard 0"] * 2)
    assert (len(state.deck), state.last_turns) == (1, 2)
    state = play(state, "Action: discard 0")
    assert (len(state.deck), state.last_turns, task.is_terminal(state)) == (0, 2, False)
    state = play(state, "Action: reveal +1 color R")
    assert (state.last_turns, task.is_terminal(state)) == (1, False)
    state = play(state, "Action: reveal +1 color R")
    assert (state.last_turns, task.is_terminal(state)) == (0, True)
    assert task.apply(state, HanabiMove("play", 0)) == state


def test_the_longest_game_takes_as_many_moves_as_it_says() -> None:
    """A hint whenever there is a token, else a discard: 8 hints, 40 discards with 39 hints between, 2 last turns."""
    task = Hanabi()
    state, count = task.generate(0), 0
    while not task.is_terminal(state):
        moves = legal_moves(task.view(state, state.player))
        moves = [move for move in moves if move.offset] or [move for move in moves if move.kind == "discard"]
        state, count = task.apply(state, moves[0]), count + 1
    assert count == task.max_game_length == 89


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("Action: play 2", "there is no card of that number"),
        ("Action: discard 0", "no card is discarded while all information tokens are there"),
        ("Action: reveal +0 color R", "there is no other player at that place"),
        ("Action: reveal +2 color R", "there is no other player at that place"),
        ("Action: reveal +1 rank 5", "it names no card"),
        ("Action: reveal +1 color B", "it names no card"),
        ("Action: reveal +1 rank 9", "it names no card"),
    ],
)
def test_an_illegal_move_is_played_as_the_default_one(reply: str, why: str) -> None:
    task, state = Hanabi(), deal("R1 R2 Y1 Y2")
    move = task.parse(reply)
    assert task.illegal(state, move) == why
    assert task.apply(state, move) == task.apply(state, HanabiMove("play", 0))


def test_the_default_move_is_a_discard_of_the_oldest_card_where_that_is_legal() -> None:
    task = Hanabi()
    state = play(deal("R1 R2 Y1 Y2"), "Action: reveal +1 rank 1")
    assert (task.default_move(deal("R1 R2 Y1 Y2")), task.default_move(state)) == (
        HanabiMove("play", 0),
        HanabiMove("discard", 0),
    )


def test_without_a_token_no_hint_is_legal() -> None:
    state = play(deal("R1 R2 Y1 Y2"), *["Action: reveal +1 rank 1"] * 3)
    assert Hanabi().illegal(state, HanabiMove("rank", 1, 1)) == "there is no information token"


@pytest.mark.parametrize(
    ("reply", "move"),
    [
        ("Action: play 0", HanabiMove("play", 0)),
        ("I think so.\n\naction: DISCARD 3.\n", HanabiMove("discard", 3)),
        ("Action: reveal +1 color g", HanabiMove("color", 2, 1)),
        ("Action: reveal 2 rank 5", HanabiMove("rank", 5, 2)),
        ("", Unreadable("it is empty")),
        ("Action: play 0 or 1", None),
        ("Action: reveal +1 R", None),
        ("play 0", None),
    ],
)
def test_the_last_line_names_the_move(reply: str, move: object) -> None:
    line = "its last line is not 'Action:' with 'play', 'discard' or 'reveal' and what belongs to it"
    assert Hanabi().parse(reply) == (Unreadable(line) if move is None else move)


@pytest.mark.parametrize("wording", ["english", "symbols"])
def test_every_legal_move_is_read_as_it_is_written(wording: str) -> None:
    task = Hanabi(players=4, wording=wording)
    moves = legal_moves(task.view(task.generate(3)._replace(information=4), 0))
    assert len(moves) > 20
    assert [task.parse(task.write(move)) for move in moves] == moves


def test_a_prompt_has_all_that_a_player_may_know() -> None:
    env = made("R1 R2 Y1 Y3 R4 Y5", "Action: play 0", "Action: reveal +1 rank 2", "Action: discard 1")
    assert env.observe("player_1")["text"] == (
        "Fireworks: R1 Y0. Score: 1 of 10.\n"
        "Information tokens: 3 of 3. Lives: 1 of 1. Cards to draw: 14.\n"
        "Discarded: R4.\n"
        "Last moves:\n"
        "player_1 revealed rank 2 to player_0: cards 0.\n"
        "player_0 discarded R4.\n"
        "Your hand:\n"
        "0: RY 12345\n"
        "1: RY 12345\n"
        "Hand of player_0 (+1):\n"
        "0: R2 RY 2\n"
        "1: Y5 RY 12345\n"
        "You are to act."
    )


def test_a_prompt_in_symbols_has_the_same_in_few_words() -> None:
    env = made("R1 R2 Y1 Y3 R4 Y5", "play 0", "+1 rank 2", "discard 1", wording="symbols")
    assert env.observe("player_1")["text"] == (
        "F R1 Y0\nI 3 L 1 D 14\nX R4\nH RY 12345 , RY 12345\n+1 R2 RY 2 , Y5 RY 12345\n"
        "< +0 rank 2 +1 0\n< +1 discard R4"
    )


@pytest.mark.parametrize("wording", ["english", "symbols"])
def test_what_a_player_sees_does_not_depend_on_its_own_cards_nor_on_the_deck(wording: str) -> None:
    """The own hand and the deck are dealt again at every moment of a game; the prompt and the bots stay the same."""
    task = Hanabi(players=3, wording=wording)
    rng, state = random.Random(0), task.generate(0)
    while not task.is_terminal(state):
        player = state.player
        hidden = [*(held.card for held in state.hands[player]), *state.deck]
        rng.shuffle(hidden)
        hand = tuple(held._replace(card=card) for held, card in zip(state.hands[player], hidden, strict=False))
        other = state._replace(
            hands=(*state.hands[:player], hand, *state.hands[player + 1 :]), deck=tuple(hidden[len(hand) :])
        )
        assert task.observation(other, player) == task.observation(state, player)
        assert [task.bot(other, bot) for bot in task.bots] == [task.bot(state, bot) for bot in task.bots]
        state = task.apply(state, task.bot(state, "iggi"))


def test_a_card_pays_the_team_its_share_and_a_strike_its_player_alone() -> None:
    """Five colors: a card is 1/25. player_1 plays Y2 and loses one of three lives."""
    env = pettingllms_envs.make("hanabi")
    env.reset(seed=0)
    start = env.workflow.start(deal("R1 R2 R3 R4 R5 Y2 Y1 Y3 Y4 Y5", level=3))
    env.restore(env.snapshot()._replace(play=start))
    env.step("Action: play 0")
    assert env.rewards == pytest.approx({"player_0": 0.04, "player_1": 0.04}, abs=EXACT)
    env.step("Action: play 0")
    assert env.rewards == pytest.approx({"player_0": 0.0, "player_1": -0.04}, abs=EXACT)
    assert env.infos["player_1"]["rewards"] == pytest.approx({"progress": 0.0, "strike": -0.04}, abs=EXACT)


def test_the_last_life_takes_all_progress_back() -> None:
    """Two colors, one life: after R1 and R2, worth 1/10 each, R4 is no R3."""
    env = made("R1 R4 R2 Y1", "Action: play 0", "Action: play 0")
    assert env.rewards["player_0"] == pytest.approx(0.1, abs=EXACT)
    env.step("Action: play 0")
    assert env.rewards == pytest.approx({"player_0": -0.3, "player_1": -0.2}, abs=EXACT)
    outcome = env.infos["player_0"]["outcome"]
    assert (outcome["score"], outcome["fireworks"], outcome["lives"], outcome["success"]) == (0, 2, 0, False)
    assert set(env.terminations.values()) == {True}


def test_the_best_score_is_success() -> None:
    env = pettingllms_envs.make("hanabi", level=1)
    env.reset(seed=0)
    start = env.workflow.start(deal("R1 R3 R2 R4 R5 R1 R1 R2 R3 R4", level=1))
    env.restore(env.snapshot()._replace(play=start))
    for _ in range(5):
        env.step("Action: play 0")
    assert (env.infos["player_1"]["outcome"]["success"], env.infos["player_1"]["outcome"]["score"]) == (True, 5)
    assert env.rewards == pytest.approx({"player_0": 1.2, "player_1": 1.2}, abs=EXACT)


@pytest.mark.parametrize(
    ("reply", "counted", "why"),
    [
        ("Let me think.", "unreadable", "its last line is not 'Action:' with"),
        ("Action: reveal +1 rank 5", "illegal", "it names no card"),
    ],
)
def test_a_reply_that_is_no_move_costs_its_player_and_plays_a_move_that_it_could_have_named(
    reply: str, counted: str, why: str
) -> None:
    env, named = made("R1 R4 R2 Y1", reply), made("R1 R4 R2 Y1", "Action: play 0")
    assert env.snapshot().play.task == named.snapshot().play.task
    assert {agent: named.rewards[agent] - reward for agent, reward in env.rewards.items()} == pytest.approx(
        {"player_0": 0.2, "player_1": 0.0}, abs=EXACT
    )
    assert env.infos["player_0"]["outcome"][counted] == 1
    assert f"Your last reply was no move: {why}" in env.observe("player_0")["text"]
    assert "It was played as 'Action: play 0'." in env.observe("player_0")["text"]
    assert "no move" not in env.observe("player_1")["text"]


def test_splits_have_no_deck_in_common_also_if_colors_are_renamed() -> None:
    """Of one color there are 75,600 decks, of which 900 are drawn here; repeated ones are of one split."""
    task = Hanabi()
    found = {}
    for split in SPLITS:
        states = [task.generate(seed, split, 1) for seed in range(300)]
        found[split] = {
            canonical([*(held.card for hand in state.hands for held in hand), *state.deck]) for state in states
        }
    for one, other in itertools.combinations(SPLITS, 2):
        assert not found[one] & found[other]
    assert canonical(cards("R1 Y1 R2")) == canonical(cards("B1 G1 B2")) != canonical(cards("R1 R1 R2"))


def test_a_level_is_a_setting_and_an_option_of_reset() -> None:
    env = pettingllms_envs.make("hanabi", level=1)
    env.reset(seed=0)
    assert env.observe("player_0")["text"].startswith("Fireworks: R0. Score: 0 of 5.")
    env.reset(seed=0, options={"level": 2})
    assert env.observe("player_0")["text"].startswith("Fireworks: R0 Y0. Score: 0 of 10.")


def test_a_turn_budget_cuts_a_game_short_and_is_shown() -> None:
    env = made("R1 R4 R2 Y1", num_turns=2)
    assert env.observe("player_0")["text"].startswith("Move 1 of 2.\n")
    env.step("Action: play 0")
    env.step("Action: play 0")
    assert (set(env.truncations.values()), set(env.terminations.values())) == ({True}, {False})
    assert env.infos["player_0"]["outcome"]["score"] == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"players": 6}, r"players is 6; expected one of 2, 3, 4, 5"),
        ({"level": 4}, r"level is 4; expected one of 1, 2, 3"),
        ({"wording": "latin"}, r"wording is 'latin'; expected one of 'english', 'symbols'"),
        ({"num_turns": -1}, r"num_turns is -1; expected a whole number of at least 0"),
        ({"workflow": "ad_hoc", "partner": "piet"}, r"partner is 'piet'; expected one of"),
    ],
)
def test_settings_that_it_does_not_have_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pettingllms_envs.make("hanabi", **settings)


CHECKED = (
    {"level": 1, "wording": "symbols"},
    pytest.param({"players": 5}, marks=pytest.mark.slow),
    pytest.param({"players": 3, "level": 1}, marks=pytest.mark.slow),
    pytest.param({"workflow": "ad_hoc", "partner": "flawed", "level": 2}, marks=pytest.mark.slow),
)


@pytest.mark.parametrize("settings", CHECKED)
def test_it_passes_every_check(settings: dict[str, Any]) -> None:
    report = check(partial(pettingllms_envs.make, "hanabi", **settings), seeds=range(2))
    assert report.ok, str(report)
    skipped = {each.name for each in report if each.status == "skipped"}
    of_an_oracle = {"oracle", "no solution shown", "pairs of roles"}
    assert skipped == of_an_oracle | {"parallel", "images", "tools", "channel", "zero sum", "cooperation"}


def test_who_looks_on_reads_whom_a_hint_was_for_and_no_empty_hand() -> None:
    task = Hanabi(players=2)
    state = play(deal("R1 R2 Y1 Y3"), "Action: reveal +1 rank 1")
    shown = task.show(state).splitlines()
    assert "player_0 revealed rank 1 to player_1: cards 0." in shown
    assert "player_1 is to act." in shown
    assert "Your hand:" not in shown
