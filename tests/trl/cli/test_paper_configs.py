"""The configurations for programs, mathematics and the paper's teams: each makes a trainer, one of a kind trains."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pettingllms_envs import cli
from pettingllms_trl.cli.datasets import makers
from pettingllms_trl.cli.train import make_trainer
from pettingllms_trl.credit import name_of
from shipped_configs import CONFIGS, FILES, PAPER_CONFIGS, in_the_papers_settings, larger_ones_slow, parsed, values


DATA_CONFIGS = sorted(file for file in FILES if re.match(r"(code|math)_L\d", file.stem))
TOOL_CONFIGS = sorted(file for file in FILES if "_tool_" in file.stem)
CODE_MATH, DEBATE = CONFIGS / "code_math_L1_1.7B.yaml", CONFIGS / "gsm8k_L2_3.8B.yaml"
TEAMS = {
    "code": ("coder", "tester"),
    "math": ("tool", "reasoner"),
    "tool": ("tool", "planner"),
}
SINGLE = {"code": "coder", "math": "reasoner"}
SAMPLE = (
    ("own:apps", "codeparrot__apps"),
    ("own:code_contests", "deepmind__code_contests"),
    ("own:polaris", "POLARIS-Project__Polaris-Dataset-53K"),
    ("openai__gsm8k__main__train.jsonl", "openai__gsm8k"),
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the commands are given: with this package's rows, in the folders of the data sets."""
    folder = tmp_path_factory.mktemp("prepared")
    rows = [{"question": f"What is 1000 + {n}?", "answer": f"It is {1000 + n}.\n#### 1,{n:03}"} for n in range(60)]
    (folder / SAMPLE[-1][0]).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        for source, output in SAMPLE:
            assert cli.main(["data", "prepare", source, "--output", output]) == 0
    return folder


