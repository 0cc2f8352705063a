"""A training's rollouts, damaged in fifteen ways: the audit finds each. It finds nothing in runs that are sound."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback

from mortal import BRIEF, mortal
from pettingllms_envs.audit import Finding, audit
from pettingllms_envs.audit.recorded import episode_of, run_of
from pettingllms_envs.episodes import files
from third_party import Relay


Row = dict[str, Any]
STEPS = 3
UNTRAINED = {"cut-off replies"}
"""What the audit rightly says of a model that does not know when to end."""


class Snapshots(TrainerCallback):
    """Keeps the files of the log as they were after each step."""

    def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        log = Path(args.output_dir, "rollouts")
        shutil.copytree(log, Path(args.output_dir, f"after-{state.global_step}"))


@pytest.fixture(scope="module")
def run(model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of three steps, each of two instances of two decisions, with its log after each step."""
    path = tmp_path_factory.mktemp("run")
    logged(model_path, path, callbacks=[Snapshots()]).train()
    return path


def logged(model_path: str, path: Path, *, steps: int = STEPS, env: Any = BRIEF, **options: Any) -> Any:
    return mortal(model_path, path, steps=steps, env=env, log_rollouts=True, bf16=False, **options)


def lines_of(log: Path) -> list[Row]:
    return [json.loads(line) for line in (log / "episodes.jsonl").read_text("ascii").splitlines()]


def findings(log: Path) -> dict[str, Finding]:
    about = run_of(files.read_header(log))
    return {each.name: each for each in audit(about, (episode_of(about, row) for row in files.stream(log)))}


def bad(log: Path) -> set[str]:
    return {name for name, finding in findings(log).items() if finding.is_bad} - UNTRAINED


# ---- Fifteen ways to damage it --------------------------------------------------------------------------------------


def candidates(rows: list[Row]) -> list[Row]:
    return [each for row in rows for step in row["steps"] for each in step["candidates"]]


def one(rows: list[Row]) -> tuple[Row, Row]:
    """A row of the second step, and a decision of it whose candidates have different advantages."""
    found = ((row, step) for row in rows if row["training"]["step"] == 2 for step in row["steps"])
    return next((row, step) for row, step in found if len({each["advantage"] for each in step["candidates"]}) > 1)


def advantages_scaled(rows: list[Row]) -> None:
    for each in candidates(rows):
        each["advantage"] *= 2


def advantages_negated(rows: list[Row]) -> None:
    for each in candidates(rows):
        each["advantage"] *= -1


def advantages_swapped(rows: list[Row]) -> None:
    group = sorted(one(rows)[1]["candidates"], key=lambda each: each["advantage"])
    group[0]["advantage"], group[-1]["advantage"] = group[-1]["advantage"], group[0]["advantage"]


def reward_changed(rows: list[Row]) -> None:
    one(rows)[1]["candidates"][0]["reward"] += 1.0


def returns_changed(rows: list[Row]) -> None:
    row, _ = one(rows)
    row["returns"] = {agent: value + 1 for agent, value in row["returns"].items()}


def candidate_dropped(rows: list[Row]) -> None:
    one(rows)[1]["candidates"].pop()


def prompt_changed(rows: list[Row]) -> None:
    one(rows)[1]["prompt_ids"] = "0" * 16


def another_chosen(rows: list[Row]) -> None:
    group = one(rows)[1]["candidates"]
    worst = min(range(len(group)), key=lambda k: group[k]["reward"])
    for k, each in enumerate(group):
        each["chosen"] = k == worst


def all_chosen(rows: list[Row]) -> None:
    for each in one(rows)[1]["candidates"]:
        each["chosen"] = True


def another_policy(rows: list[Row]) -> None:
    step = one(rows)[1]
    step["policy"] = {"opener": "closer", "closer": "opener"}[step["policy"]]


def another_agent(rows: list[Row]) -> None:
    step = one(rows)[1]
    step["agent"] = {"opener_0": "closer_0", "closer_0": "opener_0"}[step["agent"]]


