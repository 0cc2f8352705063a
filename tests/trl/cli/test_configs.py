"""The configurations that are shipped are fit to train, in the paper's settings."""

from __future__ import annotations

import itertools
import re
import runpy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pettingzoo
import pytest
from accelerate.commands.config.config_args import load_config_from_file

from pettingllms_trl.cli.datasets import makers
from pettingllms_trl.cli.train import make_trainer
from pettingllms_trl.credit import name_of
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.records import Completion, Request, Sampled
from plays import play
from shipped_configs import (
    CONFIGS,
    EXAMPLES,
    FILES,
    PAPER_CONFIGS,
    in_the_papers_settings,
    larger_ones_slow,
    parsed,
    values,
)


MIXED, TURNS = CONFIGS / "mixed_L2_1.7B.yaml", CONFIGS / "sokoban_L2_1.7B_turns.yaml"
TEAMS = {
    "note_taking": (["left_0", "right_0"], {"left", "right"}),
    "archives": (["librarian_0", "librarian_1", "answerer_0"], {"librarian", "answerer"}),
}
PAID = {task: CONFIGS / f"{task}_L2_1.7B.yaml" for task in TEAMS}
UNPAID = {task: CONFIGS / f"{task}_L2_1.7B_counterfactual.yaml" for task in TEAMS}
SMALL = {task: CONFIGS / f"{task}_L2_135M.yaml" for task in ("plan_path", "archives")}
ON_GPUS = {  # processes, and the configuration of accelerate
    "gpus_1x80_L2_8B": (1, "ddp"),
    "gpus_8x80_L2_8B": (8, "ddp"),
    "gpus_8x80_L1_8B": (8, "zero3"),
    "gpus_2x8x80_L2_8B": (16, "ddp"),
}
GRID = [file for file in FILES if re.fullmatch(r"(plan_path|sokoban|sudoku)_L[0-3]_(1\.7B|8B)", file.stem)]
LAYOUTS = {"L0": {"base"}, "L1": {"base"}, "L2": {"drafter", "planner"}, "L3": {"drafter", "planner"}}


OURS = sorted(
    file.stem.removesuffix("_L0_1.7B")
    for file in CONFIGS.glob("*_L0_1.7B.yaml")
    if not re.fullmatch(rf"({PAPER_CONFIGS})_L0_1\.7B", file.stem)
)


@pytest.mark.parametrize("task", OURS)
@pytest.mark.parametrize(
    ("level", "size"),
    [
        ("L2", "1.7B"),
        *(
            pytest.param(level, size, marks=pytest.mark.slow)
            for level, size in itertools.product(LAYOUTS, ("1.7B", "8B"))
            if (level, size) != ("L2", "1.7B")
        ),
    ],
)
def test_a_configuration_that_is_ours_has_its_team_in_the_papers_settings(
    task: str, level: str, size: str, model_path: str, tmp_path: Path
) -> None:
    given, *others = parsed(CONFIGS / f"{task}_{level}_{size}.yaml", model_path, tmp_path)
    trainer, env = make_trainer(given, *others), makers(given)()
    assert env.metadata["name"] == f"{task}_v0"
    assert list(trainer.routing.of_agent) == env.possible_agents
    assert (len(env.possible_agents) == 1) == (level == "L0")
    roles = set(env.metadata["roles"].values())
    assert {policy.name for policy in trainer.routing.policies} == ({"base"} if level in ("L0", "L1") else roles)
    in_the_papers_settings(trainer)


def test_there_is_one_for_every_game_layout_and_size() -> None:
    games = ("plan_path", "sokoban", "sudoku")
    expected = {f"{game}_{layout}_{size}.yaml" for game in games for layout in LAYOUTS for size in ("1.7B", "8B")}
    assert {file.name for file in GRID} == expected


@pytest.mark.parametrize("file", larger_ones_slow(GRID))
def test_a_configuration_makes_a_trainer_in_the_papers_settings(file: Path, model_path: str, tmp_path: Path) -> None:
    game, layout, _ = file.stem.rsplit("_", 2)
    given, *others = parsed(file, model_path, tmp_path)
    trainer = make_trainer(given, *others)
    assert {policy.name for policy in trainer.routing.policies} == LAYOUTS[layout]
    assert list(trainer.routing.of_agent) == (["planner_0"] if layout == "L0" else ["drafter_0", "planner_0"])
    env = makers(given)().unwrapped
    assert env.metadata["name"] == f"{game}_v0"
    assert (env.workflow.num_turns, env.alpha) == (4, 1.0)
    in_the_papers_settings(trainer)


