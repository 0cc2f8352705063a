"""What `bench` wrote can be made again: settings that JSON has no word for, and environments by their own names."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
import whisper_v0
from pettingllms_envs import cli, registry, settings
from pettingllms_envs.agents.spec import AgentSpec
from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.replay import replay, same_bytes
from pettingllms_envs.evaluation import bench as benches
from pettingllms_envs.page.build import page
from pettingllms_envs.registry import Entry


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Exit status and output of a command in an empty folder."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)

    def command(*line: str) -> tuple[int, str]:
        status = cli.main(list(line))
        out, err = capsys.readouterr()
        return status, out + err

    return command


@pytest.fixture
def whisper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment `whisper_v0` as an installed package would bring it."""
    monkeypatch.setattr(registry, "_plug_ins", lambda: (Entry("whisper", 0, "whisper_v0", "someone"),))


# ---- Settings ---------------------------------------------------------------------------------------------------


def test_a_setting_that_is_a_tuple_is_read_again_by_replay_view_crossplay_and_a_second_bench(run: Run) -> None:
    line = ["bench", "apps", "--set", "order=('tester','coder')", "--agents", "oracle", "--limit", "1"]
    assert run(*line, "--output", "a")[0] == 0
    assert files.read_header(Path("a"))["config"]["settings"] == {
        "order": ["tester", "coder"],
        "strict_format": False,
    }
    assert files.read(Path("a"))[0]["steps"][0]["agent"] == "tester_0"
    assert run(*line, "--output", "a")[0] == 0  # the same command goes on: it is the same configuration
    assert run(*line[:-4], "--agents", "null", "--limit", "1", "--output", "b")[0] == 0
    status, out = run("replay", "a")
    assert (status, "1 of 1 episode is the same, byte for byte." in out) == (0, True), out
    status, out = run("view", "a")
    assert status == 0, out
    status, out = run("crossplay", "a", "b", "--output", "x")
    assert status == 0, out
    status, out = run("crossplay", "b", "--solo", "--output", "y")
    assert status == 0, out
    assert files.read_header(Path("y/solo"))["config"]["settings"] == {
        "workflow": "single",
        "num_turns": 8,
        "strict_format": False,
    }


@pytest.mark.parametrize("given", [("tester", "coder"), ["tester", "coder"]], ids=["tuple", "list"])
def test_a_list_stands_for_a_tuple_where_the_field_is_one(given: Any) -> None:
    env = pettingllms_envs.make("apps", order=given)
    assert env.metadata["settings"]["order"] == ("tester", "coder")
    again = pettingllms_envs.make("apps", **json.loads(json.dumps(env.metadata["settings"])))
    assert again.workflow == env.workflow


def test_no_setting_vanishes_from_what_makes_the_environment_again() -> None:
    env = pettingllms_envs.make("aime", imports=["sympy"], year=24)
    assert env.metadata["settings"] == {
        "workflow": "tool_reasoner",
        "num_turns": 4,
        "alpha": 1.0,
        "strict_format": False,
        "imports": ("sympy",),
        "year": 24,
    }


@dataclasses.dataclass(frozen=True)
class Fields:
    pairs: tuple[tuple[int, int], ...] = ()
    maybe: tuple[str, ...] | None = None
    table: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    plain: list[int] = dataclasses.field(default_factory=list)


class Mode(str, Enum):  # noqa: UP042  # whose `str()` is its name, which is what changes
    HARD = "hard"


