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
        sha256: SHA-256 of the file, 64 hex digits.
        bad: Rows of the source that do not match the layout: file, index and reason.
        left_out: Number of rows of the source that are not gradable problems, by reason.
        unjudged: Number of rows that no comparison can judge, by reason; they are in the file, but not loaded.
    """

    file: str
    rows: int
    sha256: str
    bad: Sequence[Mapping[str, Any]]
    left_out: Mapping[str, int]
    unjudged: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of a prepared folder.

    Args:
        revision: The Hub's commit; `""` for a local file.
        limit: Most problems of each split that were requested; None for all.
    """

    source: str
    revision: str
    layout: str
    limit: int | None
    package: str
    splits: Mapping[str, Part]
    format: int = FORMAT


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a prepared folder; `ValueError` if there is none, or it is of another format."""
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
    except (TypeError, KeyError, AttributeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is no manifest ({error}). Prepare the data anew.") from error


def written(manifest: Manifest) -> str:
    """The text of the manifest's file."""
    return json.dumps(asdict(manifest), indent=2, ensure_ascii=False) + "\n"
