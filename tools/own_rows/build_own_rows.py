"""Writes the rows of our own that the package ships, after a problem was added or changed.

    python tools/own_rows/build_own_rows.py

needs the sandbox, in which the golden programs say what their tests expect, and takes a few seconds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import aime
import arithmetic
import olympiad
from own_layouts import Row, files, json_lines
from own_problems import Solved, coding_problems, solved
from pettingllms_envs import environments
from pettingllms_envs.environments.coding.blobs import unpacked


FOLDER = Path(environments.__file__).parent
ANSWERS = {"aime": aime.PROBLEMS, "olympiad": olympiad.PROBLEMS, "arithmetic": arithmetic.PROBLEMS}


def coding() -> dict[str, list[Solved]]:
    """The coding problems of both families, with what their tests expect."""
    return {family: solved(coding_problems(family)) for family in ("stdin", "calls")}


def plain(rows: Sequence[Row]) -> bytes:
    """Rows as bytes that do not depend on the version of zlib: packed tests are unpacked."""
    return json_lines(
        {**row, "private_test_cases": unpacked(row["private_test_cases"])}
        if not row.get("private_test_cases", "[").startswith("[")
        else row
        for row in rows
    )


def read(path: Path) -> list[Row]:
    """The rows of a file; none if there is no such file."""
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def there() -> list[Path]:
    """The files of rows; a published test set has a name without `__`."""
    return sorted(FOLDER.glob("*/data/*__*.jsonl"))


def sums(folder: Path) -> str:
    """The lines of SHA256SUMS for the files that are in a folder."""
    paths = sorted(folder.glob("*.jsonl"))
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths)


def build() -> list[str]:
    """Write each file whose rows are not those of the problems, and SHA256SUMS; the names of those written."""
    made = files(coding(), ANSWERS)
    for path in there():
        if path.relative_to(FOLDER).as_posix() not in made:
            path.unlink()
    changed = [name for name, rows in made.items() if plain(rows) != plain(read(FOLDER / name))]
    folders = {(FOLDER / name).parent for name in made}
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    for name in changed:
        (FOLDER / name).write_bytes(json_lines(made[name]))
    for folder in folders:
        (folder / "SHA256SUMS").write_text(sums(folder), encoding="ascii")
    return changed


if __name__ == "__main__":
    print(*(build() or ["all files were up to date"]), sep="\n")
