"""`pettingllms bench --row`: one question of the user's, with a verdict if its answer is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs import cli
from pettingllms_envs.episodes import files
from pettingllms_envs.page import page
from pettingllms_envs.teams.designs import Design, Member, write_design


DESIGN = write_design(Design((Member("Add."), Member("Check.", (0,)))))
QUESTION = {"question": "What is 40 + 2?"}
BOARD = {"board": "@ . .\n. . .\n. . G"}
CODE = {"question": "Print 42.", "inputs": [""], "outputs": ["42\n"]}
NO_VERDICT = None


def ask(tmp_path: Path, command: str, row: object, *replies: str) -> int:
    """Ask a row, which a team answers with these replies in order."""
    (tmp_path / "replies.json").write_text(json.dumps(replies or ["nothing"]))
    agents = ["--agents", f"scripted:{tmp_path / 'replies.json'}"]
    text = row if isinstance(row, str) else json.dumps(row)
    return cli.main(["bench", *command.split(), *agents, "--row", text, "--output", str(tmp_path / "run")])


def test_the_replies_of_a_designed_team_are_shown_and_without_an_answer_no_verdict(
    tmp_path: Path, capsys: Any
) -> None:
    assert ask(tmp_path, "math --workflow designed", QUESTION, DESIGN, "I get\x1b[2J 42.", r"\boxed{42}") == 0
    run = tmp_path / "run"
    assert capsys.readouterr().out == (
        f"\ndesigner_0:\n{DESIGN}\n\nmember_0:\nI get\N{REPLACEMENT CHARACTER}[2J 42.\n\nmember_1:\n\\boxed{{42}}\n\n"
        f"The prompts are in {run}: pettingllms view {run}\n"
    )
    (row,) = files.read(run)
    assert row["success"] is None
    assert "success" not in row["outcome"]
    assert row["returns"] == {"designer_0": -0.02, "member_0": 0.0, "member_1": 0.0}
    assert files.read_header(run)["data"] is None
    assert files.read_report(run)["success"] is None  # type: ignore[index]
    assert cli.main(["replay", str(run)]) == 0
    assert "<title>math_v0: bench" in page(run)


@pytest.mark.parametrize(
    ("command", "row", "reply", "verdict"),
    [
        ("plan_path --set size=3 --workflow single", BOARD, "Moves: D D R R", "solved"),
        ("plan_path --set size=3 --workflow single", BOARD, "Moves: D", "not solved"),
        ("conversation --set roles=['solver'] --set grader=exact", {"prompt": "Say a.", "answer": "a"}, "A", "solved"),
        ("conversation --set roles=['solver'] --set grader=exact", {"prompt": "Say a."}, "A", NO_VERDICT),
        ("math --workflow single", {"problem": "What is 40 + 2?", "answer": 42}, r"\boxed{4}", "not solved"),
        ("math --workflow single", QUESTION, r"\boxed{42}", NO_VERDICT),
        ("aime --workflow single", QUESTION, r"\boxed{42}", NO_VERDICT),
        ("apps --workflow single", {"question": "Print 42."}, "```python\nprint(42)\n```", NO_VERDICT),
        ("apps --workflow single", CODE, "```python\nprint(42)\n```", "solved"),
    ],
)
def test_a_row_of_any_task_has_a_verdict_if_its_answer_is_given(
    command: str, row: Any, reply: str, verdict: str | None, tmp_path: Path, capsys: Any
) -> None:
    assert ask(tmp_path, command, row, reply) == 0
    lines = capsys.readouterr().out.splitlines()
    assert reply.splitlines()[-1] in lines
    assert [line for line in lines if line.endswith("solved")] == ([verdict] if verdict else [])


@pytest.mark.parametrize("name", ["math", "aime", "olympiad_bench", "apps", "code_contests", "live_code_bench"])
def test_a_question_without_an_answer_pays_nothing_in_any_workflow(name: str) -> None:
    for workflow in pettingllms_envs.make(name).metadata["workflows"]:
        env = pettingllms_envs.make(name, workflow=workflow)
        for reply in ("", r"\boxed{}", r"\boxed{42}", "```python\nprint(42)\n```", DESIGN):
            env.reset(seed=0, options={"row": QUESTION})
            while not env.standing():
                env.step(reply)
                parts = env.snapshot().parts
                assert not any(scope.get(part) for scope in parts.values() for part in ("progress", "success")), (
                    workflow
                )
            outcomes = [info["outcome"] for info in env.infos.values()]
            assert not any("success" in outcome or "pass_rate" in outcome for outcome in outcomes), workflow


@pytest.mark.parametrize(
    ("command", "row", "message"),
    [
        ("math", "x", "argument --row: 'x' is no JSON"),
        ("math", '{"question": "a", "question": "b"}', "is no JSON (two values of one name); expected an object"),
        ("math", "[1]", 'is no object with columns; expected {"question": "..."}'),
        ("math", {}, "'{}' is no object with columns"),
        ("math", {"question": "a", "anwser": 1}, "expected an object with the columns problem and answer, or"),
        ("math", {"question": 3}, "the row is {'question': 3}: 'question' is a int; expected text. Fix it."),
        (
            "apps",
            {"question": " "},
            "the row is {'question': ' '}: 'question' is blank; expected a statement. Fix it.",
        ),
        ("hidden_bench", QUESTION, "expected an object with the columns description and shared_information"),
        ("search", QUESTION, "has no passages; expected a corpus or a url to search."),
        ("archives", QUESTION, "the row has 'question', and archives_v0 takes split; expected those."),
        ("math --limit 3", QUESTION, "--row was given with other problems, environments or models; expected it with"),
        ("math aime", QUESTION, "--row was given with other problems, environments or models; expected it with one"),
    ],
)
def test_a_row_that_cannot_be_asked_says_why(
    command: str, row: object, message: str, tmp_path: Path, capsys: Any
) -> None:
    assert ask(tmp_path, command, row) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
