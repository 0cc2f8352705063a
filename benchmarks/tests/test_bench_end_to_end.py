"""The race of benchmarks/bench_end_to_end.py: both trainers work on the same, or it says that they do not."""

from pathlib import Path

import pytest


bench = pytest.importorskip("bench_end_to_end")


def trained(*losses: float, tokens: float = 100.0) -> object:
    return bench.Trained(4.0, tokens, losses)


def test_a_rate_is_tokens_a_second() -> None:
    assert trained(0.1).rate == 25.0


@pytest.mark.parametrize(
    ("ours", "same"),
    [
        (trained(0.5, 0.25), True),
        (trained(0.5, 0.2501), True),  # rounding
        (trained(0.5, 0.26), False),
        (trained(0.5, 0.25, tokens=101.0), False),
    ],
)
def test_another_loss_or_number_of_tokens_is_nothing_to_compare(ours: object, same: bool) -> None:
    found = {bench.TRL: [trained(0.5, 0.25)], bench.OURS: [ours]}
    if same:
        bench.check(found)
    else:
        with pytest.raises(RuntimeError, match="expected the same, or there is nothing to compare"):
            bench.check(found)


def test_trl_is_paid_by_the_environment_for_what_it_says() -> None:
    env = bench.make_env()
    env.reset(seed=3)
    legal = next(letter for letter in "UDLR" if _reward(f"Moves: {letter}") > _reward("no move"))
    replies = [[{"content": "no move"}], [{"content": f"Moves: {legal}"}]]
    assert bench.Reward()(replies, seed=[3, 3]) == [_reward("no move"), _reward(f"Moves: {legal}")]


def _reward(reply: str) -> float:
    env = bench.make_env()
    env.reset(seed=3)
    agent = env.agent_selection
    env.step(reply)
    return float(env.rewards[agent])


@pytest.mark.slow
def test_both_trainers_come_to_the_same_losses_and_ours_is_faster(tmp_path: Path) -> None:
    texts = [message["content"] for prompt in bench.prompts(16) for message in prompt]
    bench.make_base(tmp_path, texts, "0.4M")
    found = bench.race(tmp_path, rounds=1, num_steps=2, length=16)  # checks that they are the same
    assert found[bench.OURS][0].rate > found[bench.TRL][0].rate
