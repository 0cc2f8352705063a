"""The study of memory: what its base imitates, that its file is read, and its curve."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from pettingllms_envs import note_taking_v0
from pettingllms_envs.research.studies.analysis import StudyResults, read_results
from pettingllms_envs.research.studies.results import Cell, CellResult, Outline, save, save_outline
from pettingllms_trl.research.study.plans.study_file import read_study


ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/studies"))

import memory_base  # noqa: E402
import memory_curve  # noqa: E402


def test_notes_are_made_in_four_ways_each_as_often() -> None:
    rng, prompt = random.Random(0), "Your reading 2 of 4: 7\nYour notes: 5"
    found = Counter(memory_base.imitated(rng, prompt, 8) for _ in range(4000))
    for reply in ("Notes: 57", "Notes: 75", "Notes: 5"):
        assert found.pop(reply) == pytest.approx(1000, abs=140)  # 5 standard deviations
    assert all(len(reply) == len("Notes: ") + 8 and set(reply[7:]) <= set("2457") for reply in found)


def test_full_notes_lose_their_oldest_or_newest_digit() -> None:
    rng, prompt = random.Random(0), "Your reading 3 of 4: 7\nYour notes: 56"
    found = {memory_base.imitated(rng, prompt, 2) for _ in range(500)}
    assert {"Notes: 67", "Notes: 75", "Notes: 56"} < found
    assert all(len(reply) == len("Notes: ") + 2 for reply in found)


@pytest.mark.parametrize(
    ("prompt", "right", "others"),
    [
        ("You are asked for your reading 2.\nYour notes: 583", "Answer: 8", {"Answer: 5", "Answer: 3"}),
        ("Right is asked for your reading 1.\nYour notes: 58", "Say: 5", {"Say: 8"}),
        (
            "You are asked for left's reading 1.\nYour notes: 58\nLeft tells you: 3",
            "Answer: 3",
            {"Answer: 5", "Answer: 8"},
        ),
    ],
)
def test_an_answer_is_right_three_times_of_four_or_any_digit_that_is_remembered(
    prompt: str, right: str, others: set[str]
) -> None:
    rng = random.Random(0)
    found = Counter(memory_base.imitated(rng, prompt, 8) for _ in range(3000))
    assert set(found) == {right} | others
    share = 0.75 + 0.25 / len(found)
    assert found[right] / 3000 == pytest.approx(share, abs=0.05)


def test_a_place_that_the_notes_lack_is_guessed() -> None:
    prompt = "You are asked for your reading 4.\nYour notes: 58"
    assert {memory_base.imitated(random.Random(seed), prompt, 2) for seed in range(50)} == {"Answer: 5", "Answer: 8"}


def test_each_limit_and_the_team_are_imitated_as_often() -> None:
    rows = list(memory_base.demonstrations(800, 1))
    assert rows == list(memory_base.demonstrations(800, 1))
    limits = Counter((f"up to {n} digits" in system) * n for system, _, _ in rows for n in range(2, 9))
    assert {n: limits[n] for n in range(2, 9)} == {2: 200, **dict.fromkeys(range(3, 9), 100)}  # 2: the team, too
    for system, _, reply in rows:
        assert len(reply) <= len("Notes: ") + int(system.split("up to ")[1][0])


def test_the_study_plays_the_same_instances_with_each_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    study = read_study(ROOT / "benchmarks/studies/memory.yaml")
    asked = set()
    for method in ("team", *(f"alone_{digits}" for digits in memory_curve.LIMITS)):
        train = study.run(Cell(phase="evaluation", environment="memory", method=method, seed=1)).config["train"]
        kwargs, digits = train["env_kwargs"], method.rpartition("_")[2]
        assert kwargs["digits"] == (2 if method == "team" else int(digits))
        task = note_taking_v0.env(**kwargs).workflow.task
        state = task.generate(train["eval_seeds"][0], train["eval_split"])
        asked.add((state.readings, state.question))
    assert len(asked) == 1


def test_the_curve_has_the_bound_beside_what_is_reached(tmp_path: Path) -> None:
    results, greedy = made(tmp_path), {"alone_2": {"untrained": "0001", "1": "0111", "2": "0011"}}
    rows = {row[0]: row[1:] for row in memory_curve.table(results, results, greedy).rows}
    # 111 notes: 4 right of 4 in 111 sequences, 3 in 111 * 36, 2 in the 5,893 left of 10,000, so (444 + 11,988 +
    # 11,786) / 40,000. In order two of four are kept, and 1 in 10 of the others is guessed.
    assert rows["2"][:2] == ["60.5%", "55.0%"]
    assert rows["2"][2].startswith("50.0% [0.0, 100.0]")  # 1/4 and 3/4; two seeds say little
    assert rows["2"][3:] == ["50.0%", "62.5%"]
    assert rows["3"] == ["77.8%", "77.5%", "-", "-", "-"]
    assert rows["8"][:2] == ["100.0%", "100.0%"]
    assert rows["two agents of 2"][2] == "100.0%"
    assert memory_curve.table(results, None, {}).rows[0][4:] == ["-", "-"]
    memory_curve.draw(results, greedy, results, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def made(folder: Path) -> StudyResults:
    """Results of a study that was never run."""
    methods = {"memory": ["team", "alone_2"]}
    save_outline(
        Outline(
            name="memory",
            methods=methods,
            reference="team",
            compared={"memory": ["alone_2"]},
            seeds=[1, 2],
            tokens=100,
            split="test",
            num_instances=4,
            spread=0.05,
            notes=[],
            primary=[],
            primary_seeds=[],
            secondary=[],
        ),
        folder,
    )
    for method, seed, success in (("alone_2", 1, "0001"), ("alone_2", 2, "0111"), ("team", 1, "1111")):
        cell = Cell(phase="evaluation", environment="memory", method=method, seed=seed)
        save(
            CellResult(
                cell=cell, config={"train": {}}, digest="", success=success, tokens=100, steps=1, seconds=1.0, curve={}
            ),
            folder,
        )
    return read_results(folder)
