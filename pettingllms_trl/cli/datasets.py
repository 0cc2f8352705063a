"""Makes the environments and the rows of data sets that the arguments describe."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from datasets import Dataset, IterableDataset, load_dataset
from trl import ScriptArguments

from pettingllms_envs.episodes.observing import MOST_REPEATS, problem_seeds
from pettingllms_trl.rollout.env_checks import env_maker
from pettingllms_trl.rollout.env_pool import DEFAULT_ENVIRONMENT, ENVIRONMENT_COLUMN, MakeEnv
from pettingllms_trl.sft.demonstrations import TRAIN


if TYPE_CHECKING:
    from pettingllms_trl.cli.arguments import TeamArguments

Rows: TypeAlias = Dataset | IterableDataset


def makers(team: TeamArguments) -> MakeEnv | dict[str, MakeEnv]:
    """A function that makes the environment, or one for each by name; each is called once as a check."""
    assert isinstance(team.env_kwargs, dict)
    assert isinstance(team.environments, dict)
    if team.env_id is not None:
        return _maker(team.env_id, team.env_kwargs)
    return {name: _maker(each.env_id, each.env_kwargs) for name, each in team.environments.items()}


def agents_of(make_env: MakeEnv | Mapping[str, MakeEnv]) -> list[str]:
    """The agents of all environments, each once."""
    each = make_env.values() if isinstance(make_env, Mapping) else [make_env]
    return list(dict.fromkeys(agent for make in each for agent in make().possible_agents))


def _maker(env_id: str, env_kwargs: Mapping[str, Any]) -> MakeEnv:
    make_env = env_maker(env_id, env_kwargs)
    try:
        make_env().close()
    except TypeError as error:
        raise TypeError(
            f"env_kwargs is {dict(env_kwargs)}: {error}; expected settings of {env_id}. Correct or remove them."
        ) from error
    except ValueError as error:
        raise ValueError(
            f"env_kwargs is {dict(env_kwargs)}: {error} A configuration holds texts, numbers and lists; what takes a "
            "Python object, as an executor is, is for a script (examples/train_sokoban.py)."
        ) from error
    return make_env


def seeds_and_levels(
    name: str, seeds: Sequence[int] | None, levels: Sequence[int] | None, split: str | None
) -> Dataset | None:
    """A row for each seed of a range, with the levels in turn. `None` without seeds.

    `[0, 4]` with levels `[1, 2]` and split `"train"` gives the seeds 0, 1, 2, 3 with the levels 1, 2, 1, 2.

    Args:
        seeds: The first and the one after the last.
        levels: Values of the environment's reset option `level`; `None` leaves it out.
        split: Value of its reset option `split`; `None` leaves it out.
    """
    if seeds is None:
        if levels is not None:
            raise ValueError(f"there are levels {list(levels)}, but no {name}. Add {name}: [0, 1000].")
        return None
    if len(seeds) != 2 or not 0 <= seeds[0] < seeds[1]:
        raise ValueError(
            f"{name} is {list(seeds)}; expected two numbers, the first seed and the one after the last. "
            f"Write {name}: [0, 1000]."
        )
    columns: dict[str, list[Any]] = {"seed": list(range(*seeds))}
    if split is not None:
        columns["split"] = [split] * len(columns["seed"])
    if levels:
        columns["level"] = [levels[i % len(levels)] for i in range(len(columns["seed"]))]
    return Dataset.from_dict(columns)


def in_turns(
    name: str, seeds: Sequence[int] | None, levels: Mapping[str, Sequence[int] | None], split: str | None
) -> Dataset | None:
    """A row for each seed of a range, with the environments, and the levels of each, in turn. `None` without seeds.

    `[0, 4]` with levels `{"a": [1, 2], "b": None}` gives the seeds 0, 1, 2, 3 to a, b, a, b; a's have the levels 1
    and 2, b's have none.

    Args:
        levels: Values of the reset option `level` of each environment, by its name.
        split: Value of their reset option `split`; `None` leaves it out.
    """
    rows = seeds_and_levels(name, seeds, None, split)
    if rows is None:
        return None
    names = list(levels)
    columns: dict[str, list[Any]] = {ENVIRONMENT_COLUMN: [names[i % len(names)] for i in range(len(rows))]}
    if any(levels.values()):
        of_name = ((i // len(names), levels[name]) for i, name in enumerate(columns[ENVIRONMENT_COLUMN]))
        columns["level"] = [own[turn % len(own)] if own else None for turn, own in of_name]
    return Dataset.from_dict({**columns, **rows.to_dict()})


def check_apart(
    train: Sequence[int] | None,
    evaluation: Sequence[int] | None,
    *,
    splits: Sequence[str | None],
    rows: Sequence[Dataset | None] = (),
    team: Any = None,
) -> None:
    """Raise `ValueError` if an evaluation instance is a training instance: the same seed in the same split.

    With the `rows` of both and their `team` also if it is the same problem of a data set, seed s being s modulo n.
    """
    split, other = [split or TRAIN for split in splits]  # which environments take by default
    if train is None or evaluation is None or split != other:
        return
    if max(train[0], evaluation[0]) < min(train[1], evaluation[1]):
        raise ValueError(
            f"train_seeds {list(train)} and eval_seeds {list(evaluation)} meet in the split {split!r}; expected "
            "instances of which none is trained on. Set eval_split: validation, or seeds apart from each other."
        )
    trained, evaluated = map(_by_options, rows or (None, None))
    for name, level in trained.keys() & evaluated.keys():
        made = makers(team)
        env = (made[name] if isinstance(made, Mapping) else made)()
        known, given = env.metadata.get("reset_options", ()), {"split": splits[0] or splits[1], "level": level}
        asked = {option: value for option, value in given.items() if option in known and value is not None}
        num = len(problem_seeds(env, asked, most=max(train[1], evaluation[1]) + MOST_REPEATS) or ())
        env.close()
        if num and (both := {s % num for s in trained[name, level]} & {s % num for s in evaluated[name, level]}):
            raise ValueError(
                f"train_seeds {list(train)} and eval_seeds {list(evaluation)} have {len(both)} of the {num} problems "
                f"of {name or 'the data set'} in the split {split!r} in common, as seed s is problem s modulo {num}; "
                "expected problems of which none is trained on. Set another eval_split, or seeds apart modulo that."
            )


def _by_options(rows: Dataset | None) -> Mapping[tuple[str, Any], Sequence[int]]:
    """The seeds of rows by environment and level."""
    found = defaultdict(list)
    for row in () if rows is None else rows.to_list():
        found[row.get(ENVIRONMENT_COLUMN, DEFAULT_ENVIRONMENT), row.get("level")].append(row["seed"])
    return found


def loaded(given: ScriptArguments, split: str) -> Rows:
    """Load a split of a data set of the Hub or of a folder, whose rows are instances."""
    try:
        return load_dataset(
            given.dataset_name, name=given.dataset_config, split=split, streaming=given.dataset_streaming
        )
    except (FileNotFoundError, ConnectionError, ValueError) as error:
        raise ValueError(
            f"dataset_name is {given.dataset_name!r}, split {split!r}: {error}; expected a data set of the Hub or a "
            "folder with files such as train.jsonl. Correct dataset_name, or give train_seeds instead."
        ) from error
