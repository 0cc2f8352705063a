"""The quickstart: its pure parts by hand; and, marked slow, all of it, until the adapters are reloaded."""

import faulthandler
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import archives
import prepare
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_path import demonstrate, task
from report import interval_table, share, summary, table
from tiny import SPECIAL, make_model, make_tokenizer
from training import LAPTOP, Demonstration, Imitates, keep
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from pettingllms_envs import archives_v0
from pettingllms_envs.environments.plan_path.grid import PlanPathState, distance, form
from pettingllms_envs.instances import split_of
from pettingllms_envs.page.learning import learned, read_log
from pettingllms_envs.teams.proposal import DraftPlan
from pettingllms_envs.teams.single import Single
from pettingllms_trl import Candidate, Completion, Decision, Episode, Prompt


QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"
PLACES = re.compile(r"You are at row (\d), column (\d)\. The goal is at row (\d), column (\d): ")


@pytest.fixture(scope="module")
def careless() -> list[Demonstration]:
    """Both roles' demonstrations, three steps in five careless, so that episodes take several turns."""
    return demonstrate(DraftPlan(task()), number=400, carelessness=0.6, seed=0)


@pytest.fixture(scope="module")
def tokenizer(careless: list[Demonstration]) -> PreTrainedTokenizerFast:
    alone = demonstrate(Single(task()), number=200, carelessness=0.2, seed=0)
    return make_tokenizer(m["content"] for row in (*alone, *careless) for m in (*row["prompt"], *row["completion"]))


def prompt(row: Demonstration) -> str:
    system, user = row["prompt"]
    assert (system["role"], user["role"]) == ("system", "user")
    content: str = user["content"]
    return content


def moves(row: Demonstration) -> str:
    (reply,) = row["completion"]
    assert reply["role"] == "assistant"
    read = task().parse(reply["content"])
    assert isinstance(read, str), f"unreadable: {reply['content']!r}"
    return read


def shown(rows: list[Demonstration]) -> Iterator[PlanPathState]:
    """The state that each prompt shows; an episode's start is where its first turn stands."""
    start = 0
    for row in rows:
        turn, *board = prompt(row).splitlines()[:6]
        blocked = sum(1 << i for i, cell in enumerate(" ".join(board).split()) if cell == "#")
        places = PLACES.search(prompt(row))
        assert places
        at_row, at_column, goal_row, goal_column = map(int, places.groups())
        position, goal = at_row * 5 + at_column, goal_row * 5 + goal_column
        start = position if turn == "Turn 1 of 4." else start
        optimal, left = (distance(5, blocked, goal, cell) for cell in (start, position))
        yield PlanPathState(5, blocked, start, goal, position, optimal, left)


@pytest.mark.parametrize("role", ["drafter", "planner"])
def test_demonstrations_of_a_role_are_that_roles_alone(role: str) -> None:
    rows = demonstrate(DraftPlan(task()), number=50, carelessness=0.6, seed=1, role=role)
    assert len(rows) == 50
    assert all(f"You are the {role}." in row["prompt"][0]["content"] for row in rows)


def test_demonstrations_of_a_team_are_both_roles_in_turn(careless: list[Demonstration]) -> None:
    roles = [re.findall(r"You are the (\w+)\.", row["prompt"][0]["content"]) for row in careless]
    assert roles == [["drafter"], ["planner"]] * 200


@pytest.mark.parametrize("workflow", [Single(task()), DraftPlan(task())], ids=["single", "draft_plan"])
def test_demonstrations_without_carelessness_are_shortest_walks(workflow: Any) -> None:
    rows = demonstrate(workflow, number=200, carelessness=0.0, seed=2)
    for row, state in zip(rows, shown(rows), strict=True):
        after = task().apply(state, moves(row))
        assert task().solved(after)
        assert len(moves(row)) == task().outcome(after)["optimal"]


