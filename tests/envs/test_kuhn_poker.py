"""Kuhn poker: its rules against tables worked by hand, its value and equilibria by exact enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.core import Unreadable
from pettingllms_envs.environments.kuhn_poker.equilibrium import bet_probability
from pettingllms_envs.environments.kuhn_poker.rules import KuhnPoker, KuhnState
from pettingllms_envs.testing import check


Strategy = Callable[[int, str], float]
"""The probability of a bet or call, by card and history."""

EXACT = 1e-12

# Every hand of two players to its end: the chips of who has the higher card, of the first player if it is the lower.
TWO = {
    "pp": ({0: 1, 1: -1}, {0: -1, 1: 1}),
    "pbp": ({0: -1, 1: 1}, {0: -1, 1: 1}),
    "pbb": ({0: 2, 1: -2}, {0: -2, 1: 2}),
    "bp": ({0: 1, 1: -1}, {0: 1, 1: -1}),
    "bb": ({0: 2, 1: -2}, {0: -2, 1: 2}),
}

# Every betting of three players to its end, with who is still in the hand and the chips that each has put in.
THREE = {
    "ppp": ((0, 1, 2), (1, 1, 1)),
    "bpp": ((0,), (2, 1, 1)),
    "bpb": ((0, 2), (2, 1, 2)),
    "bbp": ((0, 1), (2, 2, 1)),
    "bbb": ((0, 1, 2), (2, 2, 2)),
    "pbpp": ((1,), (1, 2, 1)),
    "pbpb": ((0, 1), (2, 2, 1)),
    "pbbp": ((1, 2), (1, 2, 2)),
    "pbbb": ((0, 1, 2), (2, 2, 2)),
    "ppbpp": ((2,), (1, 1, 2)),
    "ppbpb": ((1, 2), (1, 2, 2)),
    "ppbbp": ((0, 2), (2, 1, 2)),
    "ppbbb": ((0, 1, 2), (2, 2, 2)),
}


def deals(players: int) -> list[tuple[int, ...]]:
    return list(itertools.permutations(range(players + 1), players))


def hand(cards: tuple[int, ...], history: str = "") -> KuhnState:
    return KuhnState(cards, (0.5,) * 5, history)


def bettings(task: KuhnPoker, history: str = "") -> Iterator[str]:
    """Every betting, unfinished and finished, that the task's rules lead to."""
    yield history
    state = hand(tuple(range(task.players)), history)
    if not task.is_terminal(state):
        for move in ("bet", "pass"):
            yield from bettings(task, task.apply(state, move).history)


def values(task: KuhnPoker, strategy: Strategy) -> list[float]:
    """Every player's expected return when all have the strategy, over all deals and bettings."""

    def expected(state: KuhnState) -> tuple[float, ...]:
        if task.is_terminal(state):
            return task.returns(state)
        chance = strategy(state.cards[task.current_player(state)], state.history)
        bet, passed = (expected(task.apply(state, move)) for move in ("bet", "pass"))
        return tuple(chance * one + (1 - chance) * other for one, other in zip(bet, passed, strict=True))

    every = [expected(hand(cards)) for cards in deals(task.players)]
    return [sum(each) / len(every) for each in zip(*every, strict=True)]


def best_response(task: KuhnPoker, strategy: Strategy, player: int) -> float:
    """The most that a player can win on average against the strategy of all others, knowing only its own card."""

    def most(reach: Mapping[tuple[int, ...], float], history: str) -> float:
        state = hand(next(iter(reach)), history)
        if task.is_terminal(state):
            return sum(chance * task.returns(hand(cards, history))[player] for cards, chance in reach.items())
        acting = task.current_player(state)
        if acting == player:
            return max(most(reach, history + letter) for letter in "bp")
        bets = {cards: strategy(cards[acting], history) for cards in reach}
        bet = {cards: chance * bets[cards] for cards, chance in reach.items()}
        passed = {cards: chance * (1 - bets[cards]) for cards, chance in reach.items()}
        return most(bet, history + "b") + most(passed, history + "p")

    every = deals(task.players)
    by_card = [[cards for cards in every if cards[player] == card] for card in range(task.players + 1)]
    return sum(most(dict.fromkeys(same, 1 / len(every)), "") for same in by_card)


def gains(task: KuhnPoker, strategy: Strategy) -> list[float]:
    """What each player can gain by deviating alone from the strategy."""
    due = values(task, strategy)
    return [best_response(task, strategy, player) - due[player] for player in range(task.players)]


