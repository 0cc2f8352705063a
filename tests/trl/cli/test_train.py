"""`pettingllms train`, as a person in a terminal meets it: every field, every mistake, and a run from end to end."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from typing import Any

import pandas
import pytest
import yaml
from datasets import Dataset
from rich.console import Console
from transformers import TrainerCallback
from trl import ScriptArguments

from pettingllms_envs import cli as host
from pettingllms_envs.commands import Refused, plug_ins
from pettingllms_trl import Policy
from pettingllms_trl.cli import __main__ as cli
from pettingllms_trl.cli import arguments
from pettingllms_trl.cli.datasets import check_apart, in_turns, seeds_and_levels
from pettingllms_trl.cli.train import KINDS, TrainArguments, datasets, make_trainer, run
from pettingllms_trl.cli.trees import trees
from pettingllms_trl.config_files import read
from pettingllms_trl.research.study import __main__ as study
from picky import first


ROOT = Path(__file__).parents[3]
GAME = {
    "env_id": "plan_path",
    "env_kwargs": {"size": 4, "num_turns": 2},
    "train_seeds": [0, 8],
    "train_split": "train",
    "num_generations": 2,
    "per_device_train_batch_size": 4,
    "max_completion_length": 4,
    "max_steps": 1,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
}


@pytest.fixture
def config(tmp_path: Path, model_path: str) -> Path:
    """A YAML file that trains on the tiny model."""
    return written(tmp_path, model_name_or_path=model_path, output_dir=str(tmp_path / "out"))


def written(folder: Path, **more: Any) -> Path:
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump({**GAME, **more}))
    return file


def parse(*argv: str) -> tuple[Any, ...]:
    return arguments.parse(argv, KINDS, prog="test")


# ---- Arguments ----------------------------------------------------------------------------------------------------


def test_the_command_line_counts_before_the_file_and_the_file_before_the_defaults(config: Path) -> None:
    script, _, args, model = parse(
        f"--config={config}", "--learning_rate", "1e-3", "--env_kwargs", '{"size": 5}', "--lora_r", "2"
    )
    assert (args.learning_rate, args.num_generations, args.temperature) == (1e-3, 2, 1.0)
    assert script.env_kwargs == {"size": 5}
    assert (model.lora_r, model.lora_alpha, model.lora_dropout, model.lora_target_modules) == (
        2,
        32,
        0.0,
        "all-linear",
    )


def test_policies_are_a_layout_or_a_mapping_in_yaml_or_json(tmp_path: Path) -> None:
    mapping = {"drafter": "d", "planner_0": {"adapter": "p", "learning_rate": 1e-4}}
    expected = {"drafter": "d", "planner_0": Policy(adapter="p", learning_rate=1e-4)}
    for argv in (["--config", str(written(tmp_path, policies=mapping))], ["--policies", json.dumps(mapping)]):
        script, *_ = parse(*argv, "--env", "some/env-v0", "--output_dir", str(tmp_path), "--use_cpu")
        assert script.policies == expected
    script, *_ = parse("--policies", "lora", "--env", "some/env-v0", "--output_dir", str(tmp_path), "--use_cpu")
    assert script.policies == "lora"


@pytest.mark.parametrize(
    "argv",
    [
        ["--train_seeds", "0", "100", "--train_levels", "1", "2"],
        ["--train_seeds", "[0, 100]", "--train_levels", "[1, 2]"],
        ["--train_seeds", "0,100", "train_levels=[1, 2]"],
        ["--train_seeds", "[0,", "100]", "--train_levels", "[1,2]"],  # as a shell splits it without quotes
        ["--train-seeds=[0,100]", "--train_levels=[1, 2]"],
    ],
)
def test_ranges_and_levels_are_integers_or_json_on_the_command_line(argv: list[str], tmp_path: Path) -> None:
    script, *_ = parse(*argv, "--env", "some/env-v0", "--output_dir", str(tmp_path), "--use_cpu")
    assert (script.train_seeds, script.train_levels) == ([0, 100], [1, 2])


@pytest.mark.parametrize(
    ("policies", "use_peft", "rank"),
    [
        ("lora", False, 4),  # whose adapters would otherwise have been of another rank than was asked for
        ({"drafter": "d", "planner": Policy(model="m")}, False, 4),
        ("shared", True, 4),
        ("shared", False, None),
        ("full", False, None),
    ],
)
def test_what_is_said_of_adapters_reaches_all_that_there_are(policies: Any, use_peft: bool, rank: int | None) -> None:
    found = arguments.peft_config(arguments.TeamModelConfig(lora_r=4, use_peft=use_peft), policies)
    assert (found and found.r) == rank


CHOICES: dict[str, Any] = {
    "credit": {"loo": {"value": "outcome"}},
    "filters": ["nonzero_variance", {"signal_to_noise": {"threshold": 0.5}}],
}


def test_credit_filters_and_weights_are_chosen_in_yaml_or_json(tmp_path: Path) -> None:
    numbers = {"alpha": 0.5, "reward_parts": {"format": 2, "progress": 0.0}, "max_resamples": 3}
    as_json = [
        *("--credit", json.dumps(CHOICES["credit"])),
        *("--filters", "nonzero_variance", json.dumps(CHOICES["filters"][1])),
        *("--alpha", "0.5", "--max_resamples", "3", "--reward_parts", json.dumps(numbers["reward_parts"])),
    ]
    for argv in (["--config", str(written(tmp_path, **CHOICES, **numbers))], as_json):
        script, _, args, _ = parse(*argv, "--env", "some/env-v0", "--output_dir", str(tmp_path), "--use_cpu")
        assert arguments.choice("credit", script.credit) == CHOICES["credit"]
        assert [arguments.choice("filters", one) for one in script.filters] == CHOICES["filters"]
        assert {name: getattr(args, name) for name in numbers} == numbers


def test_a_dotted_path_is_a_function_with_or_without_options() -> None:
    assert arguments.choice("filters", "picky.first") is first
    made = arguments.choice("filters", {"picky.first": {"most": 1}})
    assert (made.func, made.keywords) == (first, {"most": 1})
    assert arguments.choice("filters", "nonzero_variance") == "nonzero_variance"
    assert arguments.choice("filters", "picky:first") is first  # as entry points write a path


def test_a_model_that_the_hub_does_not_give_is_named(tmp_path: Path) -> None:
    policies = {"drafter": Policy(model="org/second")}
    with (
        pytest.raises(OSError, match=r"cannot load 'org/first' or 'org/second': We couldn't connect to .* Or give a"),
        arguments.naming_models("org/first", policies),
    ):
        raise OSError("We couldn't connect to 'https://huggingface.co' to load the files.")
    with pytest.raises(OSError, match=r"^no space left$"), arguments.naming_models("org/first", "shared"):
        raise OSError("no space left")


def test_a_run_from_a_file_uses_them(tmp_path: Path, model_path: str) -> None:
    file = written(
        tmp_path,
        model_name_or_path=model_path,
        output_dir=str(tmp_path / "out"),
        credit={"loo": {"scale": "group"}},
        filters={"picky.first": {"most": 2}},
        reward_parts={"format": 2.0},
        max_resamples=1,
        log_completions=True,
        num_completions_to_print=0,
    )
    assert cli.train(["--config", str(file)]) == 0
    table = pandas.read_parquet(tmp_path / "out" / "completions" / "completions_00001.parquet")
    assert len(table) == 2 * 2  # two decisions of two candidates
    assert list(table["environment"]) == pytest.approx([-0.4] * 4)  # -0.2 for what cannot be read, times 2


def test_a_range_of_seeds_becomes_rows_whose_levels_take_turns() -> None:
    rows = seeds_and_levels("train_seeds", [3, 6], [1, 5], "train")
    assert rows is not None
    assert rows.to_list() == [
        {"seed": 3, "split": "train", "level": 1},
        {"seed": 4, "split": "train", "level": 5},
        {"seed": 5, "split": "train", "level": 1},
    ]
    bare = seeds_and_levels("train_seeds", [0, 2], None, None)
    assert bare is not None
    assert bare.to_list() == [{"seed": 0}, {"seed": 1}]


@pytest.mark.parametrize(
    ("train", "evaluation", "splits", "meet"),
    [
        ([0, 10], [9, 12], (None, None), True),
        ([0, 10], [10, 12], (None, None), False),
        ([0, 10], [0, 10], ("train", "validation"), False),
        ([0, 10], [0, 10], ("train", "train"), True),
        ([0, 10], [0, 10], (None, "train"), True),  # which is what None is
        ([0, 10], [0, 10], (None, "validation"), False),
        ([0, 10], None, (None, None), False),
    ],
)
def test_an_evaluation_on_what_is_trained_on_is_refused(train: Any, evaluation: Any, splits: Any, meet: bool) -> None:
    if not meet:
        check_apart(train, evaluation, splits=splits)
        return
    with pytest.raises(ValueError, match="expected instances of which none is trained on"):
        check_apart(train, evaluation, splits=splits)


@pytest.mark.parametrize(
    ("train", "evaluation", "split", "num_both"),
    [
        ([0, 3], [10, 12], None, 2),  # the problems 0, 1, 2, and 0, 1
        ([0, 3], [8, 10], "train", 0),  # 3 and 4
        ([0, 9], [9, 11], None, 2),  # all, and 4, 0
    ],
)
def test_an_evaluation_on_a_problem_of_a_data_set_that_is_trained_on_is_refused(
    train: list[int], evaluation: list[int], split: str | None, num_both: int, tmp_path: Path
) -> None:
    file = tmp_path / "sums.jsonl"
    file.write_text("".join(f'{{"problem": "What is {i} plus {i}?", "answer": "{2 * i}"}}\n' for i in range(5)))
    team = TrainArguments(
        env_id="math",
        env_kwargs={"data": str(file), "layout": "polaris"},
        train_seeds=train,
        eval_seeds=evaluation,
        eval_split=split,
    )
    with (
        nullcontext()
        if not num_both
        else pytest.raises(
            ValueError,
            match=f"have {num_both} of the 5 problems of the data set in the split 'train' in common, .* modulo 5",
        )
    ):
        rows = datasets(team, ScriptArguments(), evaluated=True)
        assert [len(each) for each in rows if isinstance(each, Dataset)] == [3, 2]


def test_environments_take_turns_over_the_seeds_each_with_its_own_levels() -> None:
    rows = in_turns("train_seeds", [4, 9], {"a": [1, 2], "b": None}, "train")
    assert rows is not None
    assert rows.to_list() == [
        {"environment": "a", "level": 1, "seed": 4, "split": "train"},
        {"environment": "b", "level": None, "seed": 5, "split": "train"},
        {"environment": "a", "level": 2, "seed": 6, "split": "train"},
        {"environment": "b", "level": None, "seed": 7, "split": "train"},
        {"environment": "a", "level": 1, "seed": 8, "split": "train"},
    ]
    bare = in_turns("train_seeds", [0, 1], {"a": None}, None)
    assert bare is not None
    assert bare.to_list() == [{"environment": "a", "seed": 0}]


# ---- Mistakes -----------------------------------------------------------------------------------------------------

WRONG = {
    "unknown field in the file": (
        {"learning_rat": 1},
        [],
        "has 'learning_rat'; expected a field that is known. Did you",
    ),
    "unknown field": ({}, ["--num_generation", "4"], "'--num_generation'; .* Did you mean '--num_generations'?"),
    "not a number": ({}, ["--learning_rate", "fast"], "--learning_rate.*: invalid float value: 'fast'"),
    "environment as TRL's variables": ({"env": "sokoban"}, [], "TRL expected a mapping of environment variables"),
    "no environment": ({"env_id": None}, [], "no env_id; expected"),
    "unknown environment": ({"env_id": "pettingllms/sokobann-v0"}, [], "Did you mean 'sokoban'?"),
    "unknown setting": ({"env_kwargs": {"sise": 4}}, [], "env_kwargs is {'sise': 4}: .*expected settings of"),
    "setting out of range": ({"env_kwargs": {"size": 1}}, [], "size"),
    "settings that are no mapping": ({}, ["--env_kwargs", "size=4"], "env_kwargs is 'size=4'; expected a mapping"),
    "imports of nothing": ({}, ["--imports"], "expected at least one argument. `pettingllms train --help`"),
    "package that is not installed": ({"imports": ["pettingllms_env"]}, [], "imports names 'pettingllms_env'"),
    "no model": ({"model_name_or_path": None}, [], "no model_name_or_path; expected"),
    "unknown layout": ({"policies": "lorra"}, [], "policies='lorra'"),
    "unknown role": ({"policies": {"drafter": "d", "planer": "p"}}, [], "Did you mean 'planner'?"),
    "unknown field of a policy": ({"policies": {"drafter": {"adaptor": "d"}}}, [], "has 'adaptor'; .* 'adapter'?"),
    "policy of no kind": ({"policies": {"drafter": 3}}, [], r"policies\['drafter'\] is 3; expected"),
    "no rows": ({"train_seeds": None}, [], "train_seeds is None and dataset_name is None; expected one of them"),
    "two kinds of rows": ({"dataset_name": "rows"}, [], "expected one of them"),
    "split beside a data set": (
        {"train_seeds": None, "dataset_name": "rows"},
        [],
        "train_split is 'train' and eval_split is None with dataset_name, .*; expected neither. Give the rows",
    ),
    "range with a dash": (
        {},
        ["--train_seeds", "0-100"],
        r"command line has train_seeds: \['0-100'\]; expected a list of integers. Write train_seeds: \[0, 1000\].",
    ),
    "levels that are no numbers": (
        {},
        ["--train_levels", '["a"]'],
        r"expected a list of integers. Write train_levels: \[1, 2\].",
    ),
    "a number for a range": (
        {"train_seeds": 100},
        [],
        r"has train_seeds: 100; expected a list of integers. Write train_seeds: \[0, 1000\].",
    ),
    "range of fractions": (
        {"eval_seeds": [0.0, 100.0]},
        [],
        r"eval_seeds: \[0.0, 100.0\]; expected a list of integers",
    ),
    "range of one number": ({"train_seeds": [5]}, [], r"train_seeds is \[5\]; expected two numbers"),
    "levels of nothing": ({"eval_levels": [1]}, [], r"there are levels \[1\], but no eval_seeds"),
    "nothing to evaluate on": (
        {"eval_strategy": "steps", "eval_steps": 1},
        [],
        "nothing to evaluate on. Add eval_seeds",
    ),
    "seeds that meet": ({"eval_seeds": [0, 2], "eval_split": "train"}, [], "meet in the split 'train'"),
    "trees without a table": ({"num_trees": 1}, [], "num_trees is 1, but log_completions is False"),
    "tracker that is not installed": ({"report_to": "swanlab"}, [], "report_to names 'swanlab'; expected"),
    "unknown credit": ({"credit": "at_gropo"}, [], "Did you mean 'at_grpo'?"),
    "credit that is nowhere": ({"credit": "math.cosin"}, [], "credit names 'math.cosin': .*expected the path"),
    "credit without its options": (
        {"credit": {"loo": "outcome"}},
        [],
        "credit has {'loo': 'outcome'}; expected",
    ),
    "unknown option of a credit": ({"credit": {"loo": {"valu": "reward"}}}, [], "the option 'valu', expected some of"),
    "unknown filter": ({"filters": ["zero_variance"]}, [], "Did you mean 'nonzero_variance'?"),
    "two filters in one": ({"filters": [{"a": {}, "b": {}}]}, [], "filters has .*; expected a name"),
    "unknown reward part": ({}, ["--reward_parts", '{"progres": 2}'], "Did you mean 'progress'?"),
    "weights that are none": ({}, ["--reward_parts", "progress=2"], "reward_parts='progress=2', expected a mapping"),
    "reward that is no function": ({"reward_funcs": ["math.pi"]}, [], "reward_funcs names 'math.pi'; expected"),
    "adapters that are not there": ({"policies": "lora", "adapters": "nowhere"}, [], "lacks drafter, planner"),
    "executor that a file cannot hold": (
        {"env_kwargs": {"workflow": "tool_plan", "executor": "ToolExecutor()"}},
        [],
        "got the executor 'ToolExecutor\\(\\)'; expected one that runs.* an executor is, is for a script",
    ),
    "curriculum without levels": (
        {"curriculum": {"window": 3}},
        [],
        "curriculum is {'window': 3}; expected a mapping",
    ),
    "unknown field of a curriculum": (
        {"curriculum": {"levels": [1], "advance": 0.5}},
        [],
        "curriculum has 'advance'; .* Did you mean 'advance_at'?",
    ),
    "curriculum of unknown levels": ({"curriculum": {"levels": [1, 99]}}, [], r"curriculum has the levels \[99\]"),
    "schedule that is nowhere": ({"schedule": "math.turns"}, [], "schedule names 'math.turns': .*expected the path"),
    "turns of one policy": ({"alternate_every": 1}, [], "alternate_every is 1, but .* are base; expected two"),
    "one environment and several": (
        {"environments": {"a": "pettingllms/sokoban-v0"}},
        [],
        "there are environments and env_id='plan_path'.*; expected one kind",
    ),
    "group of one": ({"num_generations": 1}, [], "num_generations=1"),
}


@pytest.mark.parametrize(("change", "more", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_one_line_and_exit_status_2_before_any_model_is_loaded(
    change: dict[str, Any], more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"model_name_or_path": "no/model", "output_dir": str(tmp_path / "out"), **change}
    given = {name: value for name, value in given.items() if value is not None}
    absent = [name for name, value in change.items() if value is None]
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({name: v for name, v in {**GAME, **given}.items() if name not in absent}))
    assert cli.train(["--config", str(file), *more]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert re.search(said, line), line


MIXED = {
    "plan_path": {"env_id": "pettingllms/plan_path-v0", "env_kwargs": {"size": 4, "num_turns": 1}},
    "sokoban": {"env_id": "pettingllms/sokoban-v0", "env_kwargs": {"num_turns": 1}, "train_levels": [1, 2]},
}
WRONG_MIXED = {
    "no id": ({"environments": {"a": {"env_kwargs": {}}}}, r"environments\['a'\] is .*expected an id, or a mapping"),
    "unknown field": (
        {"environments": {"a": {"env_id": "x", "env_kwarg": {}}}},
        r"environments\['a'\] has 'env_kwarg'; .* Did you mean 'env_kwargs'?",
    ),
    "unknown id": ({"environments": {"a": "pettingllms/sokobann-v0"}}, "Did you mean 'sokoban'?"),
    "levels of all": ({"train_levels": [1, 2]}, r"train_levels is \[1, 2\] with several environments, .*of each"),
    "no mapping": ({"environments": "a,b"}, "environments is 'a,b'; expected a mapping"),
    "a curriculum for all": ({"curriculum": {"levels": [1]}}, "curriculum has 'levels'; expected a field"),
    "levels that there are not": (
        {"curriculum": {"sokoban": {"levels": [99]}}},
        r"curriculum has the levels \[99\]; the environment's level is one of",
    ),
}


@pytest.mark.parametrize(("change", "said"), WRONG_MIXED.values(), ids=WRONG_MIXED.keys())
def test_a_mistake_about_several_environments_is_one_line_too(
    change: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = mixed(tmp_path, "no/model", **change)
    assert cli.train(["--config", str(file)]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert re.search(said, line), line


def mixed(folder: Path, model: str, **more: Any) -> Path:
    """A YAML file of a run with two environments."""
    alone = {name: value for name, value in GAME.items() if name not in ("env_id", "env_kwargs")}
    given = {**alone, "environments": MIXED, "model_name_or_path": model, "output_dir": str(folder / "out"), **more}
    (folder / "mixed.yaml").write_text(yaml.safe_dump(given))
    return folder / "mixed.yaml"


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "No such file"), ("a: [", "expected YAML"), ("- 1", "has a list; expected lines")],
    ids=["missing", "broken", "a list"],
)
def test_a_file_that_is_no_configuration_is_refused(
    text: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "run.yaml").write_text(text)
    assert cli.train(["--config", str(tmp_path / "run.yaml")]) == 2
    assert said in capsys.readouterr().err


def test_a_model_that_cannot_be_loaded_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    file = written(tmp_path, model_name_or_path=str(tmp_path / "empty"), output_dir=str(tmp_path / "out"))
    assert cli.train(["--config", str(file)]) == 2
    assert "empty" in capsys.readouterr().err


# ---- The command among the commands -------------------------------------------------------------------------------


def test_the_entry_points_are_declared_and_lead_to_the_commands() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = project["entry-points"]["pettingllms.commands"]
    own = {name: f"pettingllms_trl.cli.__main__:{name}" for name in cli.COMMANDS}
    files = {
        name: f"pettingllms_envs.research.commands.{name}" for name in ("blame", "blind", "cooperation", "crossplay")
    }
    assert declared == {**own, "study": "pettingllms_trl.research.study.__main__:study", **files}
    assert set(host.SUMMARIES) == set(declared)
    for name, target in declared.items():
        found = importlib.metadata.EntryPoint(name, target, "pettingllms.commands").load()
        assert callable(found.run) if name in files else found is getattr(study if name == "study" else cli, name)


def installed(folder: Path, **commands: str) -> dict[str, str]:
    """What pip leaves of a package that brings commands; returns the variables with which Python finds it."""
    about = folder / "bringer-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bringer\nVersion: 1.0\n")
    lines = [f"{name} = {target}" for name, target in commands.items()]
    (about / "entry_points.txt").write_text("\n".join(["[pettingllms.commands]", *lines]))
    return os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "COLUMNS": "200"}


def test_help_names_the_commands_of_other_packages_and_loads_neither_them_nor_torch(tmp_path: Path) -> None:
    environment = installed(tmp_path, train="pettingllms_trl.cli.__main__:train", dance="no_such_package:dance")
    program = (
        "import sys; from pettingllms_envs.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print('torch' in sys.modules, 'pettingllms_trl' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=tmp_path, check=True
    )
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert any(each.startswith("train train a team by reinforcement learning") for each in lines)
    assert "dance command of the package no_such_package" in lines
    assert lines[-1] == "False False"


def test_a_command_of_another_package_gets_its_arguments_and_gives_the_exit_status(tmp_path: Path) -> None:
    environment = installed(tmp_path, dance="dancing:dance")
    (tmp_path / "dancing.py").write_text("def dance(argv):\n    print(argv)\n    return 7\n")
    done = subprocess.run(
        [sys.executable, "-m", "pettingllms_envs.cli", "dance", "--help", "x"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, "['--help', 'x']\n")


def test_a_command_that_two_packages_bring_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [importlib.metadata.EntryPoint("dance", f"{name}:dance", "pettingllms.commands") for name in ("a", "b")]
    monkeypatch.setattr("pettingllms_envs.commands.entry_points", lambda group: points)
    with pytest.raises(Refused, match="the command 'dance' is a:dance and b:dance; expected one"):
        plug_ins()


def test_without_the_trainers_libraries_the_command_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'trl'", name="trl")

    monkeypatch.setattr(cli.importlib, "import_module", missing)
    assert cli.train([]) == 2
    assert "pip install -e '.[trl]' in a checkout of PettingLLMs" in capsys.readouterr().err


def test_a_misspelt_command_shows_those_of_other_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    point = importlib.metadata.EntryPoint("train", "pettingllms_trl.cli.__main__:train", "pettingllms.commands")
    monkeypatch.setattr("pettingllms_envs.commands.entry_points", lambda group: [point])
    assert host.main(["trian"]) == 2
    assert "'train'" in capsys.readouterr().err


def test_the_module_for_accelerate_needs_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "the command is ''; expected train or sft." in capsys.readouterr().err


# ---- A run --------------------------------------------------------------------------------------------------------


def test_a_run_trains_prints_trees_saves_evaluates_and_can_be_gone_on_from(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--policies", "lora", "--log_completions", "--num_trees", "2", "--num_completions_to_print", "0"]
    evaluation = ["--eval_seeds", "0", "3", "--eval_split", "validation", "--eval_levels", "1", "2"]
    assert cli.main(["train", "--config", str(config), *options, *evaluation]) == 0
    out = tmp_path / "out"
    for role in ("drafter", "planner"):
        assert (out / role / "adapter_model.safetensors").is_file()
    resolved = read(out / "config.yaml").values
    given = {"policies": "lora", "num_trees": 2, "eval_seeds": [0, 3], "learning_rate": None}
    assert {name: resolved.get(name) for name in given} == given
    assert resolved["env_kwargs"] == GAME["env_kwargs"]
    results = json.loads((out / "eval_results.json").read_text())
    assert 0.0 <= results["eval_outcome/success"] <= 1.0
    shown = capsys.readouterr().out
    assert "step 1, instance 0, episode 0" in shown
    assert shown.count("turn 0, drafter_0") == 2
    # From where it ended, at a rate of 0: its adapters as they are.
    more = [
        "--policies",
        "lora",
        "--adapters",
        str(out),
        "--output_dir",
        str(tmp_path / "more"),
        "--learning_rate",
        "0",
    ]
    assert cli.main(["train", "--config", str(config), *more]) == 0
    for role in ("drafter", "planner"):
        one, other = (folder / role / "adapter_model.safetensors" for folder in (out, tmp_path / "more"))
        assert one.read_bytes() == other.read_bytes()


def test_a_run_of_several_environments_with_a_curriculum_in_turns(model_path: str, tmp_path: Path) -> None:
    file = mixed(
        tmp_path,
        model_path,
        policies="lora",
        alternate_every=1,
        curriculum={"plan_path": {"levels": [1, 2], "window": 4}},
        eval_seeds=[0, 3],
        eval_split="validation",
        log_completions=True,
        num_completions_to_print=0,
        max_steps=2,
    )
    assert cli.main(["train", "--config", str(file)]) == 0
    results = json.loads((tmp_path / "out" / "eval_results.json").read_text())
    decisions = {name: results[f"eval_env/{name}/rollout/decisions"] for name in MIXED}
    assert results["eval_rollout/decisions"] == pytest.approx(
        (2 * decisions["plan_path"] + decisions["sokoban"])
        / 3  # the seeds 0, 1, 2 are of plan_path, sokoban, plan_path
    )
    tables = [pandas.read_parquet(file) for file in sorted((tmp_path / "out" / "completions").glob("*.parquet"))]
    assert [set(table["agent"]) for table in tables] == [{"drafter_0"}, {"planner_0"}]
    assert {name for table in tables for name in table["env"]} == set(MIXED)


def test_rows_may_come_from_a_file(config: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    for split, seeds in (("train", range(8)), ("test", range(8, 10))):
        (rows / f"{split}.jsonl").write_text("".join(json.dumps({"seed": i, "level": 1}) + "\n" for i in seeds))
    given = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({name: v for name, v in given.items() if not name.startswith("train_")}))
    evaluation = ["--eval_strategy", "steps", "--eval_steps", "1"]
    assert cli.train(["--config", str(config), "--dataset_name", str(rows), *evaluation]) == 0
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert json.loads((tmp_path / "out" / "eval_results.json").read_text())["eval_rollout/decisions"] > 0


# ---- Trees --------------------------------------------------------------------------------------------------------


def test_a_tree_shows_the_decisions_in_order_with_every_candidate() -> None:
    def row(agent: str, turn: int, text: str, *, reward: float, chosen: bool) -> dict[str, Any]:
        return {
            "step": 3,
            "instance": 0,
            "episode": 0,
            "agent": agent,
            "turn": turn,
            "completion": [{"role": "assistant", "content": text}],
            "environment": reward,
            "advantage": reward - 0.5,
            "chosen": chosen,
        }

    # As TRL writes it, policy by policy.
    table = pandas.DataFrame(
        [
            row("drafter_0", 0, "I think\nMoves: U", reward=0.0, chosen=False),
            row("drafter_0", 0, "Moves: R", reward=1.0, chosen=True),
            row("drafter_0", 1, "Moves: L", reward=0.25, chosen=True),
            row("planner_0", 0, "Moves:\x07 D", reward=-0.2, chosen=True),
        ]
    )
    stream = StringIO()
    for tree in trees(table):
        Console(file=stream, width=80).print(tree)
    assert stream.getvalue().splitlines() == [
        "step 3, instance 0, episode 0",
        "├── turn 0, drafter_0",
        "│   ├──   +0.00 (-0.50) I think Moves: U",
        "│   └── > +1.00 (+0.50) Moves: R",
        "├── turn 0, planner_0",
        "│   └── > -0.20 (-0.70) Moves:\N{REPLACEMENT CHARACTER} D",
        "└── turn 1, drafter_0",
        "    └── > +0.25 (-0.25) Moves: L",
    ]


class Stop(TrainerCallback):
    """Sends this process SIGTERM at the end of its first step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.usefixtures("signals_on_purpose")