def test_careless_demonstrations_are_not_all_shortest_walks_but_no_step_of_them_is_blocked(
    careless: list[Demonstration],
) -> None:
    first = [(row, state) for row, state in zip(careless, shown(careless), strict=True) if "Turn 1 " in prompt(row)]
    afters = [task().apply(state, moves(row)) for row, state in first]
    assert [after.walked for after in afters] == [len(moves(row)) for row, _ in first]
    assert 0.1 < sum(map(task().solved, afters)) / len(afters) < 0.9


def test_every_demonstration_is_of_the_train_split_and_can_be_read(careless: list[Demonstration]) -> None:
    assert {prompt(row).splitlines()[0] for row in careless} == {f"Turn {turn} of 4." for turn in (1, 2, 3, 4)}
    for row, state in zip(careless, shown(careless), strict=True):
        assert split_of(form(5, state.blocked, state.start, state.goal)) == "train"
        assert 1 <= len(moves(row)) <= 8


def test_demonstrations_follow_from_their_seed() -> None:
    one, again, other = (demonstrate(Single(task()), number=20, carelessness=0.5, seed=seed) for seed in (3, 3, 4))
    assert one == again != other


def test_the_warm_up_learns_what_trls_own_trainer_learns(
    tokenizer: PreTrainedTokenizerFast, careless: list[Demonstration], tmp_path: Path
) -> None:
    """By plain gradient descent: Adam makes steps of rounding errors where a gradient is next to nothing."""
    learned = []
    for trainer in (SFTTrainer, Imitates):
        model = make_model(tokenizer, seed=0)
        args = SFTConfig(
            str(tmp_path), optim="sgd", per_device_train_batch_size=16, learning_rate=0.5, max_steps=3, **LAPTOP
        )
        trainer(model=model, args=args, train_dataset=Dataset.from_list(careless), processing_class=tokenizer).train()
        learned.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    assert (learned[0] - learned[1]).abs().max() < 1e-6
    before = torch.cat([p.detach().flatten() for p in make_model(tokenizer, seed=0).parameters()])
    assert (learned[0] - before).abs().max() > 1e-2


def decision(agent: str, turn: int, played: Candidate, beside: Candidate) -> Decision:
    return Decision(
        instance=0,
        episode=0,
        agent=agent,
        turn=turn,
        prompt=Prompt([], (7,)),
        candidates=(beside, played),
        chosen=1,
    )


def candidate(reward: float, *parts: str) -> Candidate:
    return Candidate(completion=Completion(ids=(1,), text=""), reward=reward, parts=dict.fromkeys(parts, reward))


@pytest.fixture
def two_episodes() -> list[Episode]:
    """One that succeeds in a turn by the shortest way, and one that fails in two, with a reply that cannot be read."""
    best, worst = candidate(9.0, "success"), candidate(-9.0, "format")  # not played, so they must not count
    return [
        Episode(
            instance=0,
            episode=0,
            decisions=(
                decision("drafter_0", 0, candidate(0.6, "draft"), worst),
                decision("planner_0", 0, candidate(1.5, "progress", "success"), worst),
            ),
            returns={},
            outcome={"success": True, "regret": 0.0},
        ),
        Episode(
            instance=1,
            episode=0,
            decisions=(
                decision("drafter_0", 0, candidate(0.0, "draft"), best),
                decision("planner_0", 0, candidate(0.2, "progress"), best),
                decision("drafter_0", 1, candidate(0.0, "draft"), best),
                decision("planner_0", 1, candidate(-0.2, "format"), best),
            ),
            returns={},
            outcome={"success": False, "regret": 1.0},
        ),
    ]


