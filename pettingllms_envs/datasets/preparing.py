"""Writes a prepared folder (see `prepared.py`) atomically; the same rows always give the same bytes.

Everything is written into a hidden folder next to the output, which is then renamed. A killed run leaves only that
folder; the next run removes it and starts over, with the downloads still in the Hub's cache.
"""

from __future__ import annotations

import datetime
import gzip
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pettingllms_envs.datasets.loading import Bad, entries
from pettingllms_envs.datasets.prepared import MANIFEST, Manifest, Part, written
from pettingllms_envs.datasets.rows import BadRow, LeftOut
from pettingllms_envs.datasets.sources import Source, digest


Progress = Callable[[str, int, int], None]
"""Called with the split, and the number of bytes read and of problems found since the last call."""


def prepare(
    source: Source,
    output: Path,
    *,
    splits: Sequence[str] = (),
    limit: int | None = None,
    told: Progress = lambda split, read, problems: None,
) -> Manifest:
    """Write a copy of a source in which every row is a problem.

    Args:
        output: The folder to write; it must not exist.
        splits: The splits to write; empty for all that the source has.
    """
    check_output(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(output)
    unfinished = output.parent / f".{output.name}.{os.getpid()}.unfinished"
    unfinished.mkdir()
    try:
        parts = {split: _part(source, split, unfinished, limit, told) for split in splits or tuple(source.shares)}
        manifest = Manifest(
            source=source.name,
            revision=source.revision,
            layout=source.layout.name,
            limit=limit,
            package=version("pettingllms"),
            splits=parts,
        )
        _write(unfinished / MANIFEST, written(manifest).encode())
        unfinished.rename(output)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return manifest


def check_output(output: Path) -> None:
    """Raise `ValueError` if the output exists: nothing is overwritten."""
    if output.exists():
        raise ValueError(f"{output} exists; expected a folder to be made. Remove it, or name another output.")


def _part(source: Source, split: str, folder: Path, limit: int | None, told: Progress) -> Part:
    path = folder / f"{split}.jsonl.gz"
    problems = 0
    bad: list[dict[str, Any]] = []
    left_out: Counter[str] = Counter()
    unjudged: Counter[str] = Counter()
    with path.open("wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as file:
        for entry in entries(source, split, lambda read: told(split, read, 0)):
            if isinstance(entry.outcome, BadRow):
                bad.append(asdict(Bad(entry.file, entry.index, str(entry.outcome))))
            elif isinstance(entry.outcome, LeftOut):
                left_out[str(entry.outcome)] += 1
            else:
                file.write(
                    json.dumps(entry.row, ensure_ascii=False, default=_plain).encode("utf-8", "replace") + b"\n"
                )
                problems += 1
                told(split, 0, 1)
                if entry.outcome.unjudged:
                    unjudged[entry.outcome.unjudged] += 1
                if problems == limit:
                    break
    return Part(
        file=path.name, rows=problems, sha256=digest(path), bad=bad, left_out=dict(left_out), unjudged=dict(unjudged)
    )


def _plain(value: object) -> str:
    """A date of a parquet file, as text."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    raise TypeError(f"a row has a {type(value).__name__}; expected what JSON has. Take another file of the set.")


def _write(path: Path, body: bytes) -> None:
    with path.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


def _remove_leftovers(output: Path) -> None:
    """Remove the folders of killed runs, but not that of one that is still running."""
    for folder in output.parent.glob(f".{output.name}.*.unfinished"):
        process = folder.name.removesuffix(".unfinished").rpartition(".")[2]
        if process.isdigit() and not _runs(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
