"""Every cell of the paper's tables, as docs/paper.md has them, has a file to train with and a team to evaluate."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.commands import setting
from pettingllms_envs.evaluation.suites import read_suite
from pettingllms_trl.research.study.cells import check
from pettingllms_trl.research.study.plans.study_file import read_study
from shipped_configs import CONFIGS, EXAMPLES, values


PAGE = (EXAMPLES.parent / "docs" / "paper.md").read_text("utf-8")
CODE = re.compile(r"`([^`]+)`")


def rows(title: str) -> list[list[str]]:
    """The cells of the page's table whose head begins so."""
    table = PAGE[PAGE.index(f"| {title} |") :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


BENCHMARKS = [
    (name, [*CODE.findall(trained), *CODE.findall(trained)][:2], *CODE.findall(evaluated))
    for name, trained, evaluated in rows("benchmark")
]
LEVELS = {level.strip("`"): [*map(str.split, map("".join, map(CODE.findall, own)))] for _, level, *own in rows("row")}
SETTINGS = {"games": ("sudoku", "sokoban", "plan_path"), "programs": ("live_code_bench", "apps", "code_contests")}


def workflow_of(level: str, env: str) -> str:
    """The workflow that the page's table of rows names for a benchmark."""
    column = next((i for i, names in enumerate(SETTINGS.values()) if env in names), 2)
    option, name = LEVELS[level][column]
    assert option == "--workflow"
    return name


def made(words: list[str], workflow: str) -> Any:
    """The environment that `bench` makes of these words."""
    env, *options = words
    pairs = [setting(options[i + 1]) for i, word in enumerate(options) if word == "--set"]
    return pettingllms_envs.make(env, workflow=workflow, **dict(pairs))


def test_the_tables_have_ninety_cells() -> None:
    heads = [PAGE[PAGE.index(f"| Qwen3-{size} |") :].partition("\n")[0] for size in ("1.7B", "8B")]
    assert heads[0].split("|")[2:] == heads[1].split("|")[2:]
    assert [cell.strip() for cell in heads[0].split("|")[2:-1]] == [name for name, *_ in BENCHMARKS]
    assert [len(row) for size in ("1.7B", "8B") for row in rows(f"Qwen3-{size}")] == [10] * 10


@pytest.mark.parametrize("size", ["1.7B", "8B"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("name", "trained", "evaluated"), BENCHMARKS, ids=[name for name, *_ in BENCHMARKS])
def test_a_trained_cell_has_a_file_whose_team_plays_its_benchmark(
    name: str, trained: list[str], evaluated: str, level: str, size: str
) -> None:
    file = CONFIGS / f"{trained[level != 'L0']}_{level}_{size}.yaml"
    given = values(file)
    words = evaluated.split()
    workflow = workflow_of(level, words[0])
    benchmark = made(words, workflow)
    team = pettingllms_envs.make(given["env_id"], **given["env_kwargs"])
    assert given["env_kwargs"]["workflow"] == workflow
    assert benchmark.possible_agents == team.possible_agents
    assert benchmark.metadata["settings"]["num_turns"] == given["env_kwargs"]["num_turns"] == 4
    assert f"outputs/{file.stem}" == given["output_dir"]


LINES = re.findall(r"^train (\w+_(L\d)_([\d.]+B)) (\w+)\.yaml (.*)$", PAGE, re.M)
VARIABLES = dict(re.findall(r'^(\w+)="([^"]*)"$', PAGE, re.M))


def options_of(line: str) -> list[str]:
    """What the shell makes of a command's options."""
    return re.sub(r"\$(\w+)", lambda name: VARIABLES[name[1]], line).split()


def test_each_level_and_size_has_a_command_for_eight_gpus_with_the_papers_batch() -> None:
    assert [(level, size) for _, level, size, *_ in LINES] == [
        (level, size) for size in ("1.7B", "8B") for level in ("L0", "L1", "L2", "L3")
    ]
    for name, *_, line in LINES:
        words = options_of(line)
        own = values(CONFIGS / f"{name}.yaml") | dict(zip(words[::2], words[1::2], strict=True))
        rows = own.get("--per_device_train_batch_size", own["per_device_train_batch_size"])
        assert int(rows) * int(own["--gradient_accumulation_steps"]) * 8 == 64


def test_the_rows_without_training_are_the_suites_environments() -> None:
    found = [
        (each["env"], each.get("set", {}), each["workflow"], each.get("limit"))
        for each in read_suite(str(EXAMPLES / "suites" / "untrained.yaml")).environments
    ]
    expected = []
    for _, _, evaluated in BENCHMARKS:
        env, *options = evaluated.split()
        own = dict(setting(options[i + 1]) for i, word in enumerate(options) if word == "--set")
        limit = int(options[options.index("--limit") + 1]) if "--limit" in options else None
        expected += [(env, own, workflow_of(level, env), limit) for level in ("L0", "L1")]
    assert found == expected


def test_the_ablation_is_a_study_whose_policies_a_suite_plays_together_and_swapped(tmp_path: Path) -> None:
    study = read_study(EXAMPLES.parent / "benchmarks" / "studies" / "plan_path_ablation.yaml")
    on_cpu = {"use_cpu": True, "bf16": False, "use_vllm": False}
    runs = [study.run(cell) for cell in study.outline().cells()]
    assert len(runs) == 5 * 3
    for run in runs:
        run.config["train"].update(on_cpu)
        check(run, tmp_path)
    folders = {f"outputs/plan_path_ablation/runs/{run.cell.name}/team" for run in runs}
    suite = read_suite(str(EXAMPLES / "suites" / "plan_path_ablation.yaml"))
    agents = {player.name: " ".join(player.agents) for player in suite.players}
    assert {*re.findall(r"outputs/[\w/]+/team", " ".join(agents.values()))} <= folders
    swapped = re.findall(r"(\w+)=vllm:\S+/together/101/team/(\w+)", agents["swapped"])
    assert swapped == [("tool", "planner"), ("planner", "tool")]
    alone = re.findall(r"(\w+)=team:\S+/(\w+)/101/team", agents["trained alone"])
    assert alone == [("tool", "tool_alone"), ("planner", "planner_alone")]
