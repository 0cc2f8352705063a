"""The plain scripts of examples/ run: on the tiny model and a CPU, for a step; the rest as it stands."""

from __future__ import annotations

import json
import random
import runpy
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from pettingllms_trl import Completion
from pettingllms_trl.credit import at_grpo
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.records import Request, Sampled
from pettingllms_trl.sft.demonstrations import read
from plays import play


EXAMPLES = Path(__file__).parents[3] / "examples"


def run(
    name: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *arguments: str,
    changes: tuple[tuple[str, str], ...] = (),
) -> None:
    """A script, with these changes of its text, from within a folder."""
    code = (EXAMPLES / name).read_text("utf-8")
    for given, tiny in (('report_to="none"', 'report_to="none", use_cpu=True, bf16=False'), *changes):
        assert given in code
        code = code.replace(given, tiny)
    script = folder / name
    script.write_text(code, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", [name, *arguments])
    runpy.run_path(str(script), run_name="__main__")


@pytest.fixture
def roomy_path(model_path: str, tmp_path: Path) -> str:
    """The tiny model with room for prompts of 4096 bytes, which are its tokens: Sokoban's have more than 1024."""
    folder = Path(shutil.copytree(model_path, tmp_path / "roomy"))
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**about, "max_position_embeddings": 4096}))
    return str(folder)


def test_sokoban_trains_saves_and_plays_the_test_set(
    roomy_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--steps", "1", "--tests", "1", "--tokens", "4", "--output", "out", "--model"]
    changes = (
        ("num_generations=4", "num_generations=2"),
        ("generation_batch_size=128", "generation_batch_size=2"),
        ("train_batch_size=8", "train_batch_size=2"),
        ("accumulation_steps=8", "accumulation_steps=1"),
    )
    run("train_sokoban.py", tmp_path, monkeypatch, *arguments, roomy_path, changes=changes)
    assert (tmp_path / "out" / "drafter" / "adapter_model.safetensors").is_file()
    assert capsys.readouterr().out.splitlines()[-1].endswith("of 1 rooms of the test set solved")


def test_a_third_party_environment_trains(model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--steps", "1", "--output", "out", "--model", model_path]
    run("train_third_party.py", tmp_path, monkeypatch, *arguments, changes=(("length=64", "length=4"),))
    assert {path.parent.name for path in (tmp_path / "out").glob("*/adapter_config.json")} == {"first", "second"}


def test_what_is_collected_can_be_read_and_succeeded(
    roomy_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--instances", "3", "--tries", "2", "--tokens", "4", "--model", roomy_path]
    arguments += ["--env", "pettingllms/sokoban-v0"]
    run("collect_successes.py", tmp_path, monkeypatch, *arguments)
    kept = list(read(tmp_path / "successes.jsonl"))
    assert all(demonstration.success for demonstration in kept)
    said = capsys.readouterr().out
    assert f"of 6 episodes succeeded; {len(kept)} decisions in successes.jsonl" in said
    assert ("Nothing to imitate" in said) is (not kept)


def test_both_roles_of_the_third_party_example_have_something_to_learn_from_at_their_first_decision() -> None:
    """Of 60 instances with 8 random digits a decision, more than half of the groups differ, and of both roles.

    Not all can: from 1 every digit but 0 leaves two moves.
    """
    example = runpy.run_path(str(EXAMPLES / "train_third_party.py"))
    rng = random.Random(0)

    def sample(requests: Sequence[Request]) -> list[Sampled]:
        return [
            Sampled(
                replace(request.prompt, ids=(1,)),
                tuple(Completion(ids=(2,), text=str(rng.randrange(10))) for _ in range(request.num_candidates)),
            )
            for request in requests
        ]

    rollout = play(
        [{"seed": seed} for seed in range(60)],
        make_env=example["Twenty"],
        engine=BatchedEngine(sample),
        sampling="tree",
        num_candidates=8,
        max_turns=8,
        seed="example",
    )
    decisions = [decision for episode in rollout.episodes for decision in episode.decisions]
    flat = {"first_0": 0, "second_0": 0}
    for decision, advantages in zip(decisions, at_grpo(decisions), strict=True):
        if decision.turn == 0:
            flat[decision.agent] += not any(advantages)
    assert flat["first_0"] < 30
    assert flat["second_0"] < 30


@pytest.mark.parametrize(("total", "moves"), [(0, 3), (1, 3), (2, 2), (10, 2), (11, 1), (19, 1), (20, 0)])
def test_the_moves_that_are_left_are_the_fewest(total: int, moves: int) -> None:
    assert runpy.run_path(str(EXAMPLES / "train_third_party.py"))["moves_left"](total) == moves


def test_the_example_of_delayed_rewards_trains() -> None:
    example = runpy.run_path(str(EXAMPLES / "delayed_rewards.py"))
    share = example["train"]("tree", "at_grpo", {}, steps=1)
    assert set(share) == {"caller_0", "closer_0"}
    assert all(0.0 <= value <= 1.0 for value in share.values())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:step .* in 10 generations in a row all rewards of each group were equal")  # solved
def test_what_is_paid_later_is_learned_by_every_scheme_but_the_one_that_compares_single_steps() -> None:
    example = runpy.run_path(str(EXAMPLES / "delayed_rewards.py"))
    for name, sampling, credit, options in example["SCHEMES"]:
        told = pytest.warns(UserWarning, match="nothing is learnt") if name == "at_grpo" else nullcontext()
        with told:
            share = example["train"](sampling, credit, options, steps=60)
        assert share["closer_0"] > 0.9, name
        assert share["caller_0"] < 0.1 if name == "at_grpo" else share["caller_0"] > 0.9, name


def test_reinforce_on_a_gymnasium_id_needs_nothing_of_this_package(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(EXAMPLES / "gymnasium_reinforce.py"))
    (_, untrained), (step, _) = example["train"](seed=0, num_steps=1, every=1, num_held_out=64)
    assert step == 1
    assert 0 < untrained < 0.5  # one of four moves at random, eight times
    assert capsys.readouterr().out.startswith("seed 0, 0 updates: success ")
    assert "pettingllms_trl" not in (EXAMPLES / "gymnasium_reinforce.py").read_text("utf-8")


@pytest.mark.slow
def test_reinforce_on_a_gymnasium_id_learns() -> None:
    example = runpy.run_path(str(EXAMPLES / "gymnasium_reinforce.py"))
    (_, untrained), (_, trained) = example["train"](seed=0, num_steps=50, every=50)
    assert trained > untrained + 0.3  # 18.6% and 69.1% in docs/results.md