def test_two_players_have_nine_bettings_and_the_payoffs_of_kuhn() -> None:
    task = KuhnPoker()
    every = list(bettings(task))
    assert sorted(every) == sorted(["", "p", "b", "pb", *TWO])
    for history, (higher, lower) in TWO.items():
        assert dict(enumerate(task.returns(hand((2, 1), history)))) == higher
        assert dict(enumerate(task.returns(hand((0, 1), history)))) == lower


def test_three_players_have_thirteen_ways_to_the_end_and_the_highest_card_that_stayed_wins_the_pot() -> None:
    task = KuhnPoker(players=3)
    every = list(bettings(task))
    assert {each for each in every if task.is_terminal(hand((0, 1, 2), each))} == THREE.keys()
    assert len(every) == 13 + 12
    for cards, (history, (staying, stakes)) in itertools.product(deals(3), THREE.items()):
        won = task.returns(hand(cards, history))
        winner = max(staying, key=lambda player: cards[player])
        assert won == tuple(sum(stakes) * (player == winner) - stakes[player] for player in range(3))
        assert sum(won) == 0


@pytest.mark.parametrize(("players", "states", "info_states"), [(2, 54, 12), (3, 600, 48)])
def test_the_game_is_as_large_as_published(players: int, states: int, info_states: int) -> None:
    """54 states without chance for two players: OpenSpiel's kuhn_poker_test.cc. 48 information sets for three: AAMAS
    2010. 24 deals with 25 bettings make 600."""
    task = KuhnPoker(players=players)
    every = [hand(cards, history) for cards in deals(players) for history in bettings(task)]
    known = {
        (state.history, state.cards[task.current_player(state)]) for state in every if not task.is_terminal(state)
    }
    assert (len(every), len(known)) == (states, info_states)


@pytest.mark.parametrize(
    ("players", "chance", "expected"), [(2, 0.5, 0.916666666666667), (2, 0.0, 2.0), (3, 0.5, 2.0625)]
)
def test_uniform_play_and_passing_are_as_exploitable_as_in_open_spiel(
    players: int, chance: float, expected: float
) -> None:
    """The sums of all players' gains in OpenSpiel's tabular_best_response_mdp_test.cc."""
    assert sum(gains(KuhnPoker(players=players), lambda card, history: chance)) == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize(("players", "expected"), [(2, (-1 / 18, 1 / 18)), (3, (-1 / 32, -1 / 48, 5 / 96))])
def test_the_oracle_s_strategy_has_the_value_of_the_game_and_nobody_gains_by_deviating(
    players: int, expected: tuple[float, ...]
) -> None:
    task, strategy = KuhnPoker(players=players), partial(bet_probability, players)
    assert values(task, strategy) == pytest.approx(expected, abs=EXACT)
    assert gains(task, strategy) == pytest.approx([0.0] * players, abs=EXACT)


def test_an_oracle_that_bluffs_too_often_would_be_exploited() -> None:
    """Betting every J, the second player's K and Q call: the enumeration notices."""

    def bluffing(card: int, history: str) -> float:
        return 1.0 if (card, history) == (0, "") else bet_probability(2, card, history)

    assert max(gains(KuhnPoker(), bluffing)) > 0.05


@pytest.mark.parametrize("players", [2, 3])
def test_over_the_seeds_the_oracle_bets_with_its_probabilities_and_every_deal_is_equally_likely(players: int) -> None:
    """4 standard errors of 3,000 hands."""
    task = KuhnPoker(players=players)
    states = [task.generate(seed) for seed in range(3000)]
    num_deals = len(deals(players))
    for cards in deals(players):
        share = sum(state.cards == cards for state in states) / len(states)
        assert share == pytest.approx(1 / num_deals, abs=4 * (1 / num_deals / 3000) ** 0.5)
    for history in bettings(task):
        if task.is_terminal(hand((0, 1, 2), history)):
            continue
        for card in range(players + 1):
            own = [state for state in states if state.cards[len(history) % players] == card]
            bets = sum(task.oracle(state._replace(history=history)) == "bet" for state in own) / len(own)
            assert bets == pytest.approx(bet_probability(players, card, history), abs=4 * (0.25 / len(own)) ** 0.5)


@pytest.mark.parametrize(
    ("reply", "move"),
    [
        ("Action: bet", "bet"),
        ("I have the K.\n\nAction: bet\n", "bet"),
        ("action:CALL.", "bet"),
        ("Action: pass", "pass"),
        ("Action: check", "pass"),
        ("ACTION:  fold", "pass"),
        ("", Unreadable("it is empty")),
        ("Action: raise", Unreadable("its last line is not 'Action: bet' or 'Action: pass'")),
        ("Action: bet or pass", Unreadable("its last line is not 'Action: bet' or 'Action: pass'")),
        ("Action: bet\nI think.", Unreadable("its last line is not 'Action: bet' or 'Action: pass'")),
    ],
)
def test_the_last_line_names_the_action(reply: str, move: object) -> None:
    assert KuhnPoker().parse(reply) == move


