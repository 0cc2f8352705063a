"""Each kind of bad input from a program, a hundred times, with `env_timeout=1`: counted, in words, and nothing hangs.

`pytest -m slow -s tests/trl/rollout/test_bad_programs.py` prints the counts.
"""

from __future__ import annotations

import http.client
import json
import math
import re
import threading
import urllib.parse
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from calls import ask, chat, send
from pettingllms_envs.programs import program
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.records import Completion, Prompt, Request, Rollout, RolloutOptions, Sampled
from pettingllms_trl.rollout.play import play


TIMES = 100
NUM_ROWS = 510  # at most a fifth of the rows may fail
AGENTS = ("writer", "critic")
NO_CALL = {"role": "tool", "tool_call_id": "x", "content": "5"}
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:critic made no call:UserWarning")]


def sample(requests: Sequence[Request]) -> list[Sampled]:
    """The reply "I." to everything."""
    return [Sampled(Prompt(each.prompt.messages, ids=(1,)), (Completion(ids=(2,), text="I."),)) for each in requests]


def played(target: Any, rows: int = TIMES, **options: Any) -> Rollout:
    settings: dict[str, Any] = {"sampling": "parallel", "num_candidates": 1, "num_threads": 8, **options}
    return play(
        [{"seed": seed} for seed in range(rows)],
        BatchedEngine(sample),
        RolloutOptions(**settings, env_timeout=1.0),
        make_env=program(target, agents=AGENTS),
        seed="0",
    )


def of_nobody(base_url: str) -> tuple[int, Any]:
    """With a key that no run has."""
    key = base_url.split("/")[-2]
    status, answer = chat(base_url.replace(key, "x" * len(key)), "writer", "Who?")
    assert key not in json.dumps(answer)
    return status, answer


def body(base_url: str, content: bytes) -> tuple[int, Any]:
    return send(f"{base_url}/chat/completions", content)


def too_long(base_url: str) -> tuple[int, Any]:
    """Ten megabytes, of which only the head is sent before the answer."""
    url = urllib.parse.urlsplit(base_url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port)
    connection.putrequest("POST", f"{url.path}/chat/completions")
    connection.putheader("content-length", "10000000")
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def messages(*given: Any) -> Callable[[str], tuple[int, Any]]:
    return lambda base_url: chat(base_url, "writer", "", messages=list(given))


