"""Writes and reads the images of a run: `media/<digest>.png` beside its `episodes.jsonl`.

A file is named after the SHA-256 of its content, so that an image which many prompts show is written once, and one
that was changed is noticed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pettingllms_envs.episodes.files import opened, write_whole
from pettingllms_envs.episodes.prompts import digests_of
from pettingllms_envs.observations import Image


MEDIA = "media"
"""The folder of the images in a run's folder."""
_DIGEST = re.compile("[0-9a-f]{64}")


def image_file(run: Path, digest: str) -> Path:
    """The file of an image in a run's folder; `ValueError` if the digest is none."""
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"an image has the digest {digest!r}; expected 64 hex digits. Remove its row.")
    return run / MEDIA / f"{digest}.png"


def write_image(run: Path, image: Image) -> None:
    """Write an image into a run's folder, unless it is there. A kill leaves a whole file or none."""
    file = image_file(run, image.digest)
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, image.png)


def read_image(run: Path, digest: str) -> bytes:
    """The PNG file of an image. Raises `ValueError` if there is none, or its content is another."""
    file = image_file(run, digest)
    try:
        with opened(file) as stream:
            png = stream.read()
    except FileNotFoundError:
        raise ValueError(
            f"there is no {file}, which a prompt of the run shows; expected the images of a run beside its "
            f"episodes. Copy the run's folder {MEDIA}, too."
        ) from None
    if hashlib.sha256(png).hexdigest() != digest:
        raise ValueError(
            f"{file} is not the image that a prompt of the run shows: it has another SHA-256 than its name. Restore "
            "the file."
        )
    return png


def images_of_run(run: Path, rows: Iterable[Mapping[str, Any]]) -> list[Path]:
    """The files of all images that rows show, each once, in order; `ValueError` if one is missing or altered."""
    digests = dict.fromkeys(digest for row in rows for step in row["steps"] for digest in digests_of(step))
    for digest in digests:
        read_image(run, digest)
    return [image_file(run, digest) for digest in digests]


def remove_images(run: Path) -> None:
    """Remove the images of a run, and their folder."""
    folder = run / MEDIA
    if folder.is_dir():
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
