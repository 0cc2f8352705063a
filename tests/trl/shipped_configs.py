"""The configurations in examples/configs: where they are, how a test reads one, and what they have in common."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pettingllms_trl.config_files import read


if TYPE_CHECKING:
    from pettingllms_trl import MultiAgentGRPOTrainer


EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIGS = EXAMPLES / "configs"
FILES = sorted(CONFIGS.glob("*.yaml"))
PAPER_CONFIGS = r"(plan_path|sokoban|sudoku)(_tool)?|code|math|code_math"
"""The teams of which the paper has results, in names of files; all other environments are ours."""


def values(file: Path) -> dict[str, Any]:
    """What the file and those that it inherits from say."""
    return dict(read(file).values)


def larger_ones_slow(files: Iterable[Path]) -> list[Any]:
    """The files as parameters; those of 8B, which differ from those of 1.7B in model and data, in the slow tests."""
    return [pytest.param(file, id=file.stem, marks=pytest.mark.slow if "_8B" in file.stem else ()) for file in files]


def parsed(file: Path, model_path: str, output: Path, *more: str) -> tuple[Any, ...]:
    """The file's arguments, on this machine: the tiny model, on a CPU."""
    from pettingllms_trl.cli import arguments
    from pettingllms_trl.cli.train import KINDS

    here = ["--model_name_or_path", model_path, "--output_dir", str(output), "--use_cpu", "--bf16", "false"]
    return arguments.parse(["--config", str(file), *here, *more], KINDS, prog="test")


def in_the_papers_settings(trainer: MultiAgentGRPOTrainer) -> None:
    """Asserts the settings that the table of docs/paper.md has."""
    args = trainer.args
    has_adapters = all(policy.adapter is not None for policy in trainer.routing.trained)
    rate = 1e-5 if has_adapters else 1e-6  # the paper's is of whole models
    assert (args.num_generations, args.beta, args.learning_rate, args.epsilon) == (4, 0.0, rate, 0.2)
    assert (args.temperature, args.top_p, args.max_completion_length) == (1.0, 1.0, 4096)
    # 128 = 32 instances x 4 in a generation, two updates of 64 from each; 6400 instances are 200 generations.
    assert (args.generation_batch_size, args.steps_per_generation * args.per_device_train_batch_size) == (128, 128)
    assert args.gradient_accumulation_steps * args.per_device_train_batch_size == 64
    assert len(trainer.train_dataset) == args.max_steps // 2 * (128 // 4)
