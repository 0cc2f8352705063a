"""Answers of vLLM's servers that say that they failed, that were cut, or that end with a word of their own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from calls import ask
from fake_vllm import HELLO, FakeVLLM, answers_of, engine_on, fakes
from pettingllms_envs.agents.server import ServerRefused
from pettingllms_envs.programs import program
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.records import Completion, Prompt, Request, Rollout, RolloutOptions, Sampled, SamplingFailure
from pettingllms_trl.rollout.play import play


Change = Callable[[dict[str, Any]], tuple[int, Any]]


@pytest.fixture
def fake() -> Iterator[Callable[..., FakeVLLM]]:
    with fakes() as start:
        yield start


def ends(word: str, *, is_empty: bool = False) -> Change:
    """All completions end with this word; the first, perhaps, before its first token."""

    def change(answer: dict[str, Any]) -> tuple[int, Any]:
        choices = [{**choice, "finish_reason": word} for choice in answer["choices"]]
        if is_empty:
            choices[0] |= {"token_ids": [], "logprobs": {"token_logprobs": []}}
        return 200, {**answer, "choices": choices}

    return change


def instead(status: int, answer: Any) -> Change:
    return lambda _: (status, answer)


FAILED = {
    "abort": ends("abort"),
    "abort of nothing": ends("abort", is_empty=True),
    "error": ends("error"),
    "error in place of choices": instead(200, {"object": "error", "message": "engine is dead", "code": 500}),
    "error beside choices": lambda answer: (200, {**answer, "error": {"message": "lost a worker"}}),
    "409": instead(409, "conflict"),
    "498": instead(498, "capacity"),
    "503": instead(503, "busy"),
    "no completion": instead(200, "fine"),
}


def sampled_by(server: FakeVLLM, folder: Path, **options: Any) -> Any:
    engine = engine_on([server.url], folder, {"solver_0": "shared"}, {}, **options)
    with engine.rollout("test"):
        return answers_of(engine, {4: Request("solver_0", Prompt(HELLO), 2)})[4]


@pytest.mark.parametrize("name", FAILED)
def test_an_answer_that_failed_is_asked_for_again(name: str, fake: Callable[..., FakeVLLM], tmp_path: Path) -> None:
    server = fake()
    right = sampled_by(server, tmp_path)
    server.changes = [FAILED[name]]
    assert sampled_by(server, tmp_path) == right
    assert [each.finish for each in right.completions] == ["stop", "stop"]
    assert len(server.completions) == 3


@pytest.mark.parametrize("word", ["length", "max_tokens", "MAX_TOKENS", "repetition", "model_length"])
def test_what_was_cut_is_cut_whatever_the_word(word: str, fake: Callable[..., FakeVLLM], tmp_path: Path) -> None:
    server = fake()
    server.changes = [ends(word)]
    assert {each.finish for each in sampled_by(server, tmp_path).completions} == {"length"}


def test_a_word_that_is_not_known_is_read_as_finished_and_named_once(
    fake: Callable[..., FakeVLLM], tmp_path: Path
) -> None:
    server = fake()
    server.changes = [ends("fin")]
    with pytest.warns(UserWarning, match="vLLM ends completions with 'fin', which is read as finished") as caught:
        assert {each.finish for each in sampled_by(server, tmp_path).completions} == {"stop"}
    assert sum("'fin'" in str(each.message) for each in caught) == 1


def test_what_fails_to_the_end_is_the_failure_of_its_request_and_a_refusal_an_error(
    fake: Callable[..., FakeVLLM], tmp_path: Path
) -> None:
    server = fake()
    server.changes = [ends("abort")] * 9
    found = sampled_by(server, tmp_path, vllm_server_timeout=0.3)
    assert isinstance(found, SamplingFailure)
    assert "finish_reason 'abort'" in str(found)
    server.changes = [instead(200, {"error": {"message": "maximum context length is 9", "code": 500}})]
    with pytest.raises(ServerRefused, match=r"refused \(400\): .*maximum context length"):
        sampled_by(server, tmp_path)


def asks(base_url: str, row: Any) -> float:
    """A program with two calls."""
    return float(ask(base_url, "writer", f"{row['seed']}?") == ask(base_url, "writer", "And?"))


def played(refuses: Callable[[str, int], bool]) -> Rollout:
    """Forty rows with an engine that fails where `refuses` says so of a prompt and the time that it is asked."""
    times = dict[str, int]()

    def answer(request: Request) -> Sampled | SamplingFailure:
        text = request.prompt.messages[-1]["content"]
        times[text] = times.get(text, 0) + 1
        if refuses(text, times[text]):
            return SamplingFailure("the filter refuses it")
        return Sampled(Prompt(request.prompt.messages, ids=(1,)), (Completion(ids=(2,), text="I."),))

    options = RolloutOptions(sampling="parallel", num_candidates=1)
    engine = BatchedEngine(lambda requests: [answer(each) for each in requests])
    rows = [{"seed": seed} for seed in range(40)]
    return play(rows, engine, options, make_env=program(asks, agents=("writer",)), seed="0")


def test_a_request_that_an_engine_cannot_answer_has_its_instance_played_again_then_dropped_and_counted() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        once, always = played(lambda text, time: text == "7?" and time == 1), played(lambda text, _: text == "7?")
    assert (once.retried, once.dropped, len(once.episodes)) == (1, {}, 40)
    assert (always.retried, always.dropped, len(always.episodes)) == (2, {7: "the filter refuses it"}, 39)
