"""Reads the rows of a file one at a time, in constant memory: JSON lines, also in gzip, a JSON list, CSV or parquet.

A line that is not a JSON object is a bad row, and reading continues. A truncated file is an error.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pettingllms_envs.datasets.rows import MAX_DIGITS, BadRow, DataRow
from pettingllms_envs.installing import needs_extra


ENDINGS = (".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet")
MAX_LINE = 1 << 29
"""Longest line in bytes; reading stops at a longer one."""

BATCH = 64
"""Rows of a parquet file that are in memory at a time, in addition to their row group."""


def read_rows(path: Path, read: Callable[[int], None] | None = None) -> Iterator[DataRow | BadRow]:
    """The rows of a file in their order, with a `BadRow` for each one that cannot be read.

    Args:
        read: Called now and then with the number of bytes read since the last call.
    """
    if not path.name.endswith(ENDINGS):
        raise ValueError(f"{path} ends otherwise; expected {', '.join(ENDINGS)}. Convert it, or name another file.")
    told = read or (lambda _: None)
    if path.name.endswith(".parquet"):
        yield from _parquet(path, told)
    elif path.name.endswith(".csv"):
        yield from _csv(path, told)
    elif path.name.endswith(".json"):
        yield from _json_list(path, told)
    else:
        yield from _json_lines(path, told)


def stem(path: Path) -> str:
    """The name of a file without its ending."""
    ending = next((ending for ending in sorted(ENDINGS, key=len, reverse=True) if path.name.endswith(ending)), "")
    return path.name.removesuffix(ending)


def _json_lines(path: Path, read: Callable[[int], None]) -> Iterator[DataRow | BadRow]:
    zipped = path.name.endswith(".gz")
    with path.open("rb") as raw, gzip.GzipFile(fileobj=raw) if zipped else nullcontext(raw) as stream:
        before = 0
        try:
            while line := stream.readline(MAX_LINE + 1):
                if len(line) > MAX_LINE:
                    raise ValueError(f"{path} has a line of more than {MAX_LINE} bytes; expected JSON lines.")
                if line.strip():
                    yield _row(line)
                read(raw.tell() - before)
                before = raw.tell()
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is damaged ({error}); expected a whole file. Get it again.") from error


def _row(line: bytes) -> DataRow | BadRow:
    try:
        row = json.loads(line, parse_int=_integer)
    except BadRow as reason:
        return reason
    except RecursionError:
        return BadRow("the line is nested too deeply")
    except ValueError as error:
        return BadRow(f"the line is no JSON ({error})")
    return row if isinstance(row, dict) else BadRow(f"the line is a {type(row).__name__}; expected an object")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise BadRow(f"the line has an integer of more than {MAX_DIGITS} digits")
    return int(digits)


def _json_list(path: Path, read: Callable[[int], None]) -> Iterator[DataRow | BadRow]:
    try:
        rows = json.loads(path.read_bytes(), parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON ({error}); expected a list of objects. Get it again.") from error
    if not isinstance(rows, list):
        raise ValueError(f"{path} is a {type(rows).__name__}; expected a list of objects. Name another file.")
    read(path.stat().st_size)
    for row in rows:
        yield row if isinstance(row, dict) else BadRow(f"the entry is a {type(row).__name__}; expected an object")


def _csv(path: Path, read: Callable[[int], None]) -> Iterator[DataRow | BadRow]:
    before = 0
    with path.open("rb") as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text:
        table = csv.DictReader(text, strict=True)
        try:
            for row in table:
                if None in row or None in row.values():
                    yield BadRow(f"the row has {'more' if None in row else 'fewer'} fields than the header")
                else:
                    yield row
                read(raw.tell() - before)
                before = raw.tell()
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is damaged ({error}); expected CSV in UTF-8. Get it again.") from error


def _parquet(path: Path, read: Callable[[int], None]) -> Iterator[DataRow]:
    with needs_extra("data", "pyarrow", f"{path}, which is parquet"):
        import pyarrow
        from pyarrow import parquet
    try:
        with parquet.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(batch_size=BATCH, row_groups=[group]):
                    rows: list[dict[str, Any]] = batch.to_pylist()
                    yield from ({name: _without_path(value) for name, value in row.items()} for row in rows)
                read(path.stat().st_size // file.num_row_groups)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is damaged ({error}); expected a parquet file. Get it again.") from error


def _without_path(value: Any) -> Any:
    """A value, of a picture as `datasets` writes it only the bytes of its file."""
    if isinstance(value, list):
        return list(map(_without_path, value))
    return value["bytes"] or value if isinstance(value, dict) and value.keys() == {"bytes", "path"} else value
