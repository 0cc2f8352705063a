"""A TRL script's reward functions go on working, added to the environment's rewards before the best is chosen."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
import torch
from datasets import Dataset
from transformers import AutoConfig, AutoTokenizer, Qwen3ForSequenceClassification

from pettingllms_trl import Completion, Decision, MultiAgentGRPOTrainer
from pettingllms_trl.credit.reward_functions import RewardFunctions, RewardScores, warnings_of_constant_rewards
from pettingllms_trl.records import PendingDecision, Prompt
from short_runs import KeepsDecisions, settings
from third_party import OneShot, Relay, letters


def make(model_path: str, tmp_path: Path, functions: Any, **options: Any) -> MultiAgentGRPOTrainer:
    own = {name: options.pop(name) for name in ("reward_processing_classes", "credit") if name in options}
    args = settings(tmp_path, **{"per_device_train_batch_size": 4, "max_completion_length": 6, **options})
    return MultiAgentGRPOTrainer(
        model_path, Relay, args, Dataset.from_dict({"seed": [1, 2], "level": [5, 6]}), reward_funcs=functions, **own
    )


def trained_on(model_path: str, tmp_path: Path, functions: Any, **options: Any) -> list[Decision]:
    """The decisions of a generation: both agents' two turns in a row's instance."""
    credit = KeepsDecisions()
    make(model_path, tmp_path, functions, credit=credit, **options).train()
    assert len(credit.decisions) == 4
    return credit.decisions


@pytest.mark.filterwarnings("ignore:the reward function")
def test_it_is_called_for_each_decision_with_trls_arguments_the_row_and_who_acts(
    model_path: str, tmp_path: Path
) -> None:
    calls: list[dict[str, Any]] = []

    def watch(**arguments: Any) -> list[float]:
        calls.append(arguments)
        return [0.0] * len(arguments["completions"])

    make(model_path, tmp_path, watch).train()
    assert [(call["agent"][0], call["turn"][0]) for call in calls] == [
        ("opener_0", 0),
        ("closer_0", 0),
        ("opener_0", 1),
        ("closer_0", 1),
    ]
    for call in calls:
        assert {len(call[name]) for name in ("prompts", "completions", "completion_ids", "agent", "level")} == {4}
        assert call["level"][0] in (5, 6)
        assert call["trainer_state"].max_steps == 1
        assert call["completions"][0][0]["role"] == "assistant"


def test_it_decides_with_its_weight_which_candidate_goes_on(model_path: str, tmp_path: Path) -> None:
    def against(completions: list[Any], **_: Any) -> list[float]:
        return [letters(completion[0]["content"]) for completion in completions]

    decisions = trained_on(model_path, tmp_path, against, reward_weights=[-3.0])
    for decision in decisions:
        texts = [letters(candidate.completion.text) for candidate in decision.candidates]
        # the environment pays x, the function -3 x: together -2 x, so the least is the best
        assert [candidate.reward for candidate in decision.candidates] == pytest.approx([-2 * x for x in texts])
        assert texts[decision.chosen] == min(texts)
        assert decision.played.parts == {"against": pytest.approx(-3 * min(texts))}
    opener = [decision for decision in decisions if decision.agent == "opener_0"]
    assert opener[0].episode_return == pytest.approx(sum(decision.played.reward for decision in opener))


@pytest.mark.filterwarnings("ignore:the reward function")
def test_none_means_that_it_does_not_apply(model_path: str, tmp_path: Path) -> None:
    def silent(completions: list[Any], **_: Any) -> list[None]:
        return [None] * len(completions)

    for candidate in trained_on(model_path, tmp_path, [silent])[0].candidates:
        assert candidate.parts == {}
        assert candidate.reward == letters(candidate.completion.text)


def test_a_wrong_number_of_rewards_says_which_function_and_how_many(model_path: str, tmp_path: Path) -> None:
    def short(**_: Any) -> list[float]:
        return [1.0]

    trainer = make(model_path, tmp_path, short)
    with pytest.raises(ValueError, match=r"'short'.*\[1.0\].*4 candidates of 'opener_0'"):
        trainer.train()


class Named:
    """A function in a script may be an object."""

    def __call__(self, completions: list[Any], **_: Any) -> list[float]:
        return [1.0] * len(completions)


def one(completions: list[Any], **_: Any) -> list[float]:
    return [1.0] * len(completions)


@pytest.mark.filterwarnings("ignore:the reward function")
def test_functions_of_one_name_are_kept_apart_and_a_name_may_be_missing(model_path: str, tmp_path: Path) -> None:
    functions = [one, partial(one), Named()]
    decisions = trained_on(model_path, tmp_path, functions, reward_weights=[1.0, 10.0, 100.0])
    assert decisions[0].played.parts == {"one": 1.0, "one_2": 10.0, "Named": 100.0}


def test_a_number_is_never_the_name_of_another_function_or_part() -> None:
    def one_2(completions: list[Any], **_: Any) -> list[float]:
        return [1.0] * len(completions)

    functions = [one, one, one_2, one]
    assert RewardFunctions(functions, None).names == ["one", "one_2", "one_2_2", "one_3"]
    assert RewardFunctions(functions, None, parts=["one", "one_3"]).names == ["one_2", "one_4", "one_2_2", "one_5"]


@pytest.mark.parametrize("column", ["prompts", "completions", "completion_ids", "trainer_state", "log_metric"])
def test_a_row_never_replaces_what_a_function_judges(column: str) -> None:
    row = {"seed": 1, column: "reference answer"}
    completions = [Completion(ids=(1,), text=text) for text in ("a", "abc")]
    decision = PendingDecision(row, "A_0", 0, Prompt([{"role": "user", "content": "x"}]), completions, is_text=True)
    with pytest.raises(ValueError, match=rf"rows have the columns \['{column}'\]; expected other names"):
        RewardFunctions(one, None).score(decision, trainer_state=None, log_metric=lambda *_: None)


@pytest.mark.filterwarnings("ignore:the reward function")
def test_each_functions_rewards_are_logged_unweighted_as_in_trl(model_path: str, tmp_path: Path) -> None:
    def halves(completions: list[Any], turn: list[int], **_: Any) -> list[float | None]:
        return [1.0, 0.0, 1.0, 0.0] if turn[0] == 0 else [None] * 4

    trainer = make(model_path, tmp_path, [one, halves], reward_weights=[0.0, 3.0], logging_steps=1)
    trainer.train()
    log = trainer.state.log_history[0]
    assert log["rewards/one/mean"] == 1.0
    assert log["rewards/one/std"] == 0.0
    assert log["rewards/halves/mean"] == 0.5  # of those it applies to: the two agents' first turns
    assert log["rewards/halves/std"] == pytest.approx((8 * 0.25 / 7) ** 0.5)


def test_what_a_function_logs_is_in_the_log_and_in_the_table_beside_its_candidate(
    model_path: str, tmp_path: Path
) -> None:
    def noting(completions: list[Any], turn: list[int], log_metric: Any, log_extra: Any, **_: Any) -> list[float]:
        texts = [completion[0]["content"] for completion in completions]
        log_metric("noted", float(turn[0]))
        if turn[0] == 1:
            log_extra("length", [len(text) for text in texts])
        return [float(len(text)) for text in texts]

    trainer = make(model_path, tmp_path, noting, log_completions=True, num_completions_to_print=1, logging_steps=1)
    trainer.train()
    assert trainer.state.log_history[0]["noted"] == 0.5  # the turns 0, 0, 1, 1
    (file,) = (tmp_path / "completions").iterdir()
    table = pandas.read_parquet(file)
    assert len(table) == 16
    for _, row in table.iterrows():
        length = len(row["completion"][0]["content"])
        assert row["noting"] == length
        assert row["length"] == length if row["turn"] == 1 else pandas.isna(row["length"])


def test_what_a_function_logs_in_evaluation_is_logged_there(model_path: str, tmp_path: Path) -> None:
    def noting(completions: list[Any], log_metric: Any, **_: Any) -> list[float]:
        log_metric("noted", 2.0)
        return [0.25] * len(completions)

    trainer = make(model_path, tmp_path, noting)
    metrics = trainer.evaluate(Dataset.from_dict({"seed": [3]}))
    assert metrics["eval_noted"] == 2.0
    assert metrics["eval_rewards/noting/mean"] == 0.25


def test_a_column_of_the_tables_own_is_refused(model_path: str, tmp_path: Path) -> None:
    def noting(completions: list[Any], log_extra: Any, **_: Any) -> list[float]:
        log_extra("agent", ["me"] * len(completions))
        return [0.0] * len(completions)

    with pytest.raises(ValueError, match=r"log_extra\('agent'"):
        make(model_path, tmp_path, noting).train()


def choice(number: int = 0) -> PendingDecision:
    completions = [Completion(ids=(k,), text=f"{number} {k}") for k in range(2)]
    return PendingDecision({"seed": number}, "solver_0", 0, Prompt([{"role": "user", "content": "?"}]), completions)


def ask(functions: RewardFunctions, number: int = 0) -> list[Any]:
    return [judgement.parts for judgement in functions.score(choice(number), trainer_state=None, log_metric=print)]


def test_a_plain_function_is_never_called_twice_at_once() -> None:
    inside = []

    def slow(completions: list[Any], **_: Any) -> list[float]:
        inside.append(1)
        time.sleep(0.002)
        assert len(inside) == 1
        inside.pop()
        return [0.0] * len(completions)

    functions = RewardFunctions(slow, None)
    with ThreadPoolExecutor(4) as threads:
        assert len(list(threads.map(partial(ask, functions), range(12)))) == 12


def test_async_functions_are_awaited_together_over_all_decisions() -> None:
    # Six calls, each of which ends only when all six have begun.
    everybody = asyncio.Barrier(6)

    async def first(completions: list[Any], **_: Any) -> list[float]:
        await asyncio.wait_for(everybody.wait(), 30)
        return [1.0] * len(completions)

    class Second:
        async def __call__(self, completions: list[Any], seed: list[int], **_: Any) -> list[float]:
            await asyncio.wait_for(everybody.wait(), 30)
            return [float(value) for value in seed]

    functions = RewardFunctions([first, one, Second()], [1.0, 1.0, 2.0])
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(partial(ask, functions), range(3)))
    assert found == [[{"first": 1.0, "one": 1.0, "Second": 2.0 * number}] * 2 for number in range(3)]


def test_a_run_takes_async_functions(model_path: str, tmp_path: Path) -> None:
    async def against(completions: list[Any], **_: Any) -> list[float]:
        await asyncio.sleep(0)
        return [letters(completion[0]["content"]) for completion in completions]

    decision, *_ = trained_on(model_path, tmp_path, [against], reward_weights=[-3.0], num_threads=2)
    texts = [letters(candidate.completion.text) for candidate in decision.candidates]
    assert [c.reward for c in decision.candidates] == pytest.approx([-2 * x for x in texts])


def test_an_async_function_that_raises_ends_the_run_with_its_error() -> None:
    async def broken(**_: Any) -> list[float]:
        raise ZeroDivisionError("the user's own")

    with pytest.raises(ZeroDivisionError, match="the user's own"):
        ask(RewardFunctions(broken, None))


# ---- Reward models ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def classifier_path(model_path: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("classifier") / "critic"
    torch.manual_seed(5)
    config = AutoConfig.from_pretrained(model_path, num_labels=1)
    Qwen3ForSequenceClassification(config).save_pretrained(path)
    AutoTokenizer.from_pretrained(model_path).save_pretrained(path)
    return str(path)


@pytest.mark.parametrize("given", ["a name", "a model", "a model and a tokenizer"])
def test_a_sequence_classifier_scores_prompt_and_completion(
    given: str, classifier_path: str, model_path: str, tmp_path: Path
) -> None:
    model = Qwen3ForSequenceClassification.from_pretrained(classifier_path).eval()
    tokenizer = AutoTokenizer.from_pretrained(classifier_path)
    credit = KeepsDecisions()
    trainer = make(
        model_path,
        tmp_path,
        classifier_path if given == "a name" else copy.deepcopy(model),
        reward_weights=[2.0],
        reward_processing_classes=tokenizer if "tokenizer" in given else None,
        credit=credit,
    )
    trainer.train()
    assert "rewards/critic/mean" in trainer.state.log_history[0]
    assert len(credit.decisions) == 4
    for decision in credit.decisions:
        for candidate in decision.candidates:
            # The template writes a role as <|role|>, and <|end|> after each message.
            shown, said = decision.prompt.messages[0]["content"], candidate.completion.text
            written = f"<|user|>{shown}<|end|><|assistant|>{said}<|end|>"
            ids = tokenizer(written, return_tensors="pt", add_special_tokens=False)
            with torch.no_grad():
                expected = 2 * float(model(**ids).logits)
            assert candidate.parts == {"critic": pytest.approx(expected, abs=1e-4)}


def test_a_classifier_whose_tokenizer_cannot_write_messages_is_refused(
    classifier_path: str, model_path: str, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(classifier_path)
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match=r"critic'.*chat template.*reward_processing_classes"):
        make(model_path, tmp_path, classifier_path, reward_processing_classes=[tokenizer])


@pytest.mark.parametrize(
    ("functions", "options", "error", "message"),
    [
        ([Named], {}, TypeError, "Named'>.*object"),
        ([3], {}, TypeError, "reward_funcs has 3"),
        ([letters], {"reward_weights": [1.0, 2.0]}, ValueError, "2 numbers for 1"),
        (["a", "b"], {"reward_processing_classes": [None]}, ValueError, "reward_processing_classes has 1 .* 2"),
    ],
)
def test_what_cannot_be_used_is_refused_before_a_model_is_loaded(
    functions: Any, options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        make("/nowhere", tmp_path, functions, **options)


# ---- What a TRL script's functions are given, and what they may return ------------------------------------------


@pytest.mark.parametrize(
    ("is_text", "prompts", "completions"),
    [
        (True, ["?", "?"], ["0 0", "0 1"]),
        (
            False,
            [[{"role": "user", "content": "?"}]] * 2,
            [[{"role": "assistant", "content": "0 0"}], [{"role": "assistant", "content": "0 1"}]],
        ),
    ],
    ids=["str", "dict"],
)
def test_prompts_and_completions_have_trls_format_for_what_the_agent_observes(
    is_text: bool, prompts: Any, completions: Any
) -> None:
    given: dict[str, Any] = {}

    def watch(**arguments: Any) -> list[float]:
        given.update(arguments)
        return [0.0, 0.0]

    asked = dataclasses.replace(choice(), is_text=is_text)
    RewardFunctions(watch, None).score(asked, trainer_state=None, log_metric=print)
    assert (given["prompts"], given["completions"]) == (prompts, completions)


def test_a_function_for_strings_counts_characters_where_the_environment_shows_a_string(
    model_path: str, tmp_path: Path
) -> None:
    def lengths(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        assert prompts == ["Question 1?"] * 4
        return [float(len(completion)) for completion in completions]

    args = settings(tmp_path, per_device_train_batch_size=4, max_completion_length=6)
    credit, rows = KeepsDecisions(), Dataset.from_dict({"seed": [1]})
    MultiAgentGRPOTrainer(model_path, OneShot, args, rows, reward_funcs=lengths, credit=credit).train()
    for candidate in credit.decisions[0].candidates:
        assert candidate.parts == {"lengths": len(candidate.completion.text)}


@pytest.mark.parametrize(
    "returned", [1.0, None, True, {0: 1.0, 1: 0.5}, {"a": 1.0}, {0.5, 1.0}, "10", ["1", "0"], [[1.0], [0.0]]], ids=str
)
def test_what_is_no_list_is_refused_with_the_list_that_is_expected(returned: Any) -> None:
    def single(**_: Any) -> Any:
        return returned

    with pytest.raises(TypeError, match=rf"'single'.*{re.escape(repr(returned))}.*list of 2"):
        ask(RewardFunctions(single, None))


def test_arrays_and_tensors_are_lists_of_numbers() -> None:
    def array(**_: Any) -> Any:
        return numpy.array([0.5, 1.5])

    def tensor(**_: Any) -> Any:
        return torch.tensor([2.0, 3.0])

    assert ask(RewardFunctions([array, tensor], None)) == [
        {"array": 0.5, "tensor": 2.0},
        {"array": 1.5, "tensor": 3.0},
    ]


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ([[0.0, 0.0, 0.0]], r"'f' gave 0\.0 to all 3 candidates that it judged .* completions are strings"),
        ([[math.nan] * 3], r"'f' returned None for every candidate of the first generation"),
        ([[0.0, 0.0, 1.0]], None),
        ([[0.0, 1.0, math.nan]], None),
        ([[1.0, math.nan, 1.0]], None),  # None adds 0
        ([[0.0, math.nan, 0.0]], r"'f' gave 0\.0 to all 2 candidates"),
        ([[1.0, 1.0], [math.nan, math.nan]], r"'f' gave 1\.0 to all 2 candidates"),  # of two roles, it applies to one
        ([], None),
    ],
)
def test_a_function_that_tells_no_candidate_from_another_is_named(
    rewards: list[list[float]], message: str | None
) -> None:
    groups = [[RewardScores(parts={}, rewards={"f": x}, columns={}) for x in own] for own in rewards]
    found = warnings_of_constant_rewards(groups)
    assert len(found) == (message is not None)
    assert message is None or re.search(message, found[0])


def test_training_warns_once_after_the_first_generation(model_path: str, tmp_path: Path) -> None:
    def standard(completions: list[Any], **_: Any) -> list[float]:
        return [float(completion.count("a")) for completion in completions]  # of a list of messages: 0

    trainer = make(model_path, tmp_path, standard, max_steps=2)
    with pytest.warns(UserWarning, match=r"'standard' gave 0\.0 to all 16 candidates") as caught:
        trainer.train()
    assert sum("'standard'" in str(warning.message) for warning in caught) == 1