def test_one_run_may_have_all_games_with_a_third_of_the_instances_each(model_path: str, tmp_path: Path) -> None:
    given, *others = parsed(MIXED, model_path, tmp_path)
    trainer = make_trainer(given, *others)
    in_the_papers_settings(trainer)
    assert {policy.name for policy in trainer.routing.policies} == LAYOUTS["L2"]
    for name, make in makers(given).items():
        env, alone = make().unwrapped, values(CONFIGS / f"{name}_L2_1.7B.yaml")
        assert (env.metadata["name"], env.workflow.num_turns, env.alpha) == (f"{name}_v0", 4, 1.0)
        assert env.workflow == pettingzoo.make("aec", alone["env_id"], **alone["env_kwargs"]).unwrapped.workflow
        assert trainer.train_dataset["environment"][:].count(name) in (2133, 2134)  # of 6400


def test_one_run_has_roles_that_learn_in_turns_and_is_else_as_the_one_whose_roles_do_not(
    model_path: str, tmp_path: Path
) -> None:
    turns, together = map(values, (TURNS, CONFIGS / "sokoban_L2_1.7B.yaml"))
    assert {name: value for name, value in turns.items() if together.get(name) != value} == {
        "alternate_every": 10,
        "output_dir": "outputs/sokoban_L2_1.7B_turns",
    }
    trainer = make_trainer(*parsed(TURNS, model_path, tmp_path))
    assert trainer.schedule is not None
    learning = [trainer.schedule(generation) for generation in (0, 9, 10, 19, 20)]
    assert learning == [("drafter",), ("drafter",), ("planner",), ("planner",), ("drafter",)]
    assert [policy.name for policy in trainer.routing.trained] == ["drafter", "planner"]


