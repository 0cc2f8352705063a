"""The fields of a data set's rows: of which environment they are, what its `reset` takes, and what is kept from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from datasets import Dataset
from pettingzoo import AECEnv

from pettingllms_trl.records import Row
from pettingllms_trl.rollout.env_pool import DEFAULT_ENVIRONMENT, ENVIRONMENT_COLUMN, name_of


def spared_columns(
    envs: Mapping[str, AECEnv], datasets: Sequence[Any], reads: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """The columns of rows that are not given to `reset`, by the environment's name.

    Args:
        envs: An environment of each name. One that does not declare `metadata["reset_options"]` is given all columns;
            of one whose replies reward functions judge (`metadata["judged"]`) all others are theirs.
        datasets: Data sets of rows.
        reads: Columns that reward functions read.
    """
    columns = dict.fromkeys(column for dataset in datasets for column in columns_of(dataset))
    return {
        name: tuple(
            column
            for column in columns
            if env.metadata.get("reset_options") is not None
            and column not in ("seed", *env.metadata["reset_options"])
            and (column in reads or env.metadata.get("judged"))
        )
        for name, env in envs.items()
    }


def columns_of(dataset: Any) -> list[str]:
    """The names of a data set's columns."""
    return list(dataset.column_names or next(iter(dataset), ()))  # a stream may not know its columns


def rows_by_name(dataset: Any, known: Mapping[str, Any]) -> Iterator[tuple[str, list[str], Row]]:
    """For each environment named in the rows: its name, the fields that its rows set, and the first of its rows."""
    if DEFAULT_ENVIRONMENT in known:
        columns = [column for column in columns_of(dataset) if column != "seed"]
        yield DEFAULT_ENVIRONMENT, columns, next(iter(dataset), {})
        return
    if not isinstance(dataset, Dataset):
        dataset = Dataset.from_list([dict(next(iter(dataset)))])
    if ENVIRONMENT_COLUMN not in dataset.column_names:
        name_of({}, known)  # raises
    names = dataset[ENVIRONMENT_COLUMN][:]
    first = {name: names.index(name) for name in dict.fromkeys(names)}
    for name in first:
        name_of({ENVIRONMENT_COLUMN: name}, known)
    fields: dict[str, list[str]] = {name: [] for name in first}
    for column in dataset.column_names:
        if column not in ("seed", ENVIRONMENT_COLUMN):
            for name in {name for name, value in zip(names, dataset[column][:], strict=True) if value is not None}:
                fields[name].append(column)
    for name, i in first.items():
        yield name, fields[name], dataset[i]


def check_fields(env: AECEnv, fields: Sequence[str], name: str, reads: Collection[str]) -> None:
    """Raise `ValueError` for fields of rows that nobody reads, and where one is missing that the environment needs."""
    missing = [option for option in env.metadata.get("required_options") or () if option not in fields]
    if missing:
        of = "" if name == DEFAULT_ENVIRONMENT else f" of {name!r}"
        raise ValueError(
            f"the data set's rows{of} have the fields {', '.join(fields) or 'none'}; expected {missing[0]!r} among "
            f"them, without which {env.metadata.get('name', 'the environment')} has no instance. Rename the column: "
            f"dataset.rename_column({next(iter(fields), 'question')!r}, {missing[0]!r})."
        )
    known: Collection[str] = env.metadata.get("reset_options") or ()
    takes_all = env.metadata.get("reset_options") is None or env.metadata.get("judged")
    unknown = [] if takes_all else [field for field in fields if field not in (*known, *reads)]
    if unknown:
        rows, which, remedy = f"rows of {name!r}", "that", "Let such a column be None in its rows."
        if name == DEFAULT_ENVIRONMENT:
            rows, which = "rows", "the"
            remedy = (
                "Rename or remove the columns (dataset.remove_columns). A column that a reward function alone reads "
            )
            remedy += f"is a parameter of it: def reward(completions, {unknown[0]}, **columns)."
        raise ValueError(
            f"the data set's {rows} have the fields {unknown}, which {which} environment does not take. Known: "
            f"{', '.join(['seed', *known])}. {remedy}"
        )


def check_filled(env: AECEnv, dataset: Any) -> None:
    """Raise `ValueError` if a row lacks what the environment needs, in a data set that is in memory."""
    for option in (env.metadata.get("required_options") or ()) if isinstance(dataset, Dataset) else ():
        if dataset.data.column(option).null_count:
            empty = next((i for i, value in enumerate(dataset[option]) if value is None), None)
            if empty is not None:
                raise ValueError(
                    f"row {empty} of the data set has no {option!r} (None); expected one in each row. Leave it out: "
                    f"dataset.filter(lambda row: row[{option!r}] is not None)."
                )
