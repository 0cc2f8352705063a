"""A digest of a model's files, so that a run with other weights at the same path counts as another run."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


PATTERNS = ("*.safetensors", "*.bin", "*config.json", "tokenizer.json", "*.jinja")
"""Weights, configurations, tokenizers and chat templates."""

NOT_THE_MODEL = ("training_args.bin",)


def of_model(folder: Path) -> str:
    """SHA-256, 64 hex digits, of the names and contents of a model's or an adapter's files, not of subfolders."""
    whole = hashlib.sha256()
    found = {file for pattern in PATTERNS for file in folder.glob(pattern) if file.name not in NOT_THE_MODEL}
    for file in sorted(found):
        about = file.stat()
        whole.update(f"{file.name}\0{_of_file(file, about.st_size, about.st_mtime_ns)}\n".encode())
    return whole.hexdigest()


@cache
def _of_file(file: Path, size: int, changed: int) -> str:
    """Digest of a file, cached by its size and time of change, since weights may be gigabytes."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