def test_a_run_that_a_signal_stops_leaves_a_checkpoint_and_neither_saves_nor_evaluates_as_if_it_were_done(
    model_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"max_steps": 3, "save_strategy": "steps", "save_steps": 3, "eval_seeds": [100, 102]}
    file = written(tmp_path, model_name_or_path=model_path, output_dir=str(tmp_path / "out"), **options)
    trainer = make_trainer(*parse("--config", str(file)))
    trainer.add_callback(Stop())
    run(trainer)
    assert "Stopped by SIGTERM at step 1. Go on with resume_from_checkpoint: true." in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"README.md", "checkpoint-1", "metrics.jsonl"}

    resumed = make_trainer(*parse("--config", str(file), "--resume_from_checkpoint", "true"))
    run(resumed)
    assert [log["step"] for log in resumed.state.log_history if "loss" in log] == [1, 2, 3]


@pytest.mark.usefixtures("signals_on_purpose")
def test_a_run_without_checkpoints_says_so_when_a_signal_stops_it(
    model_path: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = {"max_steps": 2, "save_strategy": "no"}
    file = written(tmp_path, model_name_or_path=model_path, output_dir=str(tmp_path / "out"), **options)
    trainer = make_trainer(*parse("--config", str(file)))
    trainer.add_callback(Stop())
    run(trainer)
    said = capfd.readouterr()
    assert "Stopped by SIGTERM at step 1. Nothing was saved, as save_strategy is no." in said.out
    assert "SIGTERM: ends this step, stops without saving (save_strategy is no); once more" in said.err


@pytest.mark.usefixtures("signals_on_purpose")
def test_a_signal_in_the_last_step_of_a_run_without_checkpoints_costs_nothing_but_the_evaluation(
    model_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"max_steps": 1, "save_strategy": "no", "eval_seeds": [100, 102]}
    file = written(tmp_path, model_name_or_path=model_path, output_dir=str(tmp_path / "out"), **options)
    trainer = make_trainer(*parse("--config", str(file)))
    trainer.add_callback(Stop())
    run(trainer)
    assert "Saved in" in capsys.readouterr().out
    assert not [log for log in trainer.state.log_history if "eval_reward" in log]


@pytest.mark.parametrize("given", ["true", "no_such_folder"])
def test_a_checkpoint_that_does_not_exist_is_a_line_of_the_command(
    given: str, model_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, model_name_or_path=model_path, output_dir=str(tmp_path / "out"))
    assert cli.train(["--config", str(file), "--resume_from_checkpoint", given]) == 2
    assert "error: resume_from_checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["true", pytest.param("checkpoint-1", marks=pytest.mark.slow)])
def test_a_checkpoint_of_another_team_is_a_line_of_the_command(
    given: str, model_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = {"model_name_or_path": model_path, "output_dir": str(out), "policies": "lora", "save_strategy": "steps"}
    assert cli.train(["--config", str(written(tmp_path, **options, save_steps=1))]) == 0
    checkpoint = given if given == "true" else str(out / given)
    file = written(tmp_path, **options, lora_alpha=2, resume_from_checkpoint=checkpoint)
    assert cli.train(["--config", str(file)]) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert error.startswith(
        f"error: this trainer cannot go on from {out / 'checkpoint-1'}: lora_alpha of the adapter "
    )


@pytest.mark.parametrize(
    ("given", "read"), [("true", True), ("False", False), ("runs/checkpoint-2", "runs/checkpoint-2")]
)
def test_true_and_false_resume_from_the_command_line_as_from_a_file(
    given: str, read: bool | str, tmp_path: Path
) -> None:
    _, _, args, _ = parse("--config", str(written(tmp_path)), "--resume_from_checkpoint", given)
    assert args.resume_from_checkpoint == read
