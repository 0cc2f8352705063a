"""TRL's completions tables (`log_completions=True`) to what the checks read: `completions/completions_00010.parquet`.

A row is a completion: `step`, `prompt`, `completion`, a column for each reward function, `advantage`. Those of this
project's trainer also have `agent`, `instance`, `episode`, `turn` and `chosen`, and `continuation` if continuations
are trained on; in those of a plain `GRPOTrainer` the candidates of a prompt follow one another.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from pettingllms_envs.audit.rows import Candidate, Decision, Episode, RunFacts
from pettingllms_envs.installing import needs_extra


NEEDED = ("step", "prompt", "completion", "advantage")
PLACES = ("env", "agent", "instance", "episode", "turn")
NOT_REWARDS = {*NEEDED, *PLACES, "chosen", "continuation", "completion_length"}
AGENT = "model"
"""What the only agent of a plain `GRPOTrainer` is called."""
TableRow = Mapping[str, Any]


def read_table(file: Path) -> list[TableRow]:
    """The rows of a table, without decisions inside continuations, which have no groups of candidates."""
    with needs_extra("data", "pyarrow", f"{file}, which is parquet"):
        import pyarrow
        from pyarrow import parquet
    try:
        rows: list[TableRow] = parquet.read_table(file).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        what = str(error).splitlines()[0]
        raise ValueError(f"{file} is no parquet file ({what}); expected a table of TRL. Remove it.") from None
    lacking = [name for name in NEEDED if rows and name not in rows[0]]
    if lacking:
        raise ValueError(
            f"{file} has no column {', '.join(lacking)}; expected a completions table as TRL writes it "
            "(log_completions=True). Name another folder."
        )
    return [row for row in rows if row.get("continuation") is None]


def fresh_tables(tables: Iterable[Sequence[TableRow]]) -> Iterator[Sequence[TableRow]]:
    """Tables without those that only repeat the generation before: TRL writes one at every log."""
    before = ""
    for rows in tables:
        digest = hashlib.sha256()
        for row in rows:
            plain = {name: value for name, value in row.items() if name != "step"}
            digest.update(json.dumps(plain, sort_keys=True, default=str).encode())
        if rows and digest.hexdigest() != before:
            yield rows
        before = digest.hexdigest()


def run_of_tables(rows: Sequence[TableRow], num_candidates: int | None = None) -> RunFacts:
    """What the first table says of the run; without `num_candidates` (`num_generations`), that of most groups."""
    if num_candidates is None:
        sizes = Counter(len(group) for group in _groups(rows, None))
        num_candidates = max(sizes, key=lambda size: (sizes[size], size))
    is_ours = "agent" in rows[0]
    # GRPO subtracts the mean of its group. Which scheme ours had, a table does not say.
    return RunFacts(
        kind="completions",
        is_tree=None if num_candidates == 1 else True,
        num_candidates=num_candidates,
        sums=None if is_ours else "siblings",
        credit=None if is_ours else "grpo",
    )


def episodes_of_table(run: RunFacts, rows: Sequence[TableRow], where: str = "") -> Iterator[Episode]:
    """Each group of a table as an episode of one decision."""
    for number, group in enumerate(_groups(rows, run.num_candidates)):
        first = group[0]
        decision = Decision(
            agent=str(first.get("agent", AGENT)),
            candidates=tuple(_candidate(row) for row in group),
            turn=first.get("turn", 0),
            learns=True,
        )
        rewards = [each.reward for each in decision.candidates if each.reward is not None]
        yield Episode(
            instance=first.get("instance", number),
            decisions=(decision,),
            step=first["step"],
            sample=first.get("episode", 0),
            where=where,
            result=sum(rewards) / len(rewards) if rewards else None,
            is_whole=False,
        )


def _groups(rows: Sequence[TableRow], size: int | None) -> list[list[TableRow]]:
    """Rows of one place; else as many as `size` says, if that divides them, or those that follow one another."""
    if "agent" in rows[0]:
        return [list(group) for _, group in groupby(rows, key=lambda row: tuple(row.get(name) for name in PLACES))]
    if size is not None and len(rows) % size == 0:
        return [list(rows[i : i + size]) for i in range(0, len(rows), size)]
    return [list(group) for _, group in groupby(rows, key=lambda row: _text(row["prompt"]))]


def _candidate(row: TableRow) -> Candidate:
    rewards = [
        float(value)
        for name, value in row.items()
        if name not in NOT_REWARDS
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and not math.isnan(value)  # the reward function was not for this row
    ]
    return Candidate(
        reply=_text(row["completion"]),
        reward=sum(rewards) if rewards else None,
        advantage=row["advantage"],
        is_chosen=row.get("chosen"),
        prompt=_text(row["prompt"]),
    )


def _text(value: Any) -> Hashable:
    """A prompt or completion; of chat messages their JSON, and of a single reply its text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 1 and value[0].get("role") == "assistant":
        return str(value[0].get("content"))
    return json.dumps(value, sort_keys=True, default=str)
