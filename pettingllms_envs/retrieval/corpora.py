r"""Corpora of passages in files of this machine, searched by `SparseIndex` or `DenseIndex`.

A row of the file is a passage with the columns of Search-R1's corpora, `id` and `contents`, of which the first line is
the title in quotation marks, or with `title` and `text`:

    {"id": "0", "contents": "\"Zulo\"\nZulo is a town on the Mara."}
    {"title": "Zulo", "text": "Zulo is a town on the Mara."}

An index is made once for each process: 3 s for 20,000 passages. For the whole of Wikipedia use a server, see `remote`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pettingllms_envs.caching import remembered
from pettingllms_envs.datasets.files import read_rows
from pettingllms_envs.datasets.rows import BadRow
from pettingllms_envs.retrieval.local import DenseIndex, SparseIndex, sentence_encoder
from pettingllms_envs.retrieval.passages import Passage, Retriever


def corpus_digest(path: Path) -> str:
    """SHA-256 of a corpus file, 64 hex digits."""
    if not path.is_file():
        raise ValueError(
            f"the corpus {str(path)!r} is no file; expected JSON lines with 'contents'. Correct the path."
        )
    status = path.stat()
    return _digest(path, status.st_size, status.st_mtime_ns)


def read_corpus(path: Path) -> tuple[Passage, ...]:
    """The passages of a file, as `pettingllms_envs.datasets.files` reads rows."""
    found = []
    for number, row in enumerate(read_rows(path)):
        if isinstance(row, BadRow):
            raise ValueError(f"row {number} of {path.name}: {row}; expected a passage. Fix it.")
        found.append(_passage(row, f"row {number} of {path.name}"))
    if not found:
        raise ValueError(f"{path} has no passages; expected at least one. Name another file.")
    return tuple(found)


@remembered(4)
def corpus_index(path: Path, digest: str, encoder: str | None = None) -> Retriever:
    """The index of a corpus: sparse, or with the name of a sentence encoder dense. Threads wait for the first one."""
    passages = read_corpus(path)
    if encoder is None:
        return SparseIndex(passages, digest)
    return DenseIndex(passages, sentence_encoder(encoder), digest)


def passage_of(contents: str) -> Passage:
    """A passage written as in Search-R1: if there are several lines, the first one is the title."""
    title, newline, text = contents.partition("\n")
    return Passage(title.strip().strip('"'), text.strip()) if newline else Passage("", contents.strip())


def _passage(row: Mapping[str, Any], where: str) -> Passage:
    contents, title, text = (row.get(name) for name in ("contents", "title", "text"))
    if isinstance(contents, str) and contents.strip():
        return passage_of(contents)
    if isinstance(title, str) and isinstance(text, str) and text.strip():
        return Passage(title.strip(), text.strip())
    raise ValueError(f"{where} has the columns {', '.join(row)}; expected 'contents', or 'title' and 'text'. Fix it.")


@lru_cache(maxsize=64)  # by size and time too, since a file may change while a process runs
def _digest(path: Path, size: int, time: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
