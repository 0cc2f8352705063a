"""`max_generated_tokens`: what counts as generated, where training ends, and that a resumed run ends there, too."""

from pathlib import Path

import pytest

from mortal import Mortal, equal, mortal
from moved_weights import weights
from short_runs import settings


def generated(trainer: Mortal) -> list[int]:
    """Tokens of each rollout, without continuations, which its record does not hold."""
    return [
        sum(len(c.completion.ids) for e in episodes for d in e.decisions for c in d.candidates)
        for episodes in trainer.rollouts
    ]


@pytest.mark.slow
def test_training_ends_with_the_step_that_generates_the_last_token_and_resumes_to_the_same_end(
    model_path: str, tmp_path: Path
) -> None:
    free = mortal(model_path, tmp_path / "free", steps=3)
    free.train()
    per_step = generated(free)
    limit = per_step[0] + 1  # one token more than the first step has, so the second spends it
    whole = mortal(model_path, tmp_path / "whole", steps=9, lr_scheduler_type="constant", max_generated_tokens=limit)
    whole.train()
    assert whole.state.global_step == 2
    assert whole.token_budget.num_generated == sum(generated(whole)) == sum(per_step[:2])
    logged = [log["rollout/total_sampled_tokens"] for log in whole.state.log_history if "rollout/decisions" in log]
    assert logged == [per_step[0], sum(per_step[:2])]
    for step, num_more in ((1, 1), (2, 0)):  # the second is over, and generates nothing more
        resumed = mortal(
            model_path, tmp_path / f"from {step}", steps=9, lr_scheduler_type="constant", max_generated_tokens=limit
        )
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{step}"))
        assert (resumed.state.global_step, len(resumed.rollouts)) == (2, num_more)
        assert resumed.token_budget.num_generated == sum(per_step[:2])
        assert equal(weights(whole), weights(resumed))


def test_continuations_count_and_evaluations_do_not(model_path: str, tmp_path: Path) -> None:
    trainer = mortal(model_path, tmp_path, steps=1, credit="counterfactual", num_continuations=1)
    trainer.train()
    total = trainer.token_budget.num_generated
    assert total > sum(generated(trainer))
    trainer.play([{"seed": 50}])
    assert trainer.token_budget.num_generated == total


def test_a_generation_of_several_steps_is_trained_on_before_training_ends(model_path: str, tmp_path: Path) -> None:
    trainer = mortal(
        model_path,
        tmp_path,
        steps=9,
        max_generated_tokens=1,
        steps_per_generation=2,
        gradient_accumulation_steps=1,
        save_strategy="no",
    )
    trainer.train()
    assert (trainer.state.global_step, len(trainer.rollouts)) == (2, 1)
    with pytest.warns(UserWarning, match="0 steps: an earlier one has used max_generated_tokens, .* another trainer"):
        trainer.train()
    assert (trainer.state.global_step, len(trainer.rollouts)) == (0, 1)


@pytest.mark.parametrize("given", [0, -5])
def test_a_limit_below_one_token_raises(given: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"max_generated_tokens={given}, expected a positive number, or None for no"):
        settings(tmp_path, max_generated_tokens=given)
