"""Expert iteration that is killed in its second round ends with the weights and replies of one never killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from test_expert_iteration import replies, team, weights
from transformers import TrainerCallback

from mortal import exit_status, go_on
from pettingllms_trl.checkpoints.atomic import newest


class DiesIn(TrainerCallback):
    """Kills the process after a step of round 2, and before the round is saved."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        if self.trainer.rounds.number == 2:
            os.kill(os.getpid(), signal.SIGKILL)


def live(model: str, path: Path, dies_in: str) -> None:
    """Train from the newest checkpoint, and keep what it ends with. Dies in round 2 if it is to, in `"play"` or in the
    passes."""
    given = {"policies": "lora", "num_rounds": 3, "num_rows": 12, "num_iterations": 2, "save_strategy": "epoch"}
    trainer = team(model, path, **given)
    play = trainer.collector.source.play

    def dying(*args: Any, **kwargs: Any) -> Any:
        episodes = play(*args, **kwargs)
        if dies_in == "play" and (trainer.rounds.number, trainer.rounds.generation) == (2, 1):
            os.kill(os.getpid(), signal.SIGKILL)  # the first generation of the round is kept, this one is not yet
        return episodes

    trainer.collector.source.play = dying
    if dies_in == "a pass":
        trainer.add_callback(DiesIn(trainer))
    go_on(trainer, path)
    state = trainer.rounds.state_dict()
    torch.save((weights(trainer), replies(trainer.rounds.decisions), state, trainer.rollout_names), path / "end.pt")


@pytest.mark.slow
def test_a_run_killed_in_its_second_round_ends_with_the_weights_and_replies_of_one_never_killed(
    model_path: str, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert exit_status(live, model_path, whole, "") == 0
    for dies_in in ("play", "a pass", "play"):
        assert exit_status(live, model_path, killed, dies_in) == -signal.SIGKILL
        last = newest(killed)
        assert last is not None
        assert [path.name for path in killed.glob("checkpoint-*")] == [last.name]  # of round 1
    assert exit_status(live, model_path, killed, "") == 0
    (expected, pool, state, names), (found, own_pool, own_state, own_names) = (
        torch.load(path / "end.pt", weights_only=False) for path in (whole, killed)
    )
    assert all(torch.equal(value, found[name]) for name, value in expected.items())
    assert own_pool == pool
    assert own_state == state
    assert state["number"] == 3
    assert own_names == [name for name in names if not name.startswith("round 1.")]  # round 1 is played once
