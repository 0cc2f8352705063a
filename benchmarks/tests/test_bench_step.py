"""The clock of `benchmarks/bench_step.py`, by a time of its own: whose seconds are whose."""

import pytest


bench_step = pytest.importorskip("bench_step")


class Model:
    """Takes 1 s for a pass; generates by three passes and 2 s of its own."""

    def __init__(self) -> None:
        self.time = 0.0

    def forward(self) -> None:
        self.time += 1.0

    def generate(self) -> None:
        for _ in range(3):
            self.forward()
        self.time += 2.0

    def backward(self) -> None:
        """Recomputes a pass, as checkpointing does, before 4 s of its own."""
        self.forward()
        self.time += 4.0


def test_nested_calls_are_counted_once_and_passes_inside_a_generation_are_generation() -> None:
    model = Model()
    clock = bench_step.Clock(lambda: model.time)
    for name, what in (("forward", "forward"), ("generate", "generation"), ("backward", "backward")):
        clock.wrap(model, name, what)
    model.generate()
    model.forward()
    model.backward()
    # 3 x 1 + 2; 1 + the recomputed 1; 4
    assert dict(clock.seconds) == {"generation": 5.0, "forward": 2.0, "backward": 4.0}
    assert model.time == 11.0


def test_outside_is_what_no_part_accounts_for() -> None:
    step = bench_step.Step(10.0, {"generation": 5.0, "forward": 2.0, "backward": 1.0, "environment": 0.5})
    assert step.outside == 1.5


def test_a_step_of_groups_without_an_advantage_is_not_measured() -> None:
    steps = bench_step.Steps(bench_step.Clock(lambda: 0.0))
    steps.on_train_begin()
    steps.on_log(None, None, None, {"frac_reward_zero_std": 0.04})
    with pytest.raises(ValueError, match="100% of the groups have no advantage"):
        steps.on_log(None, None, None, {"frac_reward_zero_std": 1.0})
    assert len(steps.steps) == 1