def test_a_summary_of_two_episodes_is_the_one_worked_out_by_hand(two_episodes: list[Episode]) -> None:
    row = summary(two_episodes)
    assert (row["episodes"], row["success"], row["regret"]) == (2, 0.5, 0.5)
    assert row["interval"] == pytest.approx((0.0945, 0.9055), abs=5e-5)
    # The deviation of 0 and 1 is sqrt(1/2), so the standard error is 1/2.
    assert row["regret_half_width"] == pytest.approx(1.959964 / 2)
    assert row["roles"] == {
        "drafter_0": {"reward": pytest.approx(0.2), "unreadable": 0.0},
        "planner_0": {"reward": pytest.approx(0.5), "unreadable": pytest.approx(1 / 3)},
    }


def test_the_table_has_a_line_for_a_team_and_one_for_each_agent(two_episodes: list[Episode]) -> None:
    header, *lines = table({"the team": summary(two_episodes)}).splitlines()
    assert header.split() == ["success", "95%", "interval", "path", "regret", "reward", "unreadable"]
    assert [line.split() for line in lines] == [
        ["the", "team", "50.0%", "[9.5%,", "90.5%]", "0.500", "+-", "0.980"],
        ["drafter_0", "0.20", "0.0%"],
        ["planner_0", "0.50", "33.3%"],
    ]


def test_the_evaluations_that_are_kept_are_those_that_the_page_compares(
    two_episodes: list[Episode], tmp_path: Path
) -> None:
    solved, failed = ([replace(each, returns={"planner_0": 1.5})] * 30 for each in two_episodes)
    for step, episodes in ((0, solved), (90, failed), (0, failed), (90, solved)):  # of two runs into one folder
        trainer = SimpleNamespace(args=SimpleNamespace(output_dir=str(tmp_path)))
        trainer.state = SimpleNamespace(global_step=step)
        assert keep(trainer, episodes) is episodes
    shown = learned(read_log(tmp_path / "metrics.jsonl"), {}, ["planner_0"], is_tree=True)
    assert shown is not None
    assert shown["sentence"] == "The team learned: success went from 0.0% (step 0) to 100.0% (step 90)."
    assert shown["rows"][1] == ["return of planner_0", "1.5", "1.5", "+0"]


def pieces(tokenizer: PreTrainedTokenizerFast, text: str) -> list[str]:
    return [tokenizer.decode([i]) for i in tokenizer.encode(text)]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("@ . #\n. G .\n", ["@", " .", " #", "\n", ".", " G", " .", "\n"]),
        ("U D L R", ["U", " D", " L", " R"]),
        (" R R D", [" R", " R", " D"]),
        ("120", ["1", "2", "0"]),
    ],
)
def test_each_move_cell_digit_and_end_of_line_is_a_token_of_its_own(
    tokenizer: PreTrainedTokenizerFast, text: str, tokens: list[str]
) -> None:
    assert pieces(tokenizer, text) == tokens


def test_in_every_demonstration_the_moves_and_the_cells_are_as_many_tokens(
    tokenizer: PreTrainedTokenizerFast, careless: list[Demonstration]
) -> None:
    for row in careless:
        reply = [piece.strip() for piece in pieces(tokenizer, row["completion"][0]["content"])]
        assert reply[-len(moves(row)) :] == list(moves(row))
        board = "\n".join(prompt(row).splitlines()[1:6]) + "\n"
        assert len(pieces(tokenizer, board)) == 25 + 5
        assert all(len(piece) == 1 for piece in pieces(tokenizer, prompt(row)) if re.search(r"[\d\n]", piece))


def test_every_prompt_is_written_and_read_back_unchanged(
    tokenizer: PreTrainedTokenizerFast, careless: list[Demonstration]
) -> None:
    for row in careless:
        whole = tokenizer.apply_chat_template([*row["prompt"], *row["completion"]], tokenize=False)
        assert tokenizer.decode(tokenizer.encode(whole)) == whole
        assert tokenizer.decode(tokenizer.encode(prompt(row))) == prompt(row)


