"""The training on pictures: which ones the blind are shown, what is imitated, what the solver plays."""

from __future__ import annotations

from collections import Counter

from image_training import GAME, Options, demonstrations, env_of, other_picture, solves

from pettingllms_envs.views import board_picture


def test_the_blind_are_shown_a_picture_of_another_instance_always_the_same_for_a_state() -> None:
    states = [GAME.generate(seed) for seed in range(50)]
    shown = [other_picture(state) for state in states]
    assert shown == [other_picture(state) for state in states]
    assert all(one.digest != board_picture(GAME, state).digest for one, state in zip(shown, states, strict=True))
    assert len({each.digest for each in shown}) > 40


def test_seeing_and_blind_differ_in_the_picture_alone() -> None:
    for task in ("planner", "describer"):
        seen = []
        for is_blind in (False, True):
            env = env_of(task, is_blind)
            env.reset(seed=1)
            seen.append(env.observe(env.possible_agents[0]))
        (own, words), (other, same) = (each["parts"] for each in seen)
        assert (seen[0]["system"], words) == (seen[1]["system"], same)
        assert own.digest != other.digest


def test_demonstrations_are_careless_as_often_as_they_are_said_to_be() -> None:
    boards = [
        [reply for _, reply in demonstrations("describer", Options(imitated=400, careless=careless), 0, False)]
        for careless in (0.0, 1.0)
    ]
    assert all(Counter(reply.count("\n") for reply in replies) == {3: 400} for replies in boards)
    same = sum(one == other for one, other in zip(*boards, strict=True))
    assert same < 20


def test_the_solver_plays_the_board_that_it_reads() -> None:
    prompt = "Turn 1 of 1.\nThe describer wrote:\n> @ . . .\n> # # . .\n> . . . .\n> . . G ."
    assert solves([{"role": "user", "content": prompt}]) == "Moves: R R D D D"
    assert solves([{"role": "user", "content": "Turn 1 of 1.\nThe describer wrote nothing."}]) == "Moves: U"