@pytest.mark.parametrize(
    "given",
    [
        {"pairs": ((1, 2), (3, 4))},
        {"maybe": ("a",)},
        {"maybe": None},
        {"table": {"a": (1, 2)}},
        {"plain": [1, 2]},
        {"plain": [True, 1.0, "x", None]},
    ],
)
def test_settings_come_back_from_json_as_they_were(given: dict[str, Any]) -> None:
    there = json.loads(json.dumps(settings.to_json(given)))
    assert repr(settings.restored(there, Fields)) == repr(given)
    settings.check_survives(given, Fields)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pairs": {1, 2}}, r"the setting pairs has \{1, 2\}, a set; expected what JSON holds"),
        ({"plain": float("nan")}, r"the setting plain has nan, a float; expected what JSON holds: texts, finite"),
        ({"table": {1: 2}}, r"the setting table has \{1: 2\}, a dict"),
        ({"plain": Mode.HARD}, r"plain is <Mode.HARD: 'hard'>, and would come back from a file as 'hard'"),
        ({"plain": (1, 2)}, r"plain is \(1, 2\), and would come back from a file as \[1, 2\]; expected one that JSON"),
    ],
)
def test_a_setting_that_does_not_survive_json_raises(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings.check_survives(given, Fields)


def test_an_environment_is_not_made_with_a_setting_that_no_file_could_hold() -> None:
    with pytest.raises(ValueError, match=r"the setting loud has \{'a'\}, a set; expected what JSON holds"):
        whisper_v0.env(size=4, loud={"a"})
    assert whisper_v0.env(size=4, loud=[["a", "b"]]).workflow.loud == (("a", "b"),)


def test_an_executor_is_no_setting_and_cannot_be_recorded_as_one() -> None:
    def executor(program: str) -> Any:
        raise NotImplementedError

    made = pettingllms_envs.make("plan_path", workflow="tool_plan", executor=executor)
    assert "executor" not in made.metadata["settings"]
    bench = benches.Bench(
        env="plan_path_v0",
        settings={"workflow": "tool_plan", "executor": executor},
        agents={},
        chosen=benches.InstanceSet("seeds", ()),
    )
    with pytest.raises(ValueError, match=r"the setting executor has <function .*; expected what JSON holds"):
        bench.config  # noqa: B018


# ---- Identity ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("whisper")
def test_a_new_workflow_on_a_task_of_this_package_is_recorded_and_replayed_under_its_own_name(tmp_path: Path) -> None:
    env = pettingllms_envs.make("whisper", size=4, loud=(("a",),))
    assert (env.metadata["name"], env.metadata["task"]) == ("whisper_v0", "plan_path_v0")
    bench = benches.Bench(
        env="whisper_v0",
        settings={"size": 4, "loud": (("a",),)},
        agents={"adviser_0": AgentSpec("oracle"), "player_0": AgentSpec("oracle")},
        chosen=benches.choose(env, "whisper_v0", {"size": 4}, limit=3),
    )
    benches.play(bench, tmp_path, concurrency=1)
    header, rows = files.read_header(tmp_path), files.read(tmp_path)
    assert {row["instance"]["env"] for row in rows} == {"whisper_v0"}
    for row in rows:
        name, given = files.remade(header, row)
        again = replay(pettingllms_envs.make(name, **given), row)
        assert (again.first, same_bytes(row, again.row)) == (None, True)
    assert "whisper_v0: bench" in page(tmp_path)
    assert benches.of_run(header, rows, "a").make().metadata == env.metadata


def test_shipped_environments_are_called_after_their_tasks_as_ever() -> None:
    for entry in registry.entries():
        metadata = pettingllms_envs.make(entry.full_name).metadata
        assert (metadata["name"], metadata["task"]) == (entry.full_name, entry.full_name)


def test_a_plug_in_that_calls_itself_by_another_name_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_plug_ins", lambda: (Entry("other", 0, "whisper_v0", "someone"),))
    message = r"whisper_v0 of someone makes 'whisper_v0'; expected 'other_v0'.* Write assemble\(..., name='other_v0'\)"
    with pytest.raises(ValueError, match=message):
        pettingllms_envs.make("other")


@pytest.mark.parametrize(
    ("module", "name", "expected"),
    [
        ("a.b.whisper_v3", None, "whisper_v3"),
        ("a.b.envs", "loud_v1", "loud_v1"),
        ("__main__", None, "plan_path_v0"),
    ],
)
def test_an_assembled_environment_is_called_after_its_module_unless_it_is_given_a_name(
    module: str, name: str | None, expected: str
) -> None:
    made = assemble(PlanPath, module, (whisper_v0.Whisper,), name=name).env(size=4)
    assert made.metadata["name"] == expected


def test_a_name_without_a_version_raises() -> None:
    with pytest.raises(ValueError, match=r"name is 'council'; expected a name with its version, such as 'council_v0'"):
        assemble(PlanPath, "envs", name="council").env()


@pytest.mark.parametrize(
    ("given", "turns"),
    [({}, 2), ({"num_turns": 3}, 3), ({"max_cycles": 5}, 5), ({"num_turns": 3, "max_cycles": 5}, 5)],
)
def test_a_workflows_own_number_of_turns_holds_unless_another_is_given(given: dict[str, int], turns: int) -> None:
    env = whisper_v0.env(size=4, **given)
    assert (env.workflow.num_turns, env.metadata["settings"]["num_turns"]) == (turns, turns)


@pytest.mark.parametrize(
    "name", ["sokoban", "sokoban_v0", "sokoban-v0", "pettingllms/sokoban", "pettingllms/sokoban-v0"]
)
def test_every_spelling_of_a_name_finds_the_environment(name: str) -> None:
    assert pettingllms_envs.find(name).full_name == "sokoban_v0"