@pytest.fixture(autouse=True)
def _there(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(prepared)


def test_there_is_one_for_every_level_and_size() -> None:
    of_data = {f"{domain}_{level}_{size}" for domain in SINGLE for level in LEVELS for size in SIZES}
    of_tools = {
        f"{game}_tool_{level}_{size}"
        for game in ("plan_path", "sokoban", "sudoku")
        for level in LEVELS[1:]
        for size in SIZES
    }
    assert ({file.stem for file in DATA_CONFIGS}, {file.stem for file in TOOL_CONFIGS}) == (of_data, of_tools)


LEVELS, SIZES = ("L0", "L1", "L2", "L3"), ("1.7B", "8B")


@pytest.mark.parametrize("file", larger_ones_slow([*DATA_CONFIGS, *TOOL_CONFIGS]))
def test_a_configuration_makes_a_trainer_of_the_papers_team_in_its_settings(
    file: Path, model_path: str, tmp_path: Path
) -> None:
    *_, kind, level, _ = file.stem.split("_")
    trainer = make_trainer(*parsed(file, model_path, tmp_path))
    roles = TEAMS[kind] if level != "L0" else (SINGLE[kind],)
    policies = {"base"} if level in ("L0", "L1") else set(roles)
    assert list(trainer.routing.of_agent) == [f"{role}_0" for role in roles]
    assert {policy.name for policy in trainer.routing.policies} == policies
    in_the_papers_settings(trainer)


@pytest.mark.parametrize("file", DATA_CONFIGS, ids=lambda file: file.stem)
def test_a_configuration_trains_on_the_problems_of_the_papers_code_at_its_size(file: Path) -> None:
    domain, _, size = file.stem.split("_")
    given = values(file)
    expected = {
        ("code", "1.7B"): ("apps", "codeparrot__apps", [1]),
        ("code", "8B"): ("code_contests", "deepmind__code_contests", None),
        ("math", "1.7B"): ("math", "POLARIS-Project__Polaris-Dataset-53K", None),
        ("math", "8B"): ("math", "POLARIS-Project__Polaris-Dataset-53K", None),
    }[domain, size]
    name = given["env_id"].removeprefix("pettingllms/").removesuffix("-v0")
    assert (name, given["env_kwargs"]["data"], given.get("train_levels")) == expected
    assert (given["train_split"], given["eval_split"]) == ("train", "validation")
    assert f"pettingllms data prepare {expected[1].replace('__', '/')}\n" in file.read_text("utf-8")


def test_dapo_takes_the_place_of_polaris(model_path: str, tmp_path: Path) -> None:
    assert cli.main(["data", "prepare", "own:dapo", "--output", "BytedTsinghua-SIA__DAPO-Math-17k"]) == 0
    kwargs = values(CONFIGS / "math_L1_1.7B.yaml")["env_kwargs"]
    other = json.dumps({**kwargs, "data": "BytedTsinghua-SIA__DAPO-Math-17k"})
    given, *_ = parsed(CONFIGS / "math_L1_1.7B.yaml", model_path, tmp_path, "--env_kwargs", other)
    env = makers(given)()
    env.reset(seed=0, options={"split": "train"})
    assert env.unwrapped.snapshot().play.task.problem.source == "dapo"


@pytest.mark.parametrize("level", ["L1", "L2"])
@pytest.mark.parametrize("domain", ["math", "code"])
def test_designers_and_members_are_trained_by_four_executions_of_four_designs(
    domain: str, level: str, model_path: str, tmp_path: Path
) -> None:
    file = CONFIGS / f"designed_{domain}_{level}_1.7B.yaml"
    trainer = make_trainer(*parsed(file, model_path, tmp_path))
    in_the_papers_settings(trainer)
    args = trainer.args
    assert (args.branch_at, args.num_generations, args.num_continuations) == (["designer"], 4, 4)
    assert (args.train_continuations, args.continuation_group) == (True, "candidate")
    assert (name_of(trainer.credit), args.sampling) == ("counterfactual", "tree")
    assert list(trainer.routing.of_agent) == ["designer_0", *(f"member_{n}" for n in range(4))]
    policies = [policy.name for policy in trainer.routing.trained]
    assert policies == (["base"] if level == "L1" else ["designer", "member"])
    turns = None if trainer.schedule is None else [trainer.schedule(generation) for generation in (29, 30, 60)]
    assert turns == (None if level == "L1" else [("designer",), ("member",), ("designer",)])


def test_one_model_plays_all_roles_of_programs_and_mathematics(model_path: str, tmp_path: Path) -> None:
    trainer = make_trainer(*parsed(CODE_MATH, model_path, tmp_path))
    in_the_papers_settings(trainer)
    assert list(trainer.routing.of_agent) == ["coder_0", "tester_0", "tool_0", "reasoner_0"]
    assert [policy.name for policy in trainer.routing.policies] == ["base"]
    rows = trainer.train_dataset[:4]
    assert rows["environment"] == ["code", "math", "code", "math"]
    assert rows["level"] == [1, None, 1, None]


def test_the_debate_is_in_maporls_setting(model_path: str, tmp_path: Path) -> None:
    given, *others = parsed(DEBATE, model_path, tmp_path)
    trainer = make_trainer(given, *others)
    assert trainer.routing.of_agent == {"debater_0": "debater_0", "debater_1": "debater_1"}
    workflow = makers(given)().unwrapped.workflow
    assert (workflow.name, workflow.num_turns, workflow.num_debaters, workflow.until_agreed) == ("debate", 3, 2, False)
    args = trainer.args
    assert (args.learning_rate, args.beta, args.max_completion_length, args.sampling) == (1e-5, 0.002, 300, "parallel")
    assert name_of(trainer.credit) == "return_to_go"
    adapters = trainer.model.peft_config
    assert {(config.r, config.lora_alpha) for config in adapters.values()} == {(8, 16)}


SMALL = ("--generation_batch_size", "4", "--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "1")
SHORT = ("--max_completion_length", "4", "--max_turns", "1", "--max_steps", "1", "--use_vllm", "false")
QUIET = ("--eval_strategy", "no", "--save_strategy", "no", "--log_completions", "false", "--num_trees", "0")
TRAINED = [*(file for file in FILES if re.search(r"_L\d_(1\.7B|8B)$", file.stem) and "mixed" not in file.stem), DEBATE]


def is_quick(file: Path) -> bool:
    """Whether the file is the one of its environments that trains by default: of each role's own adapter."""
    of_size = "8B" if file.stem.startswith("code_L") and file.stem.endswith("8B") else "1.7B"
    quick = rf"({PAPER_CONFIGS}|designed_math|failing_code)_L2_{of_size}"
    return file == DEBATE or bool(re.fullmatch(quick, file.stem) and "_tool_" not in file.stem)


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, id=file.stem, marks=() if is_quick(file) else pytest.mark.slow) for file in TRAINED],
)
def test_a_step_of_a_configuration_is_taken_with_a_tiny_model(file: Path, roomy_path: str, tmp_path: Path) -> None:
    # An instance of each environment, and turns for all members of a team.
    more = ("--generation_batch_size", "8", "--per_device_train_batch_size", "8") if file == CODE_MATH else ()
    named = file.stem.partition("_L")[0]
    turns = ("--max_turns", {"archives": "4", "benches": "19", "service": "4", "silos": "4"}.get(named, "1"))
    trainer = make_trainer(*parsed(file, roomy_path, tmp_path, *SMALL, *SHORT, *QUIET, *more, *turns))
    trainer.train()
    assert trainer.state.global_step == 1
    (log, *_) = trainer.state.log_history
    played = {agent for agent in trainer.routing.of_agent if f"agent/{agent}/reward" in log}
    # Such a model writes no design that can be read, so that no member is asked.
    assert played == ({"designer_0"} if file.stem.startswith("designed") else set(trainer.routing.of_agent))