def played(players: int, deal: str, *replies: str) -> Any:
    env = pettingllms_envs.make("kuhn_poker", players=players)
    env.reset(seed=0, options={"deal": deal})
    for reply in replies:
        env.step(reply)
    return env


def test_a_hand_is_paid_to_its_players_alone_when_it_ends() -> None:
    """A bets, J folds, K calls: A wins the two chips of the caller and the ante of the other."""
    env = played(3, "AJK", "Action: bet", "Action: fold")
    assert (env.agent_selection, env.rewards) == ("player_2", dict.fromkeys(env.possible_agents, 0.0))
    env.step("Action: call")
    assert env.rewards == {"player_0": 3.0, "player_1": -1.0, "player_2": -2.0}
    assert env.snapshot().parts == {
        "player_0": {"payoff": 3.0},
        "player_1": {"payoff": -1.0},
        "player_2": {"payoff": -2.0},
    }
    assert env.infos["player_1"] == {
        "rewards": {"payoff": -1.0},
        "team_rewards": [],
        "outcome": {"pot": 5, "showdown": True, "unreadable": 0},
        "turn": 1,
    }
    assert (set(env.terminations.values()), env.standing()) == ({True}, "settled")


def test_an_unreadable_reply_is_a_pass_that_costs_nothing_besides_and_its_player_alone_is_told() -> None:
    env = played(2, "QK", "I bet everything!", "Action: bet")
    assert env.agent_selection == "player_0"
    note = "Your last reply was unreadable: its last line is not 'Action: bet' or 'Action: pass'. It was played as"
    assert f"{note} 'Action: pass'." in env.observe("player_0")["text"]
    assert "unreadable" not in env.observe("player_1")["text"]
    env.step("")
    assert env.rewards == {"player_0": -1.0, "player_1": 1.0}
    assert env.infos["player_0"]["outcome"] == {"pot": 3, "showdown": False, "unreadable": 2}


@pytest.mark.parametrize("players", [2, 3])
def test_a_player_sees_its_own_card_and_nothing_that_depends_on_those_of_others(players: int) -> None:
    env = pettingllms_envs.make("kuhn_poker", players=players)
    seen: dict[tuple[str, str, str], set[str]] = {}
    for cards, history in itertools.product(deals(players), bettings(KuhnPoker(players=players))):
        deal = "".join("JQKA"[card] for card in cards)
        env.reset(seed=sum(cards), options={"deal": deal})
        for letter in history:
            env.step("Action: bet" if letter == "b" else "Action: pass")
        for agent, card in zip(env.possible_agents, deal, strict=True):
            seen.setdefault((agent, card, history), set()).add(env.observe(agent)["text"])
    assert {len(texts) for texts in seen.values()} == {1}


def test_a_prompt_has_the_card_the_betting_and_the_pot() -> None:
    env = played(3, "QAK", "Action: check", "Action: bet")
    assert env.observe("player_2")["text"] == (
        "Your card: K\nBetting so far: player_0 checks, player_1 bets.\nPot: 4 chips.\nplayer_2 is to act."
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"players": 4}, r"players is 4; expected one of 2, 3"),
        ({"num_turns": 2}, r"num_turns is 2; expected 0 or at least 3, the most moves of the game"),
        ({"players": 3, "num_turns": 4}, r"num_turns is 4; expected 0 or at least 5"),
        ({"max_cycles": 5}, r"max_cycles is 5, but in the workflow 'match' agents do not act once in every turn"),
    ],
)
def test_settings_that_it_does_not_have_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pettingllms_envs.make("kuhn_poker", **settings)


@pytest.mark.parametrize("deal", ["JJ", "J", "JA", "JQK", ""])
def test_a_deal_has_a_different_card_of_the_deck_for_each_player(deal: str) -> None:
    with pytest.raises(ValueError, match=rf"the deal is '{deal}'; expected 2 different cards of JQK"):
        pettingllms_envs.make("kuhn_poker").reset(options={"deal": deal})


@pytest.mark.parametrize("players", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_it_passes_every_check(players: int) -> None:
    make = partial(pettingllms_envs.make, "kuhn_poker", players=players)
    report = check(make, seeds=range(2))
    assert report.ok, str(report)
    skipped = {each.name for each in report if each.status == "skipped"}
    skips = {"parallel", "no solution shown", "potential", "images", "tools", "channel", "questions", "cooperation"}
    assert skipped == skips
