"""What the sub-packages of `pettingllms_trl` may import of each other, and where TRL's private names stand."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest


PACKAGE = Path(__file__).parents[1] / "pettingllms_trl"
DATA = {"records", "config", "role_sampling"}
"""Values and protocols that pass between sub-packages, and the user's settings."""
ALLOWED = {
    "records": set[str](),
    "role_sampling": set[str](),
    "config": {"role_sampling"},
    "console": {"records"},  # what a training prints
    "rollout": {"records"},
    # Engines are given weights, and parts of the trainer play rows, on all processes at once.
    "processes": {"records", "config", "policies.routing", "policies.multi_model"},
    # Rewards weighed anew are put back into branches; a reward model reads texts as text, like a policy.
    "credit": {"records", "config", "rollout.branching", "policies.escaping", "structure"},
    "policies": DATA | {"pixels"},
    "engines": DATA | {"policies", "processes", "structure", "pixels"},
    # A row of the engines' table, made of what engines share.
    "engines/vllm": DATA
    | {"policies", "processes", "engines.batched", "engines.kinds", "engines.router", "engines.weight_store"}
    | {"pixels"},
    "sft": DATA | {"policies", "pixels"},
    "imitation": DATA | {"update.token_budget"},
    "update": DATA | {"policies", "structure", "pixels"},
    "update/packing": set[str](),  # tokens and lengths alone
    "checkpoints": DATA | {"policies", "processes"},
    "byte_tokenizers": set(),
    "testing": {"config", "trainer", "byte_tokenizers"},
    "structure": set(),  # of any model of transformers
    "gguf": set(),  # a file of weights, before any team
    "image_gain": {"records"},  # what images are worth to a policy
    "pixels": {"records"},  # what processors make of pictures
    "estimate": DATA
    | {"byte_tokenizers", "policies", "engines", "update"},  # runs a step of the trainer that it is given
    "trainer": DATA
    | {
        "rollout",
        "credit",
        "policies",
        "processes",
        "engines",
        "update",
        "imitation",
        "checkpoints",
        "console",
        "pixels",
        "image_gain",
    },
    **dict.fromkeys(("research", "research/study", "research/study/credit_fidelity")),  # may import everything
    "research/study/plans": {"config_files"},  # are read without the trainer
    "config_files": set[str](),  # values and where they are from
    "cli": DATA
    | {"rollout", "credit", "policies", "engines", "update", "checkpoints", "trainer", "cli"}
    | {"estimate", "sft", "processes.distributed", "pixels", "config_files"},
}
TRL_ATTRIBUTES = {
    *("_metrics", "_logs", "_buffered_inputs", "_signature_columns", "_last_loaded_step"),
    *("_generate_and_score_completions", "_generate_single_turn", "_tokenize_prompts", "_compute_loss"),
    *("_get_per_token_logps_and_entropies", "_log_completion_extra", "_log_metric", "_last_world_entropy"),
    "_is_vlm",
    *("_entropy_window_stats", "_entropy_bonus_enabled", "_current_train_step_time", "_calculate_rewards"),
}
"""Private attributes of `GRPOTrainer` that this package reads, sets, calls or overrides, but for `_step` and
`_tokenizer`, which others have, too."""


def modules(sub_package: str) -> list[Path]:
    path = PACKAGE / sub_package
    return sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def imported(file: Path) -> Iterator[str]:
    """What a module imports of this package, without its name: `rollout.play`, `records`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            plain = node.module == "pettingllms_trl"
            names = [f"{node.module}.{alias.name}" for alias in node.names] if plain else [node.module or ""]
        else:
            continue
        yield from (name.removeprefix("pettingllms_trl.") for name in names if name.startswith("pettingllms_trl."))


def test_every_module_is_in_a_sub_package_that_has_a_rule() -> None:
    found = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert found - {"__init__"} == {name for name in ALLOWED if "/" not in name}


@pytest.mark.parametrize("sub_package", sorted(set(ALLOWED) - {"records", "role_sampling", "config"}))
def test_a_sub_package_has_at_most_twelve_modules(sub_package: str) -> None:
    assert len([path for path in modules(sub_package) if path.stem != "__init__"]) <= 12


@pytest.mark.parametrize("sub_package", ALLOWED)
def test_a_sub_package_imports_only_what_its_rule_allows(sub_package: str) -> None:
    for file in modules(sub_package):
        for name in imported(file):
            first = name.partition(".")[0]
            two = ".".join(name.split(".")[:2])
            own = name.startswith(sub_package.replace("/", "."))
            allowed = ALLOWED[sub_package]
            assert own or allowed is None or {first, two} & allowed, f"{file} imports {name}"


@pytest.mark.parametrize("sub_package", ALLOWED)
def test_only_the_hooks_name_private_attributes_of_trl(sub_package: str) -> None:
    for file in modules(sub_package):
        attributes = {
            node.attr
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Attribute)
        }
        assert file == PACKAGE / "trainer" / "hooks.py" or not attributes & TRL_ATTRIBUTES, file


OPTIONS_OF_ENGINES = {
    "trainer/trainer.py": {"use_vllm"},  # TRL's switch for a correction for any sampler
}
"""Attributes for a certain kind of engine outside of `engines`."""


def test_what_asks_for_an_option_of_an_engine_outside_of_the_engines_asks_its_row() -> None:
    found: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr.startswith(("vllm_", "use_vllm")):
                found.setdefault(file.relative_to(PACKAGE).as_posix(), set()).add(node.attr)
    assert {name: own for name, own in found.items() if not name.startswith("engines/")} == OPTIONS_OF_ENGINES
    assert any(name.startswith("engines/vllm/") for name in found)


def test_the_hooks_have_at_most_five_hundred_lines() -> None:
    # They name TRL and call; what decides is in the parts.
    assert len((PACKAGE / "trainer" / "hooks.py").read_text("utf-8").splitlines()) <= 500


def test_one_class_stands_between_the_trainer_and_trl() -> None:
    from trl import GRPOTrainer

    from pettingllms_trl import MultiAgentGRPOTrainer
    from pettingllms_trl.trainer.hooks import TRLHooks

    chain = MultiAgentGRPOTrainer.__mro__
    assert chain[: chain.index(GRPOTrainer) + 1] == (MultiAgentGRPOTrainer, TRLHooks, GRPOTrainer)


def test_the_parts_of_the_trainer_are_no_trainers() -> None:
    # What TRL calls must be methods of a trainer; everything else is a part that the trainer makes.
    for sub_package in set(ALLOWED) - {"trainer", "cli"}:
        for file in modules(sub_package):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    assert "GRPOTrainer" not in {ast.unparse(base) for base in node.bases}, f"{file}: {node.name}"
