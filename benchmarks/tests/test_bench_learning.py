"""benchmarks/bench_learning.py: intervals by hand, what is counted as spent, and a run that was killed goes on."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_learning import NAMES, UNTRAINED, Protocol, Task, best_rates, do, main, report, reported, tuning
from datasets import Dataset
from learning_runs import METHODS, Budget, CountingTrainer, Spent, columns, is_kept
from paired import Comparison, bootstrap, compare, sign_flips, student, student_quantile
from team import make_env
from tiny import make_tokenizer
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM, TrainerControl

from pettingllms_trl import Completion, MultiAgentGRPOConfig
from pettingllms_trl.records import Sampled
from pettingllms_trl.rollout.play import RolloutOptions


# ---- Intervals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("probability", "freedom", "quantile"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.302653), (0.975, 4, 2.776445), (0.995, 4, 4.604095), (0.95, 10, 1.812461)],
)
def test_students_quantiles_are_those_of_the_tables(probability: float, freedom: int, quantile: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(quantile, abs=2e-5)


def test_students_interval_of_three_seeds() -> None:
    # Mean 2, deviation 1, two degrees of freedom: 2 +- 4.302653 / sqrt(3).
    half = 4.302653 / math.sqrt(3)
    assert student((1.0, 2.0, 3.0), 0.95) == pytest.approx((2 - half, 2 + half), abs=1e-5)


def test_the_bootstrap_draws_seeds_anew() -> None:
    # Two seeds whose means are 0 and 1: 0 with probability 1/4, 0.5 with 1/2, 1 with 1/4, whatever the instances.
    differences = np.array([[0.0, 0.0], [1.0, 1.0]])
    assert bootstrap(differences, 0.4) == pytest.approx((0.5, 0.5))  # percentiles 30 and 70
    assert bootstrap(differences, 0.6) == pytest.approx((0.0, 1.0))  # 20 and 80


def test_the_bootstrap_draws_the_same_instances_for_all_seeds() -> None:
    # The mean is -1, 0 or 1 with probabilities 1/4, 1/2, 1/4. Were instances drawn for each seed on its own, -1 and 1
    # would have 1/4 where one seed is drawn twice and 1/16 where both are, 0.156 in all, less than percentile 20.
    differences = np.array([[1.0, -1.0], [1.0, -1.0]])
    assert bootstrap(differences, 0.6) == pytest.approx((-1.0, 1.0))
    assert bootstrap(differences, 0.4) == pytest.approx((0.0, 0.0))


@pytest.mark.parametrize(
    ("values", "p"),
    [
        ((1.0, 2.0, 3.0), 2 / 8),
        ((0.1, 0.1, 0.1, 0.1, 0.1), 2 / 32),  # the least that five seeds can give
        ((1.0, -1.0), 1.0),
        # The sum is 9 of 11 at most: as far are those that flip {}, the one 1 or the other, and their opposites.
        ((4.0, 3.0, 2.0, 1.0, -1.0), 6 / 32),
    ],
)
def test_sign_flips_count_the_sums_as_far_from_nothing(values: tuple[float, ...], p: float) -> None:
    assert sign_flips(values) == p


def test_a_comparison_is_paired_and_corrected_for_how_many_there_are() -> None:
    # Seeds differ by 0.5, 0.25, 0.75 (mean 0.5, deviation 0.25); t(0.995, 2) = 0.99 / sqrt(2 * 0.995 * 0.005).
    second = np.zeros((3, 4))
    first = np.array([[1.0, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]])
    compared = compare(first, second, num_comparisons=5)
    half = 0.99 / math.sqrt(2 * 0.995 * 0.005) * 0.25 / math.sqrt(3)
    assert compared.confidence == pytest.approx(0.99)
    assert compared.by_seed == (0.5, 0.25, 0.75)
    assert compared.mean == 0.5
    assert compared.student == pytest.approx((0.5 - half, 0.5 + half), abs=1e-5)
    assert compared.p == 0.25
    assert compared.verdict == "cannot tell"
    other = compare(second, first, num_comparisons=5)
    assert other.by_seed == (-0.5, -0.25, -0.75)
    assert other.student == pytest.approx((-0.5 - half, -0.5 + half), abs=1e-5)


@pytest.mark.parametrize(
    ("over_seeds", "over_both", "verdict"),
    [
        ((0.1, 0.3), (0.05, 0.4), "better"),
        ((-0.1, 0.3), (0.05, 0.4), "cannot tell"),
        ((0.1, 0.3), (-0.05, 0.4), "cannot tell"),
        ((-0.3, -0.1), (-0.4, -0.05), "worse"),
        ((-0.3, 0.1), (-0.4, -0.05), "cannot tell"),
    ],
)
def test_a_verdict_is_given_only_where_both_intervals_agree(over_seeds: Any, over_both: Any, verdict: str) -> None:
    compared = Comparison(mean=0, by_seed=(), student=over_seeds, bootstrap=over_both, p=1, confidence=0.95)
    assert compared.verdict == verdict


@pytest.mark.parametrize(("first", "second"), [((2, 4), (2, 3)), ((1, 4), (1, 4))])
def test_unequal_shapes_and_a_single_seed_are_refused(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="two seeds or more"):
        compare(np.zeros(first), np.zeros(second), num_comparisons=1)


# ---- What is spent --------------------------------------------------------------------------------------------------


def test_sampled_ids_are_counted_and_a_prompt_once() -> None:
    spent = Spent()
    three, none = Completion(ids=(7, 8, 1), text="a"), Completion(ids=(), text="")
    spent.add([Sampled((5, 5), (three, three)), Sampled((5,), (three, none))])
    assert (spent.tokens, spent.sequences, spent.prompt_tokens) == (9, 4, 3)


def test_all_that_is_sampled_in_training_counts_and_nothing_of_an_evaluation(tmp_path: Path) -> None:
    # The replies of a random model are unreadable, so an episode has its 4 turns. With 2 candidates, each continued
    # once: 2 + 2 * 3 completions at the first decision, then 2 + 2 * 2, 2 + 2 * 1, 2: 20, after 4 + 12 prompts.
    tokenizer = make_tokenizer(["Moves: U D"])
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=16,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    trainer = CountingTrainer(
        str(tmp_path),
        make_env("single"),
        MultiAgentGRPOConfig(
            str(tmp_path / "out"),
            num_generations=2,
            max_completion_length=3,
            use_cpu=True,
            bf16=False,
            report_to="none",
        ),
        Dataset.from_dict({"seed": range(4)}),
        processing_class=AutoTokenizer.from_pretrained(tmp_path),
    )
    trainer.play([{"seed": 0}])
    assert trainer.spent == Spent()
    trainer.model.train()
    options = RolloutOptions(sampling="tree", num_candidates=2, num_continuations=1)
    (episode,) = trainer.collector.play_rows([{"seed": 0}], options, name="").episodes
    assert len(episode.decisions) == 4
    spent = trainer.spent
    assert (spent.sequences, spent.prompt_tokens > 16 * 50) == (20, True)
    kept = sum(len(c.completion.ids) for d in episode.decisions for c in d.candidates)
    assert kept < spent.tokens <= 20 * 3


def test_a_training_ends_with_the_step_that_spends_its_last_token() -> None:
    budget = Budget(10, Spent(tokens=9))
    control = TrainerControl()
    budget.on_step_end(None, None, control)
    assert not control.should_training_stop
    budget.spent.tokens = 10
    budget.on_step_end(None, None, control)
    assert control.should_training_stop


def test_a_history_has_what_explains_a_result() -> None:
    budget = Budget(10, Spent(tokens=9))
    budget.on_log(None, None, None, {"train_runtime": 3.0})  # the last log, of no step
    logs = {"rollout/decisions": 2.0, "agent/planner_0/reward": 0.12345, "agent/planner_0/rewards/steps": 1.0, "lr": 1}
    budget.on_log(None, None, None, logs)
    assert budget.history == [{"tokens": 9, "rollout/decisions": 2.0, "agent/planner_0/reward": 0.1235}]
    assert columns([{"tokens": 9, "reward": 1.0}, {"tokens": 12}]) == {"tokens": [9, 12], "reward": [1.0, None]}
    assert is_kept("policy/drafter/entropy")
    assert is_kept("agent/drafter_0/frac_reward_zero_std")
    assert not is_kept("policy/drafter/clip_ratio/low_mean")


# ---- What is run, and when ------------------------------------------------------------------------------------------


SMALL = Protocol(learning_rates=(0.1, 0.2), tuning_seed=9, seeds=(1, 2), validation=range(2), test=range(4, 8))


def result(success: str) -> dict[str, Any]:
    history = {
        "trained_sequences": [30.0] * 6,
        "zero_advantage": [0.25] * 3 + [0.5] * 3,
        "policy/a/entropy": [1.0] * 3 + [0.0] * 3,
        "policy/b/entropy": [0.5] * 6,
    }
    spent = {"tokens": 1000, "prompt_tokens": 20_000, "steps": 6, "seconds": 1.0}
    return {"success": success, "history": history, **spent}


def test_every_method_has_a_name_and_the_same_grid() -> None:
    assert set(METHODS) == set(NAMES)
    assert {name for name in METHODS if METHODS[name].training is None} == set(UNTRAINED)
    tasks = tuning(SMALL)
    assert len(tasks) == 5 * 2
    assert {(task.split, task.seed) for task in tasks} == {("validation", 9)}
    assert {task.learning_rate for task in tasks if task.method == "single"} == {0.1, 0.2}


def test_no_instance_or_seed_that_is_reported_was_looked_at_before() -> None:
    protocol = Protocol()
    assert protocol.tuning_seed not in protocol.seeds
    assert min(protocol.test) >= 500  # the quickstart reports the first 500
    assert len(protocol.seeds) >= 5
    assert len(protocol.test) >= 500


def test_the_best_rate_goes_on_and_of_equals_the_lower(tmp_path: Path) -> None:
    scores = {"at_grpo": ("10", "11"), "grpo": ("10", "01")}
    for task in tuning(SMALL):
        low, high = scores.get(task.method, ("11", "00"))
        path = task.path(tmp_path)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(result(low if task.learning_rate == 0.1 else high)))
    rates = best_rates(tmp_path, SMALL)
    assert rates == {"at_grpo": 0.2, "grpo": 0.1, "single": 0.1, "loo": 0.1, "counterfactual": 0.1}
    planned = reported(SMALL, rates)
    assert [task.seed for task in planned] == [1] * 7 + [2] * 7
    assert planned[0] == Task("test", 1, "at_grpo", 0.2)


def test_a_run_that_was_killed_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    tasks = tuning(SMALL)[:4]
    done: list[Task] = []

    def work(task: Task) -> dict[str, Any]:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(task)
        return result("10")

    with pytest.raises(KeyboardInterrupt):
        do(tasks, tmp_path, work)
    tasks[2].path(tmp_path).with_suffix(".part").write_text('{"success": "1')  # killed while it was writing
    again: list[Task] = []
    do(tasks, tmp_path, lambda task: again.append(task) or result("11"))
    assert done == tasks[:2]
    assert again == tasks[2:]
    assert not list(tmp_path.rglob("*.part"))
    assert [json.loads(task.path(tmp_path).read_text())["success"] for task in tasks] == ["10", "10", "11", "11"]


def test_the_report_compares_seeds_that_are_whole_and_says_which(tmp_path: Path) -> None:
    def work(task: Task) -> dict[str, Any]:
        return result("1111" if task.method == "at_grpo" else "0000")

    do(tuning(SMALL), tmp_path, lambda task: result("10"))
    planned = reported(SMALL, best_rates(tmp_path, SMALL))
    do(planned[:-1], tmp_path, work)
    assert [task.method for task in planned[-1:]] == ["untrained_single"]
    assert "missing: [2]" in report(tmp_path, SMALL)
    do(planned, tmp_path, work)
    said = report(tmp_path, SMALL)
    assert "seeds [1, 2]" in said
    lines = said.splitlines()
    assert sum(line.startswith("team, AT-GRPO ") and "100.0%" in line for line in lines) == 1
    assert sum(line.endswith("better") and "+100.0" in line and "0.5000" in line for line in lines) == 5
    # 6 steps of 30 sequences; a quarter and a half of them without an advantage; (1 + 0.5) / 2 to (0 + 0.5) / 2 nats.
    assert sum(line.split()[-6:] == ["37.5%", "0.75", "to", "0.25", "20,000", "1"] for line in lines) == 5
    assert sum(" 180 " in line for line in lines) == 5


def test_methods_of_which_nothing_is_done_are_left_out_of_the_report(tmp_path: Path) -> None:
    do(tuning(SMALL), tmp_path, lambda task: result("10"))
    rates = dict.fromkeys(NAMES, 0.2)
    some = [task for task in reported(SMALL, rates) if task.method in ("at_grpo", "grpo")]
    do(some, tmp_path, lambda task: result("1111" if task.method == "grpo" else "0000"))
    said = report(tmp_path, SMALL, 0.2)
    assert "seeds [1, 2], learning rate 0.2" in said
    assert "all 1 intervals" in said
    lines = said.splitlines()
    assert [line.split()[-1] for line in lines if "-100.0" in line] == ["worse"]
    assert sum(line.startswith("team, leave-one-out") for line in lines) == 1  # in the grid alone
    assert "too few seeds" in report(tmp_path, SMALL)  # with the rates settled on nothing is done


def test_a_report_without_results_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--report", "--results", str(tmp_path)])
    assert "Leave --report out to run it" in capsys.readouterr().err
