"""The folder that `pettingllms data prepare` writes: rows in the Hub's columns, by split, and a manifest.

codeparrot__apps/
  manifest.json      source, revision, layout, and for each split its file, rows, SHA-256, what was left out and why
  train.jsonl.gz
  validation.jsonl.gz
  test.jsonl.gz
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


MANIFEST = "manifest.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A split in a prepared folder.

    Args:
        file: Its name.
        rows: How many rows it has, each of them a problem.
        sha256: Of the file, 64 hex digits.
        bad: Rows of the source that are not as the layout says: file, index and reason.
        left_out: How many rows of the source are no problem for a grader, by reason.
        unjudged: How many of the rows no comparison can judge, by reason; they are there, and left out when loaded.
    """

    file: str
    rows: int
    sha256: str
    bad: Sequence[Mapping[str, Any]]
    left_out: Mapping[str, int]
    unjudged: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a prepared folder holds.

    Args:
        source: The id on the Hub, or the path.
        revision: The Hub's commit; `""` of a local file.
        layout: The name of the rows' layout.
        limit: Most problems of each split that were requested; None for all.
        package: The version of pettingllms that wrote it.
        splits: By name.
    """

    source: str
    revision: str
    layout: str
    limit: int | None
    package: str
    splits: Mapping[str, Part]
    format: int = FORMAT


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a prepared folder.

    Raises:
        ValueError: There is none, or it is of another format.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise ValueError(
            f"{folder} has no {MANIFEST}; expected a folder that `pettingllms data prepare` wrote. Name a file in it."
        )
    try:
        said = json.loads(path.read_text("utf-8"))
        if said["format"] != FORMAT:
            raise ValueError(f"{path} has format {said['format']!r}; expected {FORMAT}. Prepare the data anew.")
        splits = {split: Part(**part) for split, part in said.pop("splits").items()}
        return Manifest(**said, splits=splits)
    except (TypeError, KeyError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is no manifest ({error}). Prepare the data anew.") from error


def written(manifest: Manifest) -> str:
    """The manifest as it stands in its file."""
    return json.dumps(asdict(manifest), indent=2, ensure_ascii=False) + "\n"
