"""An episode and its row, of our environments and of a third-party one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pettingllms_envs
from echo_env import Echo
from pettingllms_envs.agents.base import AgentFailed, Null, Oracle, Reply, Request, Scripted
from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.episode import Instance, RunLimits, Stopped, derived_seed, episode
from pettingllms_envs.episodes.observing import plain
from pettingllms_envs.episodes.replay import replay
from pettingllms_envs.prompts import read_observation


DOCS = Path(__file__).parents[2] / "docs" / "records.md"


class Counted:
    """Replies of so many tokens."""

    def __init__(self, reply: str, tokens: int) -> None:
        self._reply, self._tokens = reply, tokens

    def reply(self, asked: Request) -> Reply:
        return Reply(text=self._reply, prompt_tokens=self._tokens, completion_tokens=1)


def silent_drafter(**more: Any) -> dict[str, Any]:
    env = pettingllms_envs.make("plan_path", size=4)
    agents = {"drafter_0": Null(), "planner_0": Oracle()}
    return episode(env, Instance(0, 7, {"split": "test"}), 0, agents, RunLimits(**more))


def echo(word: Any, env: Echo | None = None, **more: Any) -> dict[str, Any]:
    agent = Scripted(word) if callable(word) else Scripted(lambda asked: word)
    return episode(env or Echo(), Instance(0, 5), 0, {"a_0": agent, "b_0": agent}, RunLimits(**more))


@pytest.mark.parametrize(
    ("limit", "num_steps", "end"), [(1, 1, "budget"), (2, 2, "terminated"), (None, 2, "terminated")]
)
def test_a_reply_beyond_the_generated_tokens_is_not_played(limit: int | None, num_steps: int, end: str) -> None:
    env = pettingllms_envs.make("plan_path", size=4)
    env.reset(seed=7)
    best = Counted(env.oracle(), 100)  # one completion token each; tokens of prompts do not count
    agents = {"drafter_0": Counted("Draft: U", 100), "planner_0": best}
    row = episode(env, Instance(0, 7), 0, agents, RunLimits(generated_tokens=limit))
    assert (len(row["steps"]), row["end"]) == (num_steps, end)
    assert row["success"] is (end == "terminated")
    assert replay(pettingllms_envs.make("plan_path", size=4), row).first is None


def test_a_row_says_what_was_shown_said_and_paid() -> None:
    row = silent_drafter()
    env = pettingllms_envs.make("plan_path", size=4)
    env.reset(seed=7, options={"split": "test"})
    drafted, decided = row["steps"]
    assert drafted["prompt"] == env.observe("drafter_0")
    assert drafted["state"] == env.state_hash()
    assert (drafted["reply"], drafted["parts"]) == ("", {"drafter": {"format": -0.2}})
    env.step("")
    assert (decided["prompt"], decided["state"]) == (env.observe("planner_0"), env.state_hash())
    assert decided["reply"] == env.oracle()
    env.step(decided["reply"])
    assert decided["rewards"] == env.rewards
    assert decided["parts"]["team"] == {"progress": 1.0, "success": 1.0}
    assert (row["end"], row["turns"], row["success"], row["error"]) == ("terminated", 1, True, None)
    assert row["returns"] == {"drafter_0": -0.2 + env.rewards["drafter_0"], "planner_0": env.rewards["planner_0"]}


def test_the_documented_example_is_this_very_row() -> None:
    documented = json.loads(re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.S)[1])
    row = silent_drafter()
    assert list(documented) == list(row)
    assert [list(step) for step in documented["steps"]] == [list(step) for step in row["steps"]]
    # A model's tokens and the shortened prompts aside.
    for name in ("instance", "sample", "end", "turns", "success", "outcome", "returns", "state", "error"):
        assert documented[name] == row[name], name
    for one, other in zip(documented["steps"], row["steps"], strict=True):
        for name in ("agent", "turn", "state", "reply", "seed", "rewards", "parts"):
            assert one[name] == other[name], name


def test_every_documented_field_of_the_header_is_there() -> None:
    documented = json.loads(re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.S)[0])
    made = files.header("bench", {}, {})
    assert list(documented) == list(made)
    assert set(documented["versions"]) == set(made["versions"])
    assert set(documented["machine"]) == set(made["machine"])


def test_the_digest_knows_nothing_of_clocks_and_tells_everything_else() -> None:
    one, other = silent_drafter(), silent_drafter()
    other["timing"] = {"began": 0.0, "seconds": 9.0}
    other["steps"][0]["timing"] = {"seconds": 9.0, "tries": 4}
    assert one["digest"] == other["digest"] == files.digest(other)
    other["steps"][1]["reply"] += " "
    assert files.digest(other) != one["digest"]


def test_a_row_survives_whatever_a_model_writes() -> None:
    row = echo('\ud800 \x00 \u2028 \N{GRINNING FACE} \\ "')
    line = files.write_line(row)
    assert line.isascii()
    assert line.count("\n") == 1
    assert json.loads(line) == row


def test_half_a_character_in_a_reply_ends_neither_the_episode_nor_the_request_that_shows_it() -> None:
    row = echo("\ud83d, and \ud83d\ude00")
    assert row["error"] is None
    prompts = [step["prompt"]["text"] for step in row["steps"]]
    assert prompts == ["seed 5", *["\N{REPLACEMENT CHARACTER}, and \N{GRINNING FACE}"] * 3]
    assert [step["reply"] for step in row["steps"]] == ["\ud83d, and \ud83d\ude00"] * 4


def test_a_strangers_environment_is_played_with_what_it_has() -> None:
    row = echo("yes")
    assert row["instance"] == {"index": 0, "env": "echo_v1", "seed": 5, "options": {}, "problem": None}
    assert [step["agent"] for step in row["steps"]] == ["a_0", "b_0", "a_0", "b_0"]
    assert [step["prompt"] for step in row["steps"][:2]] == [
        {"system": "", "text": "seed 5"},
        {"system": "", "text": "yes"},
    ]
    assert [step["turn"] for step in row["steps"]] == [1, 1, 2, 2]
    assert row["returns"] == {"a_0": 2.0, "b_0": 2.0}
    assert (row["end"], row["success"], row["outcome"], row["state"]) == ("truncated", None, None, None)
    assert {(step["state"], step["parts"]) for step in row["steps"]} == {(None, None)}


@pytest.mark.parametrize(
    ("env", "word", "message", "at"),
    [
        (Echo(raises="no"), "no", "RuntimeError: no such word", ("a_0", 0, "no")),
        (Echo(raises="reset"), "yes", "RuntimeError: no reset", (None, 0, None)),
        (
            Echo(),
            "nan",
            "ValueError: the environment's reward for a_0 is nan; expected a finite number.",
            ("a_0", 0, "nan"),
        ),
    ],
)
def test_an_environment_that_raises_leaves_an_error_and_no_failure(
    env: Echo, word: str, message: str, at: Any
) -> None:
    row = echo(word, env)
    assert row["error"] == dict(zip(("agent", "step", "reply"), at, strict=True), kind="environment", message=message)
    assert (row["end"], row["success"]) == ("error", None)


def test_an_agent_that_fails_leaves_the_steps_before_and_why() -> None:
    def word(asked: Request) -> str:
        if asked.step == 2:
            raise AgentFailed("unreachable", "nobody there")
        return "yes"

    row = echo(word)
    assert len(row["steps"]) == 2
    assert row["error"] == {"kind": "unreachable", "message": "nobody there", "agent": "a_0", "step": 2, "reply": None}


def test_an_episode_without_end_is_cut() -> None:
    row = echo("yes", Echo(endless=True), max_steps=7)
    assert (row["end"], len(row["steps"])) == ("cut", 7)


def test_nobody_is_asked_once_the_tokens_are_used_up() -> None:
    env = pettingllms_envs.make("plan_path")
    agents = dict.fromkeys(env.possible_agents, Counted("Hm.", 99))
    row = episode(env, Instance(0, 0), 0, agents, RunLimits(episode_tokens=250))
    assert (row["end"], len(row["steps"]), row["success"]) == ("budget", 3, False)


def test_seeds_of_replies_follow_from_what_is_asked() -> None:
    seeds = {
        derived_seed(run, instance, sample, agent, step)
        for run in (0, 1)
        for instance in ("(0, [])", "(1, [])")
        for sample in (0, 1)
        for agent in ("a_0", "b_0")
        for step in (0, 1)
    }
    assert len(seeds) == 32
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert Instance(3, 7, {"split": "test", "level": 2}).key == Instance(0, 7, {"level": 2, "split": "test"}).key


def test_an_observation_that_is_no_text_is_an_error_of_the_environment() -> None:
    env = Echo()
    env.observe = lambda agent: 3  # type: ignore[method-assign, assignment, return-value]
    assert echo("yes", env)["error"]["message"].startswith("TypeError: agent 'a_0' observes a int; expected text")


@pytest.mark.parametrize(
    ("observation", "given"),
    [
        ({"text": "hi", "image": np.zeros((2, 2, 3))}, r"observes 'image', a ndarray"),
        ({"text": "hi", "system": 3}, r"observes 'system', a int"),
    ],
)
def test_what_no_prompt_carries_raises_and_is_never_dropped(observation: Any, given: str) -> None:
    with pytest.raises(TypeError, match=rf"agent 'a' {given}; expected text under 'system', .* Wrap the environment"):
        read_observation(observation, agent="a")
    observation = {"text": "hi", "system": None, "followup": "more"}
    assert read_observation(observation, agent="a").messages == [{"role": "user", "content": "hi"}]


class Telling(Echo):
    """An environment by others that states facts in its infos, which has no snapshots."""

    def step(self, action: str | None) -> None:
        super().step(action)
        if action is not None:
            parts = {"team": {"words": 1}, "a": {"format": -0.2}}
            self.infos["a_0"] = {"parts": parts, "problem": 17, "answer": action, "turn": len(self._said)}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.infos["b_0"] = {"problem": "p-3"}


def test_facts_in_the_infos_of_a_third_party_environment_are_recorded() -> None:
    row = echo("yes", Telling())
    assert (row["instance"]["problem"], row["answer"], row["turns"]) == ("p-3", "yes", 5)
    assert row["steps"][0]["parts"] == {"team": {"words": 1.0}, "a": {"format": -0.2}}
    assert [step["turn"] for step in row["steps"]] == [1, 1, 3, 2]  # b says no turn: how often it was asked
    bare = echo("yes")
    assert (bare["instance"]["problem"], bare["answer"], bare["turns"]) == (None, None, 4)
    assert bare["steps"][0]["parts"] is None


class Judging(Echo):
    """An environment by others whose outcome has this success."""

    def __init__(self, success: Any) -> None:
        super().__init__()
        self._success = success

    def step(self, action: str | None) -> None:
        super().step(action)
        if action is not None:
            self.infos["a_0"] = {"outcome": {"success": self._success}}


@pytest.mark.parametrize("given", [True, False, None, np.bool_(True), np.bool_(False), 1, 0.0])
def test_a_success_is_yes_or_no_also_as_a_number_or_not_known(given: Any) -> None:
    row = echo("yes", Judging(given))
    assert row["error"] is None
    assert row["success"] is (None if given is None else bool(given))


@pytest.mark.parametrize("given", [0.25, "False", np.float64(0.5), 2])
def test_a_success_that_is_a_share_or_a_text_is_an_error_of_the_environment(given: Any) -> None:
    row = echo("yes", Judging(given))
    said = f"ValueError: the environment's outcome has the success {plain(given)!r}; expected true, false or none."
    assert row["error"]["message"].startswith(said)
    assert (row["error"]["kind"], row["error"]["step"], row["success"]) == ("environment", 0, None)


def test_a_run_that_ends_leaves_no_row() -> None:
    with pytest.raises(Stopped):
        episode(Echo(), Instance(0, 5), 0, {}, RunLimits(), stopped=lambda: True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}\n", r"line 1 is no episode \(it has no instance\); expected rows as docs/records.md has them"),
        (
            '{"steps": [], "instance": {}, "format": 9}\n',
            r"line 1 has the format 9; expected 1. Read it with the version",
        ),
        ("nonsense\n", r"line 1 is no episode \(it is not JSON\)"),
        ('{"returns": NaN}\n', r"line 1 is no episode \(NaN is no number below 1e\+100\)"),
        ('{"returns": 1e308}\n', r"line 1 is no episode \(1e308 is no number"),
        ('{"index": ' + 5_000 * "9" + "}\n", r"line 1 is no episode \(9{20} is no number"),
    ],
)
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "episodes.jsonl"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        files.read(file)


def test_a_file_is_put_in_order_and_of_two_rows_of_an_episode_the_last_one_stays(tmp_path: Path) -> None:
    rows = [silent_drafter() for _ in range(4)]
    for row, (index, sample) in zip(rows, ((1, 0), (0, 1), (0, 0), (1, 0)), strict=True):
        row["instance"]["index"], row["sample"] = index, sample
    rows[3]["steps"][0]["reply"] = "again"
    file = tmp_path / "episodes.jsonl"
    file.write_text("".join(map(files.write_line, rows)) + '{"half')
    light = files.tidy(file)
    assert file.read_text() == "".join(map(files.write_line, (rows[2], rows[1], rows[3])))
    assert light == files.read(file, whole=False)
    assert "prompt" not in light[0]["steps"][0]
    assert files.tidy(file, keep=lambda row: row["sample"] == 1) == [light[1]]


def test_a_last_line_without_its_end_is_a_line_of_its_own_once_others_follow(tmp_path: Path) -> None:
    rows = [silent_drafter(), silent_drafter()]
    rows[0]["instance"]["index"] = 1
    file = tmp_path / "episodes.jsonl"
    file.write_text("".join(map(files.write_line, rows)).removesuffix("\n"))
    files.tidy(file)
    assert file.read_text() == "".join(map(files.write_line, (rows[1], rows[0])))


def test_a_line_that_a_kill_left_half_written_is_left_out(tmp_path: Path) -> None:
    line = files.write_line(silent_drafter())
    (tmp_path / "episodes.jsonl").write_text(line + line[:100])
    assert len(files.read(tmp_path)) == 1
