"""Programs as environments: how they are started, what they are paid, and how they fail."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import subprocess
import sys
import textwrap
import threading
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calls import ask, assert_ends, chat, played, returns_of, send
from pettingllms_envs.programs import ProgramFailed, program
from pettingllms_envs.programs.endpoint import endpoint
from pettingllms_envs.programs.rewards import read_rewards


AGENTS = ("writer", "critic")
CURL = """
read -r row
say() {
  curl -s "$OPENAI_BASE_URL/chat/completions" -H 'content-type: application/json' \\
    -d "{\\"model\\": \\"$1\\", \\"messages\\": [{\\"role\\": \\"user\\", \\"content\\": \\"$2\\"}]}"
}
say writer "row $(echo "$row" | tr -d '\\"{}')" > /dev/null
case "$(say critic "Good?")" in *yes*) echo "reward: 1" ;; *) echo "reward: 0" ;; esac
"""


def team(base_url: str, row: Any) -> float:
    """A writer, then a critic who judges it."""
    written = ask(base_url, "writer", f"Write {row['seed']}.")
    return float(ask(base_url, "critic", f"Good: {written}?") == "yes")


async def async_team(base_url: str, row: Any) -> float:
    return team(base_url, row)


def script(tmp_path: Path, source: str) -> list[str]:
    """A command line of a Python program, which can ask."""
    file = tmp_path / "team.py"
    head = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nimport json, os\nfrom calls import *\n"
    file.write_text(f"{head}URL = os.environ['OPENAI_BASE_URL']\n{textwrap.dedent(source)}", encoding="utf-8")
    return [sys.executable, "-S", "-E", str(file)]


@pytest.mark.parametrize("target", [team, async_team])
def test_a_functions_calls_are_decisions_and_what_it_returns_is_everybodys_reward(target: Any) -> None:
    env = program(target, agents=AGENTS)()
    assert played(env, ["a poem", "yes"], seed=7) == [("writer", "Write 7."), ("critic", "Good: a poem?")]
    assert returns_of(env, ["a poem", "yes"])[1] == [{"writer": 0, "critic": 0}, {"writer": 1, "critic": 1}]
    assert env.infos["writer"] == {
        "rewards": {"reward": 1.0},
        "team_rewards": ["reward"],
        "parts": {"team": {"reward": 1.0}},
        "outcome": {"refused_requests": 0, "success": True},
    }
    env.close()


def test_a_shell_script_is_given_its_row_and_prints_its_reward() -> None:
    env = program(["bash", "-c", CURL], agents=AGENTS)()
    assert played(env, ["a poem", "yes"], seed=7) == [("writer", "row seed: 7"), ("critic", "Good?")]
    assert returns_of(env, ["a poem", "no"])[0] == {"writer": 0, "critic": 0}
    env.close()


def test_a_command_line_is_given_the_endpoint_and_the_stated_variables_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "1")
    monkeypatch.setenv("MY_DATA", "2")
    names = "ask(URL, 'writer', ' '.join(sorted(n for n in os.environ if n.startswith(('MY_', 'OPENAI', 'NO_P')))))"
    command = script(tmp_path, f"{names}; print('reward: 1')")
    env = program(command, agents=("writer",), variables=("MY_DATA", "MY_NONE"))()
    assert played(env, ["."]) == [("writer", "MY_DATA NO_PROXY OPENAI_API_KEY OPENAI_BASE_URL")]
    env.close()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0.5, {"writer": 0.5, "critic": 0.5}),
        (True, {"writer": 1.0, "critic": 1.0}),  # of a comparison
        ({"writer": 1, "critic": -1}, {"writer": 1.0, "critic": -1.0}),
        ({"writer": 1}, {"writer": 1.0, "critic": 0.0}),
        ({"team": 0.25, "critic": {"format": -0.5, "style": 1}}, {"writer": 0.25, "critic": 0.75}),
    ],
)
def test_a_reward_is_a_number_for_all_or_numbers_or_named_parts_of_agents(given: Any, expected: Any) -> None:
    def paid(base_url: str, row: Any) -> Any:
        team(base_url, row)
        return given

    env = program(paid, agents=AGENTS)()
    assert returns_of(env, ["a", "b"])[0] == expected
    env.close()


def test_a_reward_that_is_posted_belongs_to_the_step_that_goes_on_and_its_parts_have_names() -> None:
    def paid(base_url: str, row: Any) -> None:
        ask(base_url, "writer", "Write.")
        assert send(f"{base_url}/reward", {"reward": {"writer": {"length": -0.5}, "team": {"progress": 1}}}) == (
            200,
            {},
        )
        assert send(f"{base_url}/reward", {"reward": {"team": {"progress": 2}}}) == (200, {})
        ask(base_url, "critic", "Good?")

    env = program(paid, agents=AGENTS, rewards="by step", success=None)()
    env.reset(seed=0)
    env.step("a")
    assert env.rewards == {"writer": 2.5, "critic": 3.0}
    assert env.infos["writer"]["rewards"] == {"progress": 3.0, "length": -0.5}
    assert env.infos["critic"]["parts"] == {"writer": {"length": -0.5}, "team": {"progress": 3.0}}
    env.step("b")
    assert env.rewards == {"writer": 0.0, "critic": 0.0}
    assert env.terminations == {"writer": True, "critic": True}
    assert env.infos["writer"]["outcome"] == {"refused_requests": 0}
    env.close()


def returns(value: Any) -> Callable[[str, Any], Any]:
    def paid(base_url: str, row: Any) -> Any:
        team(base_url, row)
        return value

    return paid


def raises(base_url: str, row: Any) -> float:
    team(base_url, row)
    raise KeyError(f"no such poem at {base_url}")


def ignores(base_url: str, row: Any) -> float:
    return 1.0


def asks_the_wrong_agent(base_url: str, row: Any) -> float:
    return float(ask(base_url, "editor", "Who?"))


class Unprintable:
    def __repr__(self) -> str:
        raise KeyError("no repr")


def returns_its_url_behind(number: int) -> Callable[[str, Any], Any]:
    def paid(base_url: str, row: Any) -> Any:
        team(base_url, row)
        return "x" * number + base_url

    return paid


FAILURES = [
    (raises, r"failed: it raised: KeyError: 'no such poem at http://127.0.0.1:\d+/s/\*\*\*/v1'\nTraceback"),
    (returns(10**400), "the reward is 1000000.*; expected a finite number"),
    (returns(Unprintable()), "it raised: KeyError: 'no repr'"),
    (returns({}), "the reward is {}, which has no number"),
    (returns({"writer": {}}), "the reward is {'writer': {}}, which has no number"),
    (returns_its_url_behind(0), r"/s/\*\*\*/v1'; expected a finite number"),
    (returns_its_url_behind(79 - 24 - 10), r"/s/\*\*\*; expected a finite number"),
    (returns({"team": 1e308, "writer": 1e308}), "its rewards add up to {'writer': inf, 'critic': 1e\\+308}"),
    (returns(math.nan), "the reward is nan; expected a finite number"),
    (returns("good"), "the reward is 'good'; expected a finite number"),
    (returns(None), "it ended without a reward"),
    (returns({"editor": 1.0}), "the reward names 'editor'; expected one of team, "),
    (asks_the_wrong_agent, "RuntimeError: there is no agent 'editor'; expected .* to be 'writer', 'critic'"),
]


@pytest.mark.parametrize(("target", "expected"), FAILURES)
def test_a_function_that_fails_is_a_failure_with_its_last_lines(target: Any, expected: str) -> None:
    env = program(target, agents=AGENTS)()
    with pytest.raises(ProgramFailed, match=f"(?s){expected}"):
        played(env, ["a", "yes"])
    env.close()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("print('so far'); sys.exit(3)", "it exited with status 3; it wrote last:\nso far"),
        ("ask(URL, 'writer', '?'); 1 / 0", "it exited with status 1; it wrote last:\n.*ZeroDivisionError"),
        ("ask(URL, 'writer', '?'); os.kill(os.getpid(), 9)", "it was ended by signal 9"),
        ("ask(URL, 'writer', '?'); print('so far')", "it ended without a reward; .* It wrote last:\nso far"),
        ("ask(URL, 'writer', '?'); print('reward: 1' + '0' * 400)", "the reward is 1000"),
        ("ask(URL, 'writer', '?'); print('reward: 1\\nreward: 1')", "counts only as the whole last one"),
        ("ask(URL, 'writer', '?'); print('reward: 1\\nso far')", "counts only as the whole last one"),
        ("ask(URL, 'writer', '?'); print('reward: good')", "its line with the reward is no JSON"),
        ("ask(URL, 'writer', '?'); print('reward: NaN')", "the reward is nan"),
    ],
)
def test_a_command_line_that_fails_is_a_failure_with_its_last_lines(
    tmp_path: Path, source: str, expected: str
) -> None:
    env = program(script(tmp_path, source), agents=("writer",))()
    with pytest.raises(ProgramFailed, match=f"(?s){expected}"):
        played(env, ["a"])
    env.close()


def test_a_process_in_a_session_of_its_own_that_holds_the_output_open_is_ended(tmp_path: Path) -> None:
    source = """
    import subprocess
    child = subprocess.Popen(["sh", "-c", "setsid sleep 60; sleep 60"], start_new_session=True)
    ask(URL, "writer", f"{child.pid}")
    print("reward: 1")
    """
    env = program(script(tmp_path, source), agents=("writer",), timeout=20)()
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    ((_, child),) = played(env, ["a"])
    assert_ends(int(child))
    assert (env.rewards, other.poll()) == ({}, None)
    other.kill()
    other.wait()
    env.close()


def test_a_program_that_does_not_stop_asking_has_failed() -> None:
    def endless(base_url: str, row: Any) -> float:
        while True:
            ask(base_url, "writer", "And now?")

    env = program(endless, agents=("writer",), max_calls=3)()
    env.reset(seed=0)
    for _ in range(2):
        env.step("a")
    with pytest.raises(ProgramFailed, match=r"more than max_calls=3 calls .* Bound its loops, or raise max_calls"):
        env.step("a")
    assert program(endless, agents=("writer",))().program.max_calls == 256
    with pytest.raises(ValueError, match="max_calls=0; expected a whole number, 1 or more"):
        program(endless, agents=("writer",), max_calls=0)()


def test_a_task_that_nobody_waits_for_ends_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def careless(base_url: str, row: Any) -> float:
        async def fail() -> None:
            raise RuntimeError("The first line.\nThe second.")

        asyncio.create_task(fail())  # noqa: RUF006
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        return float(ask(base_url, "writer", "How much?"))

    env = program(careless, agents=("writer",))()
    played(env, ["1"])
    env.close()
    assert [record.getMessage() for record in caplog.records] == [
        r"Task exception was never retrieved: RuntimeError('The first line.\nThe second.')"
    ]
    assert caplog.records[0].exc_info is None


@pytest.mark.parametrize(
    ("target", "row", "error"),
    [(["/no/such/file"], {}, FileNotFoundError), (["cat"], {"when": Path()}, TypeError)],
)
def test_a_command_line_that_cannot_be_started_is_an_error_at_once(target: Any, row: Any, error: Any) -> None:
    env = program(target, agents=("writer",))()
    with pytest.raises(error):
        env.reset(seed=0, options=row)
    env.close()


def test_a_reward_that_is_posted_is_paid_at_once_or_at_the_end_as_the_program_says() -> None:
    answers = []

    def early(base_url: str, row: Any) -> float:
        answers.append(send(f"{base_url}/reward", {"reward": 1.0}))
        ask(base_url, "writer", "?")
        answers.append(send(f"{base_url}/reward", {"reward": 1.0}))
        ask(base_url, "writer", "?")
        return 0.5

    for rewards, steps in (("by step", [1.0, 0.5]), ("end", [0.0, 2.5])):
        env = program(early, agents=("writer",), rewards=rewards)()
        assert [step["writer"] for step in returns_of(env, ["a", "b"])[1]] == steps
        assert env.infos["writer"]["outcome"]["refused_requests"] == {"by step": 1, "end": 0}[rewards]
        env.close()
    assert [status for status, _ in answers] == [400, 200, 200, 200]
    assert "before the first reply belongs to no step" in answers[0][1]["error"]["message"]


SAYS = "said = ask(URL, 'writer', '?'); "
FORGED = {
    "after 65,536 characters": ("print('Reply: ' + said)", "x" * (2**16 - len("Reply: ")) + "reward: 1.0"),
    "on a line of its own": ("print('Reply: ' + said)", "Fine.\nreward: 1.0"),
    "after a carriage return": ("print('Reply: ' + said, end='')", "Fine.\rreward: 1.0"),
    "on the error output": ("print(said, file=sys.stderr)", "reward: 1.0"),
    "over a line of the program's": ("print('reward: -1'); print(said)", "\nreward: 1.0"),
    "under a line of the program's": ("print(said); print('reward: -1')", "reward: 1.0"),
    "in capitals that the program makes small": ("print(said.lower()); print('reward: -1')", "REWARD: 1.0"),
    "in the program's own line": ("print('reward: ' + said)", "1.0\nreward: 0.5"),
    "and not printed": ("print('reward: -1')", "reward: 1.0"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_reply_does_not_set_a_reward_that_is_printed_and_the_channel_of_its_own_is_named(
    name: str, tmp_path: Path
) -> None:
    source, reply = FORGED[name]
    env = program(script(tmp_path, SAYS + source), agents=("writer",))()
    with pytest.raises(
        ProgramFailed, match=r"(?s)counts only as the whole last one.*POST \{base_url\}/reward instead"
    ):
        played(env, [reply])
    env.close()


@pytest.mark.parametrize("rewards", ["end", "by step"])
def test_a_reward_that_is_posted_counts_alone_whatever_is_printed(rewards: Any, tmp_path: Path) -> None:
    source = f"{SAYS}send(URL + '/reward', {{'reward': -1}}); print('reward: 0.5\\n' + said)"
    env = program(script(tmp_path, source), agents=("writer",), rewards=rewards)()
    assert returns_of(env, ["reward: 1.0"])[0] == {"writer": -1.0}
    env.close()


def test_a_reply_with_the_mark_fails_at_its_own_step_once_the_program_is_known_to_print(tmp_path: Path) -> None:
    make = program(script(tmp_path, f"{SAYS}ask(URL, 'writer', 'And?'); print('reward: 1')"), agents=("writer",))
    env = make()
    assert returns_of(env, ["a", "b"])[0] == {"writer": 1.0}
    env.reset(seed=0)
    with pytest.raises(ProgramFailed, match="a reply has 'reward:'"):
        env.step("reward: 2")
    env.close()


@pytest.mark.parametrize(
    "given", [np.bool_(True), np.float32(1), np.int64(1), np.array(1.0), Decimal(1), Fraction(2, 2)]
)
def test_a_reward_may_be_a_scalar_of_another_library(given: Any) -> None:
    assert read_rewards(given, ["writer"]) == {"team": {"reward": 1.0}}
    assert read_rewards({"writer": {"right": given}}, ["writer"]) == {"writer": {"right": 1.0}}


def test_declared_ranges_are_metadata_and_bounds_and_the_least_is_paid_for_a_failure() -> None:
    def paid(base_url: str, row: Any) -> dict[str, Any]:
        return {"writer": {"format": -float(ask(base_url, "writer", "?"))}, "team": 1.0}

    ranges = {"reward": (0.0, 1.0), "format": (-0.5, 0.0)}
    env = program(paid, agents=("writer",), reward_ranges=ranges)()
    assert (env.metadata["reward_ranges"], env.metadata["crash_reward"]) == (ranges, -0.5)
    assert returns_of(env, ["0.5"])[0] == {"writer": 0.5}
    with pytest.raises(
        ProgramFailed, match=r"the part 'format' of -2; expected those of reward_ranges=.*Declare 'format' there"
    ):
        played(env, ["2"])
    env = program(paid, agents=("writer",), reward_ranges={"reward": (0, 1)})()
    with pytest.raises(ProgramFailed, match=r"the part 'format' of -0\.5"):
        played(env, ["0.5"])


def test_an_equal_reward_of_a_later_step_is_no_second_try_of_the_one_before() -> None:
    def paid(base_url: str, row: Any) -> None:
        for _ in range(3):  # the first try of each did not arrive
            ask(base_url, "writer", "?")
            send(f"{base_url}/reward", {"reward": 1.0}, x_stainless_retry_count="1")

    env = program(paid, agents=("writer",), rewards="by step")()
    assert returns_of(env, ["a", "b", "c"])[0] == {"writer": 3.0}
    env.close()


def test_rewards_that_add_up_to_success_but_for_rounding_are_a_success() -> None:
    def paid(base_url: str, row: Any) -> dict[str, dict[str, float]]:
        ask(base_url, "writer", "?")
        return {"writer": {"a": 0.7, "b": 0.2, "c": 0.1}}  # 0.9999999999999999

    env = program(paid, agents=("writer",))()
    assert returns_of(env, ["a"])[0]["writer"] < 1.0
    assert env.infos["writer"]["outcome"]["success"]
    env.close()


def test_a_reward_that_a_client_sends_a_second_time_counts_once() -> None:
    def paid(base_url: str, row: Any) -> None:
        ask(base_url, "writer", "?")
        send(f"{base_url}/reward", {"reward": 0.5})
        send(f"{base_url}/reward", {"reward": 0.5}, x_stainless_retry_count="1")
        send(f"{base_url}/reward", {"reward": 0.5})

    env = program(paid, agents=("writer",), rewards="by step")()
    assert returns_of(env, ["a"])[0] == {"writer": 1.0}
    env.close()


def test_a_name_of_an_agents_part_and_of_the_teams_in_two_rewards_of_a_step_is_a_failure() -> None:
    def paid(base_url: str, row: Any) -> float:
        ask(base_url, "writer", "?")
        send(f"{base_url}/reward", {"reward": {"writer": {"reward": 1.0}}})
        return 1.0

    env = program(paid, agents=("writer",), rewards="by step")()
    with pytest.raises(ProgramFailed, match="'reward' is a part of the team's reward and of an agent's"):
        played(env, ["a"])


def test_a_program_that_makes_no_call_does_not_use_the_base_url() -> None:
    env = program(ignores, agents=("writer",))()
    with pytest.raises(
        ValueError,
        match=r"ended without a call; expected that it asks its agents at the base URL .* without a cache of answers",
    ):
        env.reset(seed=0)


def test_a_program_that_hangs_is_a_failure_and_its_processes_are_ended(tmp_path: Path) -> None:
    source = """
    import subprocess, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    ask(URL, "writer", f"{child.pid}")
    time.sleep(60)
    """
    env = program(script(tmp_path, source), agents=("writer",), timeout=1.5)()
    env.reset(seed=0)
    child = int(env.observe("writer")["messages"][0]["content"])
    os.kill(child, 0)
    with pytest.raises(ProgramFailed, match=r"hangs: no call and no end within timeout=1.5 s"):
        env.step("a")
    assert_ends(child)


def test_calls_that_are_open_at_the_end_of_the_program_or_made_later_get_an_error() -> None:
    found = list[Any]()
    shown, over = threading.Event(), threading.Event()

    def late(base_url: str, row: Any) -> float:
        def in_the_background() -> None:
            found.append(chat(base_url, "writer", "And?"))
            found.append(chat(base_url, "writer", "Still?"))
            over.set()

        threading.Thread(target=in_the_background).start()
        shown.wait()
        return 1.0

    env = program(late, agents=("writer",))()
    env.reset(seed=0)
    assert env.observe("writer")["messages"][0]["content"] == "And?"
    shown.set()
    over.wait()
    assert [status for status, _ in found] == [409, 409]
    assert "the episode is over" in found[0][1]["error"]["message"]
    env.step("To nobody.")
    assert (env.terminations, env.rewards) == ({"writer": True}, {"writer": 1.0})
    env.close()


def test_a_process_ends_though_threads_of_a_program_wait_for_their_answers(tmp_path: Path) -> None:
    source = """
    from concurrent.futures import ThreadPoolExecutor
    from pettingllms_envs.programs import program
    def team(base_url, row):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda agent: ask(base_url, agent, "?"), ("writer", "critic")))
        return 1.0
    env = program(team, agents=("writer", "critic"), parallel=True)()
    env.reset(seed=0)
    print(env.agent_selection)
    """
    file = tmp_path / "open.py"
    head = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom calls import *\n"
    file.write_text(head + textwrap.dedent(source), encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "critic\n"


def test_an_environment_that_nobody_closes_ends_its_run() -> None:
    env = program(team, agents=AGENTS)()
    env.reset(seed=0)
    session = env._session
    assert session is not None
    assert endpoint().sessions[session.key] is session
    del env
    gc.collect()
    assert session.key not in endpoint().sessions
    assert session.take(1.0, "")[0].failure == "it was interrupted."  # type: ignore[union-attr]


def test_a_run_does_not_keep_what_it_has_asked() -> None:
    def talkative(base_url: str, row: Any) -> float:
        return float(all(ask(base_url, "writer", f"{number}" * 50_000) == "." for number in range(20)))

    env = program(talkative, agents=("writer",))()
    tracemalloc.start()
    try:
        env.reset(seed=0)
        while not env.terminations["writer"]:
            env.step(".")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert env.rewards == {"writer": 1.0}
    assert kept < 500_000  # of 1,500,000 bytes that were asked
    env.close()


def test_settings_of_the_sampling_and_a_silent_agent_are_warned_of_once() -> None:
    def warm(base_url: str, row: Any) -> float:
        chat(base_url, "writer", "Write.", temperature=0.1, seed=3, top_p=None)
        return 1.0

    make = program(warm, agents=AGENTS)
    with pytest.warns(UserWarning, match="in the first episode|which are replaced") as caught:
        played(make(), ["a"])
    played(make(), ["a"])  # a second warning would be an error
    first, second = [str(warning.message) for warning in caught]
    assert "asks for settings of the sampling (writer temperature=0.1, seed=3), which are replaced" in first
    assert second.startswith("critic made no call in the first episode")


@pytest.mark.parametrize(
    ("settings", "error", "expected"),
    [
        ({"target": 7}, TypeError, "expected a function of base_url and row, or a command"),
        ({"target": []}, TypeError, "expected a function of base_url and row, or a command"),
        ({"agents": "writer"}, ValueError, "agents=\\('writer', 'critic'\\)"),
        ({"agents": ()}, ValueError, "agents=\\('writer', 'critic'\\)"),
        (
            {"agents": ("team",)},
            ValueError,
            "expected a name of letters, digits and _ but not 'team', which stands for all",
        ),
        ({"agents": {"gpt-5-mini": "the writer"}}, ValueError, "expected a name of letters"),
        ({"rewards": "late"}, ValueError, "rewards"),
        ({"timeout": 0}, ValueError, "expected seconds, more than 0"),
        ({"reward_ranges": {"reward": (1, 0)}}, ValueError, "expected finite numbers, the least first"),
        ({"reward_ranges": {"reward": (0, math.inf)}}, ValueError, "expected finite numbers, the least first"),
    ],
)
def test_settings_are_validated_when_the_program_is_named(settings: Any, error: Any, expected: str) -> None:
    with pytest.raises(error, match=expected):
        program(**{"target": team, "agents": AGENTS, **settings})
