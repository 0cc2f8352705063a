"""Environments as their contributors write them: each keeps the contract, and is recorded, replayed and drawn."""

from __future__ import annotations

import base64
import gzip
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import debate_v0
from pettingllms_envs import cli, registry, testing
from pettingllms_envs.episodes import files
from pettingllms_envs.teams.functions import FunctionWorkflow


SLOW = {"another process", "floors", "fuzzed replies", "long replies"}
NAMES = ["lights_out", "council", "debate", "shop", "pixel_path", "reach", "hosted"]


def module_of(name: str) -> Any:
    if name == "reach":
        pytest.importorskip("mujoco", reason="reach_v0 needs mujoco: pip install mujoco")
    return importlib.import_module(f"{name}_v0")


@pytest.mark.parametrize("name", NAMES)
def test_it_keeps_the_contract(name: str) -> None:
    testing.conforms(module_of(name).env, seeds=range(2), only=set(testing.CHECKS) - SLOW)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_passes_every_check(name: str) -> None:
    module = module_of(name)
    testing.conforms(module.env, make_parallel=getattr(module, "parallel_env", None))


@pytest.mark.parametrize("name", NAMES)
def test_its_record_is_replayed_byte_for_byte_and_drawn_on_the_page(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = registry.Entry(name, 0, module_of(name).__name__, "contributed")
    monkeypatch.setattr(registry, "_plug_ins", lambda: (entry,))
    run = str(tmp_path / "run")
    assert cli.main(["bench", name, "--agents", "random", "--limit", "2", "--output", run]) == 0
    assert cli.main(["replay", run]) == 0
    assert "2 of 2 episodes are the same, byte for byte." in capsys.readouterr().out
    assert cli.main(["view", run]) == 0
    (row, *_) = files.read(tmp_path / "run")
    assert row["steps"]
    drawn = text_of_page((tmp_path / "run" / "page.html").read_text("utf-8"))
    assert all(step["agent"] in drawn for step in row["steps"])


def text_of_page(page: str) -> str:
    """The data of a page, which are packed."""
    packed = re.findall(r'<script type="text/plain" id="\w+">([^<]+)</script>', page)
    return "".join(gzip.decompress(base64.b64decode(each)).decode() for each in packed)


def test_an_adviser_writes_a_note_that_only_the_player_reads() -> None:
    env = module_of("lights_out").env()
    env.reset(seed=0)
    env.step("Press 1, and then 5.")
    assert "The adviser wrote:\n> Press 1, and then 5." in env.observe("player_0")["text"]
    assert env.observe("adviser_0")["system"].endswith("up to 500 characters.")


def test_the_talk_of_a_council_goes_where_its_table_allows() -> None:
    env = module_of("council").env(size=4, max_messages=3)
    env.reset(seed=0)
    speakers = []
    for reply in ("To: worker", "Moves: U\nTo: critic", "Well.", "To: worker", "Moves: U"):
        speakers.append(env.agent_selection)
        env.step(reply)
    # The critic names nobody, and three messages are the most in a turn: the chair's fourth is its move.
    assert speakers == ["chair_0", "worker_0", "critic_0", "chair_0", "chair_0"]
    assert env.snapshot().play.turn == 3
    assert env.infos["chair_0"]["outcome"]["messages"] == 3


def test_a_message_to_nobody_of_the_council_goes_to_the_chair() -> None:
    env = module_of("council").env(size=4)
    env.reset(seed=0)
    for reply in ("To: worker", "To: judge"):
        env.step(reply)
    assert env.agent_selection == "chair_0"
    assert "The worker wrote:\n> To: judge" in env.observe("chair_0")["text"]


def test_the_judge_of_a_debate_reads_the_debaters_and_the_critic() -> None:
    env = debate_v0.env(size=4)
    assert issubclass(type(env.workflow), FunctionWorkflow)
    env.reset(seed=0)
    for words in ("Up.", "Down.", "Down is right."):
        env.step(words)
    assert env.agent_selection == "judge_0"
    said = "The debater_0 wrote:\n> Up.\nThe debater_1 wrote:\n> Down.\nThe critic wrote:\n> Down is right."
    assert env.observe("judge_0")["text"].endswith(said)


def test_an_explorer_runs_queries_before_it_tells_the_answerer_what_it_found() -> None:
    env = module_of("shop").env()
    env.reset(seed=0)
    env.step("```call sql\nselect count(*) from orders\n```")
    assert env.agent_selection == "explorer_0"
    assert "150" in env.observe("explorer_0")["text"]
    env.step("There are 150 orders.")
    assert env.agent_selection == "answerer_0"
    assert "> There are 150 orders." in env.observe("answerer_0")["text"]
    assert env.infos["answerer_0"]["outcome"]["tool_calls"] == 1


def test_a_query_that_changes_the_shop_changes_it_for_no_other() -> None:
    run_query = module_of("shop").run_query
    assert run_query("delete from orders returning item").text.count("\n") == 150
    assert run_query("select count(*) from orders").text == "150\n"
    missing = run_query("select * from nowhere")
    assert "no such table: nowhere" in missing.text
    assert missing.error == "the query failed"
    assert run_query(".shell echo 1").error == "the query failed"


def test_a_planner_is_shown_the_board_as_an_image_and_its_text_as_the_description() -> None:
    env = module_of("pixel_path").env(size=4)
    env.reset(seed=0)
    turn, image, feedback = env.observe("planner_0")["parts"]
    assert (turn, feedback) == ("Turn 1 of 4. The board:", "")
    assert image.alt == env.workflow.task.show(env.snapshot().play.task)


def test_a_simulator_is_branched_by_the_bytes_of_its_state() -> None:
    reach = module_of("reach")
    env = reach.env(workflow="single")
    env.reset(seed=0)
    start = env.snapshot()
    assert len(start.play.task.simulator) < 300
    ends = []
    for _ in range(2):
        env.restore(start)
        env.step("Force: 1 0")
        ends.append(env.snapshot().play.task)
    assert ends[0] == ends[1]
    # From rest, with damping 1 and mass 1, a force of 1 N for 1 s leads to exp(-1) m = 0.368 m.
    assert ends[0].puck == (pytest.approx(0.368, abs=0.003), 0.0)