@pytest.mark.parametrize("task", TEAMS)
@pytest.mark.parametrize("is_paid", [True, False], ids=["paid", "unpaid"])
def test_a_task_that_needs_a_team_has_its_messages_paid_or_a_credit_that_looks_ahead(
    task: str, is_paid: bool, model_path: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    given, *others = parsed((PAID if is_paid else UNPAID)[task], model_path, tmp_path)
    trainer = make_trainer(given, *others)
    in_the_papers_settings(trainer)
    agents, policies = TEAMS[task]
    assert (list(trainer.routing.of_agent), {policy.name for policy in trainer.routing.policies}) == (agents, policies)
    env = makers(given)().unwrapped
    assert (env.metadata["name"], env.workflow.name) == (f"{task}_v0", "team")
    assert env.workflow.task.communication_reward is is_paid
    assert (name_of(trainer.credit), trainer.args.num_continuations) == (
        ("at_grpo", 0) if is_paid else ("counterfactual", 1)
    )
    assert not [each for each in recwarn if "paid at later" in str(each.message)]  # the credit suits the environment


@pytest.mark.parametrize("task", TEAMS)
def test_the_two_configurations_of_a_task_differ_in_the_pay_and_the_credit_alone(task: str) -> None:
    paid, unpaid = (values(files[task]) for files in (PAID, UNPAID))
    assert {name: value for name, value in unpaid.items() if paid.get(name) != value} == {
        "env_kwargs": {**paid["env_kwargs"], "communication_reward": False},
        "num_continuations": 1,
        "credit": "counterfactual",
        "output_dir": f"outputs/{task}_L2_1.7B_counterfactual",
    }


@pytest.mark.parametrize(("task", "roles"), [("plan_path", "drafter planner"), ("archives", "librarian answerer")])
def test_the_small_models_configuration_makes_a_trainer_of_twenty_steps_on_fresh_instances(
    task: str, roles: str, model_path: str, tmp_path: Path
) -> None:
    given, *others = parsed(SMALL[task], model_path, tmp_path)
    trainer = make_trainer(given, *others)
    assert [policy.name for policy in trainer.routing.trained] == roles.split()
    args = trainer.args
    assert (args.max_steps, args.num_generations, args.gradient_accumulation_steps) == (20, 8, 4)
    # 20 steps of 32 sequences for each decision are 80 instances x 8 candidates, so no instance is seen twice.
    assert len(trainer.train_dataset) * args.num_generations == args.max_steps * args.generation_batch_size == 640


OPTIONS = {  # of this package's own, by the configuration whose text says when they help
    "sokoban_L2_1.7B_choice": ("choose", "max_resamples", "reward_parts"),
    "failing_code_L2_1.7B": ("env_timeout", "crash_reward", "audit"),
    "plan_path_L2_135M_budget": ("max_generated_tokens", "num_generations_eval", "role_sampling_eval"),
    "gpus_servers_L3_8B": ("vllm_server_urls", "vllm_weight_transfer", "max_tokens_per_microbatch"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_few_need_stands_in_a_configuration_that_says_when_it_helps(name: str) -> None:
    above = ""
    file = CONFIGS / f"{name}.yaml"
    told = {}
    for line in file.read_text("utf-8").splitlines():
        if not line.startswith((" ", "#")):
            told[line.partition(":")[0]], above = above, ""
        elif line.startswith("#"):
            above += line
    assert all("elps where" in told[option] or "eeded where" in told[option] for option in OPTIONS[name])
    assert all(values(file)[option] not in (None, {}) for option in OPTIONS[name])


@pytest.mark.parametrize("name", [*OPTIONS][:3])
def test_a_configuration_of_such_options_makes_a_trainer(name: str, model_path: str, tmp_path: Path) -> None:
    data = ["--env_kwargs", '{"data": "own:apps"}'] if "code" in name else []
    trainer = make_trainer(*parsed(CONFIGS / f"{name}.yaml", model_path, tmp_path, *data))
    expected = values(CONFIGS / f"{name}.yaml")
    assert {option: getattr(trainer.args, option) for option in OPTIONS[name]} == {
        option: expected[option] for option in OPTIONS[name]
    }


@pytest.mark.parametrize("file", GRID, ids=lambda file: file.stem)
def test_a_configuration_names_the_model_of_its_title(file: Path) -> None:
    size = file.stem.rsplit("_", 1)[1]
    assert values(file)["model_name_or_path"] == f"Qwen/Qwen3-{size}"


@pytest.mark.parametrize(
    ("name", "kind", "stage"),
    [
        ("ddp", "MULTI_GPU", None),
        ("fsdp2", "FSDP", None),
        ("zero2", "DEEPSPEED", 2),
        ("zero3", "DEEPSPEED", 3),
    ],
)
def test_accelerate_reads_its_configurations(name: str, kind: str, stage: int | None) -> None:
    config = load_config_from_file(str(EXAMPLES / "accelerate_configs" / f"{name}.yaml"))
    assert (config.distributed_type.value, config.num_processes, config.mixed_precision) == (kind, 8, "bf16")
    assert stage is None or config.deepspeed_config["zero_stage"] == stage


@pytest.mark.parametrize("name", ON_GPUS)
def test_a_configuration_for_gpus_shares_its_batch_out_over_their_processes(name: str) -> None:
    given, (num_gpus, _) = values(CONFIGS / f"{name}.yaml"), ON_GPUS[name]
    assert (given["vllm_mode"], given["vllm_max_model_length"]) == ("colocate", 4608)
    mini_batch = given["gradient_accumulation_steps"] * given["per_device_train_batch_size"] * num_gpus
    assert 2 * mini_batch == given["generation_batch_size"]  # two updates a rollout
    # 200 rollouts, no instance twice.
    assert given["train_seeds"] == [0, 200 * given["generation_batch_size"] // 4]


def test_the_recipes_show_the_tables_that_the_arithmetic_gives() -> None:
    recipes = runpy.run_path(str(EXAMPLES / "recipes.py"))
    page = (EXAMPLES.parent / "docs" / "recipes.md").read_text("utf-8")
    for shown in recipes["tables"]().split("\n\n"):
        assert shown in page


@pytest.mark.parametrize(
    ("size", "layers", "hidden", "intermediate", "heads", "embeddings"),
    [("1.7B", 28, 2048, 6144, 16, 1), ("8B", 36, 4096, 12288, 32, 2)],
)
def test_the_recipes_count_parameters_as_worked_out_by_hand(
    size: str, layers: int, hidden: int, intermediate: int, heads: int, embeddings: int
) -> None:
    shape = runpy.run_path(str(EXAMPLES / "recipes.py"))["shapes"]()[size]
    q, kv = heads * 128, 8 * 128  # heads of 128, eight of keys and values
    matrices = [(hidden, q), (hidden, kv), (hidden, kv), (q, hidden), *[(hidden, intermediate)] * 3]
    # Two norms of a layer, one of each head's q and k, and the last; 1.7B has its embeddings for a head.
    norms = layers * (2 * hidden + 2 * 128) + hidden
    assert shape.parameters == layers * sum(a * b for a, b in matrices) + norms + embeddings * 151_936 * hidden
    assert shape.adapter == layers * 16 * sum(a + b for a, b in matrices)
    assert shape.kv_values == layers * 2 * kv


@pytest.mark.parametrize(("task", "paid", "unpaid"), [("note_taking", 40, 220), ("archives", 20, 60)])
def test_an_instance_takes_as_many_replies_as_the_page_on_cooperation_says(task: str, paid: int, unpaid: int) -> None:
    def sample(requests: Sequence[Request]) -> list[Sampled]:
        return [
            Sampled(replace(each.prompt, ids=(1,)), (Completion(ids=(2,), text="?"),) * each.num_candidates)
            for each in requests
        ]

    page = (EXAMPLES.parent / "docs" / "cooperation.md").read_text("utf-8")
    for files, number in ((PAID, paid), (UNPAID, unpaid)):
        given = values(files[task])
        found = play(
            [{"seed": 1}],
            make_env=partial(pettingzoo.make, "aec", given["env_id"], **given["env_kwargs"]),
            engine=BatchedEngine(sample),
            sampling="tree",
            num_candidates=given["num_generations"],
            num_continuations=given.get("num_continuations", 0),
            seed="count",
        )
        assert found.num_sampled_tokens == number  # a token each
        (line,) = [line for line in page.splitlines() if line.startswith("|") and files[task].name in line]
        assert line.endswith(f"| {number} |")
