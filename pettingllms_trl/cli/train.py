"""Train a team by reinforcement learning: like TRL's GRPO script, with an environment instead of a data set's answers.

    pettingllms train --config examples/configs/sokoban_L2_1.7B.yaml [any.field=value] [--any_field value]
    pettingllms train --config examples/configs/sokoban_L2_1.7B.yaml --estimate --gpu h100 --num_gpus 8

It ends with `save_model`, an evaluation (`eval_results.json`), and `push_to_hub` if requested. With `--estimate`
nothing is trained: it prints the memory and the tokens a second to expect of such GPUs, and says what does not fit.
With `--show` it prints the configuration, each line with its origin; the output folder has it as `config.yaml`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from datasets import Dataset
from trl import ModelConfig, ScriptArguments, get_quantization_config

from pettingllms_trl.cli import arguments, fields
from pettingllms_trl.cli.datasets import Rows, agents_of, check_apart, in_turns, loaded, makers, seeds_and_levels
from pettingllms_trl.cli.trees import PrintTrees
from pettingllms_trl.config import MultiAgentGRPOConfig, with_help
from pettingllms_trl.sft.warm_up import load_adapters
from pettingllms_trl.trainer.trainer import MultiAgentGRPOTrainer


@with_help
@dataclass
class TrainArguments(arguments.TeamArguments):
    r"""
    The team, how its decisions are credited, and the instances.

    A row of the data is an instance: a seed, and the fields that the environment's `reset(options=...)` takes. Give
    ranges of seeds, or a data set (`dataset_name`, as in TRL's scripts) with a column `seed`.

    Args:
        credit (`str` or `dict`, *optional*):
            Name of a credit scheme, or the dotted path of a function; with options: `{at_grpo: {value: outcome}}`.
            `None`: `at_grpo`, or where a role is paid later `return_to_go`, as [`MultiAgentGRPOTrainer`] says.
        filters (`list`, *optional*):
            Group filters, one after another, each a name or a dotted path, with options as `credit` has them.
        curriculum (`dict`, *optional*):
            Fields of a [`Curriculum`], such as `{"levels": [1, 2, 3], "advance_at": 0.7}`; with several environments,
            one for each that needs one, by its name.
        schedule (`str`, *optional*):
            Dotted path of a function from a generation's number to the policies that are trained on it. To train
            policies in turn, use `alternate_every`.
        reward_funcs (`list[str]`, *optional*):
            Dotted paths of reward functions, added to the environment's rewards.
        adapters (`str`, *optional*):
            Folder with a folder for each adapter, as `pettingllms sft` and `save_model` leave it, to start from.
        num_trees (`int`, *optional*, defaults to `0`):
            With `log_completions`, the number of a logged step's episodes that are printed as trees.
        train_seeds (`list[int]`, *optional*):
            First seed, and the one after the last.
        train_split (`str`, *optional*):
            Value of the reset option `split`. `None` leaves it out.
        train_levels (`list[int]`, *optional*):
            Values of the reset option `level`, used in turn. `None` leaves it out. With several environments each has
            its own, in `environments`.
        eval_seeds, eval_split, eval_levels:
            The same for evaluations: during training according to `eval_strategy`, and once at the end.
    """

    credit: dict[str, Any] | str | None = None
    filters: list[str] = field(default_factory=list)
    curriculum: dict[str, Any] | str | None = None
    schedule: str | None = None
    reward_funcs: list[str] = field(default_factory=list)
    adapters: str | None = None
    num_trees: int = 0
    train_seeds: list[int] | None = None
    train_split: str | None = None
    train_levels: list[int] | None = None
    eval_seeds: list[int] | None = field(
        default=None, metadata={"help": "First seed, and the one after the last, of the evaluations."}
    )
    eval_split: str | None = field(default=None, metadata={"help": "The reset option `split` in evaluations."})
    eval_levels: list[int] | None = field(default=None, metadata={"help": "The reset option `level` in evaluations."})


KINDS = (TrainArguments, ScriptArguments, MultiAgentGRPOConfig, arguments.TeamModelConfig)


def prepare(argv: Sequence[str]) -> Callable[[], None]:
    """Create the trainer, and return a function that runs it. A user's mistake raises before any model is trained."""
    given, data, args, config = arguments.parse(argv, KINDS, prog="pettingllms train", description=__doc__)
    trainer = make_trainer(given, data, args, config)
    trainer.checkpointer.check_resume(args.resume_from_checkpoint)
    return partial(run, trainer, dataset_name=data.dataset_name, resolved=given.resolved)


def make_trainer(
    given: TrainArguments, data: ScriptArguments, args: MultiAgentGRPOConfig, config: ModelConfig
) -> MultiAgentGRPOTrainer:
    """The trainer that the arguments describe. Raises as `prepare` does."""
    arguments.check_model(config)
    arguments.check_reports(args)
    arguments.import_packages(given.imports)
    make_env = makers(given)
    train_dataset, eval_dataset = datasets(given, data, evaluated=args.eval_strategy != "no")
    if args.eval_strategy != "no" and eval_dataset is None:
        raise ValueError(
            f"eval_strategy is {args.eval_strategy.value!r}, but there is nothing to evaluate on. Add eval_seeds: "
            "[0, 200], or set eval_strategy: no."
        )
    if given.num_trees and not args.log_completions:
        raise ValueError(
            f"num_trees is {given.num_trees}, but log_completions is {args.log_completions}; trees are drawn from the "
            "table of completions. Set log_completions: true, or leave num_trees out."
        )
    credit = None if given.credit is None else arguments.choice("credit", given.credit)
    filters = [given.filters] if isinstance(given.filters, str | dict) else given.filters
    schedule = None if given.schedule is None else arguments.function("schedule", given.schedule)
    reward_funcs = [arguments.function("reward_funcs", path) for path in given.reward_funcs]
    assert given.policies is not None
    assert isinstance(given.environments, dict)
    curriculum = fields.curricula(arguments.mapping("curriculum", given.curriculum), list(given.environments))
    peft_config = arguments.peft_config(config, given.policies)
    args.model_init_kwargs = arguments.model_init_kwargs(config, args)
    quantization_config = get_quantization_config(config)
    model: Any = config.model_name_or_path
    if given.adapters is not None:
        # The trainer tries the rest before it loads a model by its name; here one is loaded first.
        model = load_adapters(
            model,
            given.adapters,
            policies=given.policies,
            agents=agents_of(make_env),
            model_init_kwargs=args.model_init_kwargs,
            quantization_config=quantization_config,
        )
        args.model_init_kwargs = quantization_config = peft_config = None
    with arguments.naming_models(config.model_name_or_path, given.policies):
        return MultiAgentGRPOTrainer(
            model,
            make_env,
            args,
            train_dataset,
            eval_dataset,
            reward_funcs=reward_funcs or None,
            policies=given.policies,
            credit=credit,
            filters=[arguments.choice("filters", one) for one in filters],
            curriculum=curriculum,
            schedule=schedule,
            peft_config=peft_config,
            quantization_config=quantization_config,
            callbacks=[PrintTrees(given.num_trees)] if given.num_trees else None,
        )


def datasets(given: TrainArguments, data: ScriptArguments, *, evaluated: bool) -> tuple[Rows, Rows | None]:
    """The rows for training and evaluation; for a data set, as in TRL's scripts, its test split is for evaluation."""
    train, evaluation = _rows(given, "train"), _rows(given, "eval")
    splits = given.train_split, given.eval_split
    check_apart(given.train_seeds, given.eval_seeds, splits=splits, rows=(train, evaluation), team=given)
    if (train is None) == (data.dataset_name is None):
        raise ValueError(
            f"train_seeds is {given.train_seeds} and dataset_name is {data.dataset_name!r}; expected one of them: a "
            "range of seeds, or a data set whose rows have a seed. Write train_seeds: [0, 10000]."
        )
    if train is not None:
        return train, evaluation
    if given.train_split is not None or (given.eval_split is not None and evaluation is None):
        raise ValueError(
            f"train_split is {given.train_split!r} and eval_split is {given.eval_split!r} with dataset_name, whose "
            "rows have reset options of their own; expected neither. Give the rows a column split."
        )
    if evaluated and evaluation is None:
        evaluation = loaded(data, data.dataset_test_split)
    return loaded(data, data.dataset_train_split), evaluation


def _rows(given: TrainArguments, purpose: str) -> Dataset | None:
    """The rows of a range of seeds, of one environment or of several in turns; `None` without one."""
    seeds, levels, split = (getattr(given, f"{purpose}_{what}") for what in ("seeds", "levels", "split"))
    assert isinstance(given.environments, dict)
    if not given.environments:
        return seeds_and_levels(f"{purpose}_seeds", seeds, levels, split)
    if levels is not None:
        raise ValueError(
            f"{purpose}_levels is {levels} with several environments, whose levels have nothing to do with each "
            f"other; expected those of each. Write environments: {{name: {{env_id: ..., {purpose}_levels: [1, 2]}}}}."
        )
    own = {name: getattr(each, f"{purpose}_levels") for name, each in given.environments.items()}
    return in_turns(f"{purpose}_seeds", seeds, own, split)


def run(trainer: MultiAgentGRPOTrainer, *, dataset_name: str | None = None, resolved: str = "") -> None:
    """Train, save, evaluate, push, and finish the trackers. A run stopped by a signal has at most its checkpoint."""
    if resolved:
        arguments.keep(resolved, trainer.args.output_dir)
    trainer.train(resume_from_checkpoint=trainer.args.resume_from_checkpoint)
    is_saved = trainer.checkpointer.saved_step == trainer.state.global_step
    if trainer.stopped_by is not None and (is_saved or trainer.state.global_step < trainer.state.max_steps):
        trainer.accelerator.print(
            f"Stopped by {trainer.stopped_by} at step {trainer.state.global_step}. "
            + (
                "Go on with resume_from_checkpoint: true."
                if is_saved
                else "Nothing was saved, as save_strategy is no."
            )
        )
        trainer.accelerator.end_training()
        return
    trainer.save_model(trainer.args.output_dir)
    trainer.accelerator.print(f"Saved in {trainer.args.output_dir}.")
    if trainer.eval_dataset is not None and trainer.stopped_by is None:
        trainer.save_metrics("eval", trainer.evaluate())
        trainer.accelerator.print(f"Its evaluation is {trainer.args.output_dir}/eval_results.json.")
    if trainer.args.log_rollouts:
        trainer.accelerator.print(f"Look at its episodes: pettingllms view {trainer.args.output_dir}")
    if trainer.args.push_to_hub:
        trainer.push_to_hub(dataset_name=dataset_name)
        trainer.accelerator.print(f"Pushed to https://huggingface.co/{trainer.hub_model_id}.")
    trainer.accelerator.end_training()