def replies_copied(rows: list[Row]) -> None:
    for row in rows:
        for step in row["steps"]:
            for each in step["candidates"]:
                each["reply"] = step["candidates"][0]["reply"]


def turn_changed(rows: list[Row]) -> None:
    one(rows)[1]["turn"] += 1


def episode_repeated(rows: list[Row]) -> None:
    rows.append(copy.deepcopy(one(rows)[0]))


def second_half_gone(rows: list[Row]) -> None:
    del rows[len(rows) // 2 :]


DAMAGE: dict[Callable[[list[Row]], None], str | None] = {
    advantages_scaled: "wrong advantages",
    advantages_negated: "wrong advantages",
    advantages_swapped: "wrong advantages",
    reward_changed: "wrong advantages",
    returns_changed: "wrong returns",
    candidate_dropped: "missing candidates",
    prompt_changed: None,
    another_chosen: "wrong choice",
    all_chosen: "wrong choice",
    another_policy: "swapped agents",
    another_agent: "swapped agents",
    replies_copied: "wrong choice",
    turn_changed: "wrong turns",
    episode_repeated: "repeated episodes",
    second_half_gone: "missing episodes",
}
"""What is wrong with it apart from the digests; those of a prompt's tokens are all that is known of them."""


@pytest.mark.parametrize("is_hidden", [False, True], ids=["", "digests computed again"])
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_each_damage_of_a_training_is_found(
    run: Path, tmp_path: Path, damage: Callable[[list[Row]], None], is_hidden: bool
) -> None:
    shutil.copytree(run / "rollouts", tmp_path / "log")
    rows = lines_of(tmp_path / "log")
    damage(rows)
    if is_hidden:
        rows = [{**row, "digest": files.digest(row)} for row in rows]
    (tmp_path / "log" / "episodes.jsonl").write_text("".join(map(files.write_line, rows)), "ascii")
    found = bad(tmp_path / "log")
    if damage in (episode_repeated, second_half_gone):  # rows as they were
        assert found == {DAMAGE[damage]}
    else:
        assert found >= {"changed rows", DAMAGE[damage]} - {None}


def test_a_step_lost_before_others_were_written_is_found(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "rollouts", tmp_path / "log")
    rows = [row for row in lines_of(tmp_path / "log") if row["training"]["step"] != 2]
    (tmp_path / "log" / "episodes.jsonl").write_text("".join(map(files.write_line, rows)), "ascii")
    found = findings(tmp_path / "log")["missing episodes"]
    assert found.text == "1 of 2 generations lack episodes (2 episodes come before it, expected 4)."
    assert found.where == "step 3, instance 4"


# ---- Sound runs -----------------------------------------------------------------------------------------------------


def test_a_sound_training_has_no_finding_and_every_row_was_looked_at(run: Path) -> None:
    found = findings(run / "rollouts")
    assert bad(run / "rollouts") == set()
    assert found["missing episodes"].text == "6 episodes: all that the run says it wrote."
    assert found["repeated episodes"].text == "6 episodes: each is there once."
    assert found["changed rows"].text == "6 rows: each as it was written."
    assert found["wrong returns"].text == "12 returns: each is the sum of the agent's rewards."
    assert found["wrong turns"].text == "12 decisions: each at its turn."


@pytest.fixture
def killed(run: Path, tmp_path: Path) -> Path:
    """The training's folder as a kill leaves it that comes while the second step is written."""
    shutil.copytree(run, tmp_path / "killed")
    for newer in (tmp_path / "killed" / f"checkpoint-{step}" for step in (2, STEPS)):
        shutil.rmtree(newer)
    log = tmp_path / "killed" / "rollouts"
    shutil.copy(run / "after-1" / "run.json", log)
    lines = (log / "episodes.jsonl").read_text("ascii").splitlines(keepends=True)
    (log / "episodes.jsonl").write_text("".join(lines[:3]) + lines[3][:100], "ascii")
    return tmp_path / "killed"


def test_a_killed_training_is_told_from_a_damaged_one(killed: Path) -> None:
    log = killed / "rollouts"
    assert bad(log) == set()
    text = "3 episodes: all that the run says it wrote. The last generation has 1 of 2: the run was stopped there."
    assert findings(log)["missing episodes"].text == text
    lines = (log / "episodes.jsonl").read_text("ascii").splitlines(keepends=True)
    (log / "episodes.jsonl").write_text(lines[0], "ascii")
    assert findings(log)["missing episodes"].text == "1 of 2 episodes that the run says it wrote."


def test_a_resumed_training_has_no_finding(killed: Path, model_path: str, run: Path) -> None:
    logged(model_path, killed).train(resume_from_checkpoint=str(killed / "checkpoint-1"))
    assert bad(killed / "rollouts") == set()
    assert findings(killed / "rollouts")["missing episodes"].text == "6 episodes: all that the run says it wrote."
    assert lines_of(killed / "rollouts") == lines_of(run / "rollouts")


def as_an_earlier_version_wrote_it(row: Row) -> Row:
    """Without how many episodes a generation has, and with the rewards of the agents that acted alone."""
    row = copy.deepcopy(row)
    row["training"] = {"step": row["training"]["step"]}
    for step in row["steps"]:
        step["rewards"] = {step["agent"]: step["rewards"][step["agent"]]}
    return {**row, "digest": files.digest(row)}


def test_a_training_that_an_earlier_version_began_has_no_finding(
    killed: Path, model_path: str, tmp_path: Path
) -> None:
    log = killed / "rollouts"
    rows = [as_an_earlier_version_wrote_it(row) for row in lines_of(killed / "after-1")]
    (log / "episodes.jsonl").write_text("".join(map(files.write_line, rows)), "ascii")
    about = files.read_header(log)
    files.write_json(log / "run.json", {name: value for name, value in about.items() if name != "written"})
    statuses = {name: finding.status for name, finding in findings(log).items()}
    assert (statuses["missing episodes"], statuses["wrong returns"]) == ("not recorded", "not recorded")
    assert bad(log) == set()
    logged(model_path, killed, steps=2).train(resume_from_checkpoint=str(killed / "checkpoint-1"))
    assert bad(log) == set()
    assert findings(log)["missing episodes"].text == "4 episodes: all that the run says it wrote."


class Twice(Relay):
    """Each agent writes twice running."""

    def step(self, action: str | None) -> None:
        super().step(action)
        if action is not None:
            self.agent_selection = self.possible_agents[len(self.written) // 2 % 2]


def test_agents_that_act_twice_running_are_no_finding(model_path: str, tmp_path: Path) -> None:
    logged(model_path, tmp_path, env=Twice, steps=1).train()
    (first, *_) = lines_of(tmp_path / "rollouts")
    agents = [(step["agent"], step["turn"]) for step in first["steps"]]
    assert agents == [("opener_0", 1), ("opener_0", 2), ("closer_0", 1), ("closer_0", 2)]
    assert bad(tmp_path / "rollouts") == set()


@pytest.mark.filterwarnings("ignore:an optimizer step waits")
def test_generations_within_one_step_have_a_number_each(model_path: str, tmp_path: Path) -> None:
    options = {"steps_per_generation": 1, "gradient_accumulation_steps": 2}
    logged(model_path, tmp_path, steps=2, **options).train()
    places = [(row["training"]["step"], row["training"]["before"]) for row in lines_of(tmp_path / "rollouts")]
    assert places == [(1, 0), (1, 0), (1, 2), (1, 2), (2, 4), (2, 4), (2, 6), (2, 6)]
    assert bad(tmp_path / "rollouts") == set()


def test_a_log_does_not_replace_the_episodes_of_something_else(model_path: str, tmp_path: Path) -> None:
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "episodes.jsonl").write_text('{"sample": 0}\n')
    with pytest.raises(ValueError, match=r"episodes\.jsonl has other episodes than a training's; expected a folder"):
        logged(model_path, tmp_path)