def test_a_prompt_is_mostly_board(tokenizer: PreTrainedTokenizerFast, careless: list[Demonstration]) -> None:
    # 30 tokens are the board; the sentences of the system prompt, some 600 letters, merge into a few.
    lengths = [len(tokenizer.apply_chat_template(row["prompt"])["input_ids"]) for row in careless]
    assert max(lengths) < 150


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(st.one_of(st.text(), st.text("UDLR .#@G0123\n\t,:'Moves"), st.sampled_from(SPECIAL)))
def test_any_text_is_written_and_read_back_unchanged(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def librarians(number: int, carelessness: float, **workflow: Any) -> list[Demonstration]:
    """Demonstrations of a workflow of the archives."""
    env = archives_v0.env(**prepare.TASK, **workflow)
    return prepare.demonstrate(env, number=number, seed=1, carelessness=carelessness)


@pytest.fixture(scope="module")
def questions() -> list[Demonstration]:
    """Of all workflows of the archives, most names drawn at random."""
    return [row for form in prepare.WORKFLOWS for row in librarians(100, 0.8, **form)]


def names(row: Demonstration) -> list[str]:
    """The names that a prompt of the archives shows."""
    return prepare.NAME.findall(prompt(row))


def reply(row: Demonstration) -> str:
    content: str = row["completion"][0]["content"]
    return content


@pytest.mark.parametrize("form", prepare.WORKFLOWS, ids=lambda form: "_".join(map(str, form.values())))
def test_demonstrations_of_the_archives_name_one_of_the_names_on_the_page(form: dict[str, Any]) -> None:
    for row in librarians(60, 1.0, **form):
        kind, name = reply(row).split(": ")
        assert kind in ("Search", "Say", "Answer")
        assert name in names(row)


def test_careful_demonstrations_of_the_team_name_what_was_found_last() -> None:
    rows = librarians(100, 0.0, workflow="team")
    assert [reply(row).split(": ")[0] for row in rows] == ["Search", "Say", "Search", "Say", "Answer"] * 20
    assert all(reply(row).endswith(f" {names(row)[-1]}") for row in rows)


def test_every_name_and_relation_in_the_archives_is_one_token(questions: list[Demonstration]) -> None:
    tokenizer = make_tokenizer(
        (m["content"] for row in questions for m in (*row["prompt"], *row["completion"])), prepare.APART
    )
    for row in questions:
        shown = pieces(tokenizer, prompt(row))
        assert [piece for piece in shown if prepare.NAME.fullmatch(piece)] == names(row)
        whole = tokenizer.apply_chat_template([*row["prompt"], *row["completion"]], tokenize=False)
        assert tokenizer.decode(tokenizer.encode(whole)) == whole
        assert len(tokenizer.apply_chat_template(row["prompt"])["input_ids"]) < 60


def test_the_table_of_intervals_has_the_values_worked_out_by_hand() -> None:
    header, *lines = interval_table({"the team": "1" * 8 + "0" * 2, "cut": "0" * 10}).splitlines()
    assert header.split() == ["success", "95%", "interval"]
    assert [line.split() for line in lines] == [
        ["the", "team", "80.0%", "[49.0%,", "94.3%]"],
        ["cut", "0.0%", "[0.0%,", "27.8%]"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("script", ["quickstart.py", "evaluate.py", "references.py"])
def test_a_number_of_episodes_below_one_is_refused_before_anything_is_made(script: str, tmp_path: Path) -> None:
    folder = [str(tmp_path)] if script == "evaluate.py" else ["--output", str(tmp_path / "made")]
    done = subprocess.run(
        [sys.executable, str(QUICKSTART / script), *folder, "--episodes", "0"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "argument --episodes: 0 is given; expected a whole number of at least 1" in done.stderr
    assert not (tmp_path / "made").exists()


def test_the_references_are_complete() -> None:
    references = json.loads(archives.REFERENCES.read_text())
    alone = {form.title for form in archives.ALONE}
    assert references.keys() == {archives.EXPERT_ITERATION, archives.SUPERVISED, *alone}
    assert all(len(reference["successes"]) == 500 for reference in references.values())
    page = (QUICKSTART.parents[1] / "docs/quickstart.md").read_text("utf-8")
    assert interval_table({name: each["successes"] for name, each in references.items()}).split("\n", 1)[1] in page
    assert f"about {next(iter(references.values()))['tokens']:,} tokens each" in page


def run(folder: Path, script: str, *arguments: str, timeout: int) -> str:
    """What a script of the quickstart prints, run as a user runs it: with as many threads as torch likes."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, str(QUICKSTART / script), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_references_are_what_training_them_anew_gives(tmp_path: Path) -> None:
    faulthandler.cancel_dump_traceback_later()  # pytest's limit of ten minutes; those of `run` are longer
    run(tmp_path, "references.py", "--output", str(tmp_path / "references.json"), timeout=3000)
    written, kept = (json.loads(path.read_text()) for path in (tmp_path / "references.json", archives.REFERENCES))
    assert written.keys() == kept.keys()
    for name, reference in kept.items():
        assert written[name]["tokens"] == pytest.approx(reference["tokens"], rel=0.05)
        # Another machine rounds otherwise, and trains to other weights.
        assert share(written[name]["successes"])[0] == pytest.approx(share(reference["successes"])[0], abs=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_trained_team_is_above_the_bound_of_lone_agents_and_without_messages_it_is_not(
    seed: int, tmp_path: Path
) -> None:
    faulthandler.cancel_dump_traceback_later()
    said = run(tmp_path, "quickstart.py", "--seed", str(seed), "--output", str(tmp_path), timeout=1500)
    report = json.loads((tmp_path / "report.json").read_text())
    rows, bound = report["rows"], report["lone_bound"]
    assert bound == 1 / 8
    assert len(report["evaluations"]) == archives.Training.num_steps // 50
    assert report["evaluations"][-1][1] > bound
    assert interval_table(rows) in said
    references = json.loads(archives.REFERENCES.read_text()).items()
    assert interval_table({name: each["successes"] for name, each in references}) in said
    assert share(rows["team, trained"])[1] > bound
    assert share(rows["team, trained, messages cut"])[1] <= bound
    assert share(rows["team, untrained"])[2] < share(rows["team, trained"])[1]
    assert (tmp_path / "curve.png").stat().st_size > 0

    again = run(tmp_path, "evaluate.py", str(tmp_path), timeout=300)
    found = re.search(r"^team +([\d.]+)% ", again, re.MULTILINE)
    assert found, again
    # The same adapters on the same instances, sampled anew: two standard errors of such a difference are 6 points.
    assert float(found[1]) / 100 == pytest.approx(share(rows["team, trained"])[0], abs=0.08)


@pytest.mark.slow
def test_the_quickstart_of_plan_path_trains_a_team_whose_adapters_can_be_reloaded(tmp_path: Path) -> None:
    faulthandler.cancel_dump_traceback_later()
    arguments = ("--task", "plan_path", "--episodes", "400", "--output", str(tmp_path))
    said = run(tmp_path, "quickstart.py", *arguments, timeout=1500)
    rows = json.loads((tmp_path / "report.json").read_text())["rows"]
    before, after = rows["team, warmed up"], rows["team, trained"]
    assert table(rows) in said
    assert before["success"] <= 0.5
    assert after["success"] >= before["success"] + 0.25
    assert before["interval"][1] < after["interval"][0]
    assert rows["team, trained, adapters swapped"]["success"] < after["success"]
    assert (tmp_path / "curve.png").stat().st_size > 0

    again = run(tmp_path, "evaluate.py", str(tmp_path), "--episodes", "400", timeout=300)
    found = re.search(r"^team +([\d.]+)% ", again, re.MULTILINE)
    assert found, again
    # The same adapters on the same instances, sampled anew: two standard errors of such a difference are 7 points.
    assert float(found[1]) / 100 == pytest.approx(after["success"], abs=0.1)