REFUSED: dict[str, tuple[Callable[[str], tuple[int, Any]], int, str]] = {
    "an unknown key": (of_nobody, 401, "there is no such run, or it is over"),
    "no agent's name": (lambda url: chat(url, "editor", "?"), 404, "no agent 'editor'.*'writer', 'critic'"),
    "no JSON": (lambda url: body(url, b"{"), 400, "no JSON object"),
    "10 MB": (too_long, 400, "10000000 bytes; expected at most"),
    "no message of a user": (messages({"role": "system", "content": "Be good."}), 400, "expected a user's"),
    "an unknown role": (messages({"role": "robot", "content": "x"}), 400, "the role 'robot'"),
    "a tool's result without its call": (messages(NO_CALL), 400, "no message before has made"),
    "several choices": (lambda url: chat(url, "writer", "?", n=2), 400, "n is 2, which is not carried"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_request_is_answered_with_a_sentence_and_counted(name: str) -> None:
    call, status, words = REFUSED[name]
    answers, replies = list[tuple[int, bool]](), list[str]()

    def team(base_url: str, row: Any) -> float:
        got, answer = call(base_url)
        answers.append((got, re.search(words, answer["error"]["message"]) is not None))
        replies.append(ask(base_url, "writer", "Who?"))
        return 1.0

    rollout = played(team)
    assert Counter(answers) == {(status, True): TIMES}
    assert (Counter(replies), rollout.dropped) == ({"I.": TIMES}, {})
    counted = [episode.outcome["refused_requests"] for episode in rollout.episodes]
    assert counted == [int(status != 401)] * TIMES  # a key that is unknown belongs to no run
    assert {len(episode.decisions) for episode in rollout.episodes} == {1}
    print(f"{name}: {TIMES} answered {status}, {sum(counted)} counted")


USER = {"role": "user", "content": "Who?"}
TAKEN = {
    "two messages of a user in a row": messages(USER, USER),
    "content null": messages(USER, {"role": "assistant", "content": None}, USER),
    "a developer": messages({"role": "developer", "content": "Be good."}, USER),
    "a name": messages({**USER, "name": "ann"}),
    "parts of text": messages({"role": "user", "content": [{"type": "text", "text": "Who?"}]}),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_unusual_is_taken(name: str) -> None:
    answers = list[Any]()

    def team(base_url: str, row: Any) -> float:
        status, answer = TAKEN[name](base_url)
        answers.append((status, answer["choices"][0]["message"]["content"]))
        return 1.0

    rollout = played(team)
    assert (Counter(answers), rollout.dropped) == ({(200, "I."): TIMES}, {})
    print(f"{name}: {TIMES} taken")


def returns(given: Any) -> Callable[[str, Any], Any]:
    def team(base_url: str, row: Any) -> Any:
        ask(base_url, "writer", "Who?")
        return given

    return team


def raises(base_url: str, row: Any) -> float:
    ask(base_url, "writer", "Who?")
    raise KeyError("no paper")


def hangs(base_url: str, row: Any) -> float:
    ask(base_url, "writer", "Who?")
    threading.Event().wait(20)
    return 1.0


def line(end: str) -> list[str]:
    """A command line that asks, and ends so in the rows that are bad."""
    url = '"$OPENAI_BASE_URL/chat/completions"'
    asked = f'curl -s {url} -d \'{{"model": "writer", "messages": [{{"role": "user", "content": "?"}}]}}\' > /dev/null'
    return ["bash", "-c", f"read -r row; {asked}; n=${{row//[^0-9]/}}; if [ $n -lt {TIMES} ]; then {end}; fi\n"
                          "echo reward: 1"]  # fmt: skip


FAILED: dict[str, tuple[Any, str]] = {
    "makes no call": (lambda base_url, row: 1.0, "expected that it asks its agents at the base URL"),
    "raises": (raises, "KeyError: 'no paper'"),
    "hangs": (hangs, "it took longer than 1 s"),
    "returns no reward": (returns(None), "ended without a reward"),
    "returns nan": (returns(math.nan), "the reward is nan"),
    "exits with a status": (line("echo so far; exit 3"), "exited with status 3; it wrote last:\nso far"),
    "is killed": (line("kill -9 $$"), "was ended by signal 9"),
    "prints no reward": (line("exit 0"), "ended without a reward"),
    "prints nan": (line("echo reward: NaN; exit 0"), "the reward is nan"),
    "prints two rewards": (line("echo reward: 1"), "counts only as the whole last one"),
    "a command that hangs": (line("sleep 20"), "it took longer than 1 s"),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_program_that_fails_drops_its_rows_with_its_words_and_scores_none(name: str) -> None:
    target, words = FAILED[name]

    def sometimes(base_url: str, row: Any) -> Any:
        return (target if row["seed"] < TIMES else returns(1.0))(base_url, row)

    rollout = played(sometimes if callable(target) else target, rows=NUM_ROWS)
    assert sorted(rollout.dropped) == list(range(TIMES))
    assert Counter(words in message for message in rollout.dropped.values()) == {True: TIMES}
    assert [episode.instance for episode in rollout.episodes] == list(range(TIMES, NUM_ROWS))
    print(f"a program that {name}: {len(rollout.dropped)} dropped in words, {len(rollout.episodes)} others played")


def test_calls_after_the_reward_and_a_thousand_calls_end() -> None:
    found = list[int]()

    def late(base_url: str, row: Any) -> float:
        ask(base_url, "writer", "Who?")

        def again() -> None:
            over.wait(20)
            found.append(chat(base_url, "writer", "And?")[0])

        over = threading.Event()
        threads.append(threading.Thread(target=again, daemon=True))
        threads[-1].start()
        events.append(over)
        return 1.0

    threads, events = list[threading.Thread](), list[threading.Event]()
    rollout = played(late)
    for event in events:
        event.set()
    for thread in threads:
        thread.join(20)
    assert rollout.dropped == {}
    assert set(found) <= {401, 409}  # 401: its environment plays another episode, and the key is forgotten
    assert len(found) == TIMES

    def endless(base_url: str, row: Any) -> float:
        for number in range(1000):
            ask(base_url, "writer", str(number))
        return 1.0

    rollout = played(endless, max_turns=3)
    assert [len(episode.decisions) for episode in rollout.episodes] == [3] * TIMES
    print(
        f"after the reward: {dict(Counter(found))}; a thousand calls: {len(rollout.episodes)} episodes of 3 decisions"
    )


def test_a_client_that_goes_leaves_the_reply_to_its_second_try() -> None:
    answers = list[bool]()

    def goes(base_url: str, row: Any) -> float:
        url = urllib.parse.urlsplit(base_url)
        asked = json.dumps({"model": "writer", "messages": [USER], "stream": True})
        connection = http.client.HTTPConnection(url.hostname or "", url.port)
        connection.request("POST", f"{url.path}/chat/completions", asked, {"content-type": "application/json"})
        connection.close()
        status, text = send(f"{base_url}/chat/completions", asked.encode(), x_stainless_retry_count="1")
        answers.append(status == 200 and '"I."' in text)
        return 1.0

    rollout = played(goes)
    assert answers == [True] * TIMES
    assert [len(episode.decisions) for episode in rollout.episodes] == [1] * TIMES
    print(f"a client that goes: {TIMES} second tries answered, a decision each")


def test_a_silent_agent_is_warned_of_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rollout = played(returns(1.0))
    silent = [each for each in caught if "critic made no call in the first episode" in str(each.message)]
    assert (len(silent), len(rollout.episodes), rollout.dropped) == (1, TIMES, {})
    print(f"a silent agent: {TIMES} played, {len(silent)} warning")
