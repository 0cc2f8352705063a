"""Atomic checkpoint folders: written to a temporary folder, flushed, listed with checksums, then renamed.

    out/
      checkpoint-20/                          complete: manifest.json has the size and the CRC-32 of every file
      checkpoint-30.corrupt/                  failed verification; kept for inspection, never resumed from
      _tmp-checkpoint-40-7012/checkpoint-40/  being written by process 7012, which holds the lock next to it

A process killed at any moment leaves the older checkpoints unchanged and at most a temporary folder, which the next
run removes. Later damage on the disk, a flipped bit or a lost page, is detected before anything is loaded: safetensors
and torch.load notice a truncated file, but not a changed byte.

The names of temporary folders begin with `_`, which transformers keeps out of its uploads to the Hub.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import warnings
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pettingllms_envs.episodes.files import read_json_text


MANIFEST = "manifest.json"
FORMAT = 1
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_TEMPORARY = "_tmp-"
_LOCK = "lock"
_CHUNK = 1 << 20


class CorruptCheckpoint(RuntimeError):
    """A checkpoint that is not what was saved. The message names the file and says what is wrong with it."""


class NoManifest(CorruptCheckpoint):
    """A folder that was not saved by this package, so that it cannot be verified."""


@contextmanager
def staged(final: Path, *, about: Mapping[str, Any]) -> Iterator[Path]:
    """A temporary folder to write a checkpoint into, which replaces `final` atomically at the end of the block.

    The folder already has its final name, inside a temporary one. If the block raises, the temporary folder is removed
    and `final` is unchanged.

    Args:
        about: Further content of the manifest: the step, versions of packages. JSON.
    """
    temporary = _temporary(final)
    folder = temporary / final.name
    folder.mkdir()
    try:
        with _locked(temporary):
            yield folder
            _seal(folder, about)
            _put(folder, final)
    except Exception as error:
        error.add_note(f"{final} was not saved; the checkpoints beside it are as they were.")
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def verify(folder: Path) -> None:
    """Read every file of a checkpoint and compare it with the manifest. Files that it does not list are ignored.

    Raises:
        NoManifest: There is no manifest.
        CorruptCheckpoint: The manifest or a file is not what was saved.
        ValueError: The manifest is of another format than this version writes.
    """
    for name, expected in manifest(folder)["files"].items():
        path = folder / name
        if not path.is_file():
            raise CorruptCheckpoint(f"{folder}: {name} is missing")
        size = path.stat().st_size
        if size != expected["size"]:
            raise CorruptCheckpoint(f"{folder}: {name} has {size} bytes, expected {expected['size']}")
        found = _crc32_of(path)
        if found != expected["crc32"]:
            raise CorruptCheckpoint(f"{folder}: {name} has the CRC-32 {found}, expected {expected['crc32']}")


def checkpoints(output_dir: Path) -> list[Path]:
    """The folders named `checkpoint-<step>`, by step."""
    if not output_dir.is_dir():
        return []
    steps = {path: match for path in output_dir.iterdir() if (match := _CHECKPOINT.fullmatch(path.name))}
    return sorted((path for path in steps if path.is_dir()), key=lambda path: int(steps[path][1]))


def newest(output_dir: Path) -> Path | None:
    """The newest checkpoint that verifies, or `None` where nothing was ever saved.

    A checkpoint that fails verification is renamed `checkpoint-<step>.corrupt`, with a warning that says why, and the
    next older one is tried. A checkpoint without a manifest was not saved by this package: it is skipped, and used
    only if its path is given.

    Raises:
        CorruptCheckpoint: There are checkpoints, but none verifies; so that a run never restarts from scratch unasked.
    """
    sweep(output_dir)
    passed_over = [f"{path} was found corrupt before" for path in sorted(output_dir.glob("checkpoint-*.corrupt*"))]
    for folder in reversed(checkpoints(output_dir)):
        try:
            verify(folder)
        except NoManifest as error:
            passed_over.append(str(error))
            warnings.warn(f"passed over: {error}", stacklevel=2)
        except CorruptCheckpoint as error:
            passed_over.append(str(error))
            aside = _free(folder.with_name(f"{folder.name}.corrupt"))
            folder.rename(aside)
            warnings.warn(f"{error}. Renamed to {aside.name}; the next older checkpoint is tried.", stacklevel=2)
        else:
            return folder
    if passed_over:
        raise CorruptCheckpoint(
            f"no checkpoint in {output_dir} can be resumed from, expected at least one that verifies:\n  "
            + "\n  ".join(passed_over)
            + "\nName one by its path to use it nevertheless, or move these away to start from scratch."
        )
    return None


def sweep(output_dir: Path) -> None:
    """Remove temporary folders of dead processes; a complete checkpoint in one of them is moved to its place first."""
    for temporary in sorted(output_dir.glob(f"{_TEMPORARY}checkpoint-*")):
        if _is_locked(temporary):
            continue
        name = temporary.name.removeprefix(_TEMPORARY).rpartition("-")[0]
        with suppress(CorruptCheckpoint):
            verify(temporary / name)
            if not (output_dir / name).exists():
                _put(temporary / name, output_dir / name)
        shutil.rmtree(temporary, ignore_errors=True)


def rotate(output_dir: Path, *, saved: Path, keep: int | None, protected: Collection[Path] = ()) -> None:
    """Delete the oldest checkpoints until `keep` are left, after verifying the one just saved.

    Args:
        keep: How many to keep, `None` or 0: all.
        protected: Others that are always kept, such as the best so far.

    Raises:
        CorruptCheckpoint: `saved` does not verify. Nothing was deleted.
    """
    if not keep:
        return
    present = checkpoints(output_dir)
    kept = {saved, *protected}
    obsolete = [path for path in present if path not in kept][: max(len(present) - keep, 0)]
    if obsolete:
        verify(saved)
    for path in obsolete:
        # Renamed first, so that a half-deleted checkpoint is not taken for a corrupt one.
        temporary = _temporary(path)
        path.rename(temporary / "discarded")
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary(final: Path) -> Path:
    """A new, empty folder next to a checkpoint's path, named after it and this process."""
    temporary = final.parent / f"{_TEMPORARY}{final.name}-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)  # a dead process may have had the same number
    temporary.mkdir(parents=True)
    return temporary


def _seal(folder: Path, about: Mapping[str, Any]) -> None:
    """Flush all files to the disk, then list them in the manifest, which is written last."""
    written = sorted(folder.rglob("*"))
    for path in written:
        _flush(path)
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "crc32": _crc32_of(path)}
        for path in written
        if path.is_file()
    }
    content = {"format": FORMAT, **about, "files": files}
    file = folder / MANIFEST
    file.write_text(json.dumps({**content, "crc32": _crc32(json.dumps(content))}, indent=1), encoding="utf-8")
    _flush(file)
    _flush(folder)


def _put(folder: Path, final: Path) -> None:
    """Rename a sealed folder to its final name; an existing folder of that name is kept until this has succeeded."""
    replaced = folder.with_name("replaced")
    if final.exists():
        final.rename(replaced)
    try:
        folder.rename(final)
    except OSError:
        if replaced.exists():
            replaced.rename(final)
        raise
    _flush(final.parent)


def manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint. Raises as `verify` does."""
    try:
        content = json.loads(read_json_text(Path(os.path.realpath(folder / MANIFEST)), "utf-8"))
    except FileNotFoundError:
        raise NoManifest(
            f"{folder} has no {MANIFEST}: it was not saved by MultiAgentGRPOTrainer, and may be incomplete"
        ) from None
    except ValueError as error:
        raise CorruptCheckpoint(f"{folder}: {MANIFEST} is no JSON ({error})") from None
    # Its own checksum covers the rest of it.
    if not isinstance(content, dict) or content.pop("crc32", None) != _crc32(json.dumps(content)):
        raise CorruptCheckpoint(f"{folder}: {MANIFEST} does not match its own CRC-32")
    if content["format"] != FORMAT:
        raise ValueError(
            f"{folder} is of the format {content['format']}, expected {FORMAT}. Resume with the version of "
            "pettingllms that saved it."
        )
    return content


def _crc32(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _crc32_of(path: Path) -> str:
    value = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            value = zlib.crc32(chunk, value)
    return f"{value:08x}"


def _flush(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot flush a folder.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP) or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def _free(path: Path) -> Path:
    """The path or, if it exists, the first of `path.2`, `path.3`, ... that does not."""
    free, number = path, 1
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free


@contextmanager
def _locked(temporary: Path) -> Iterator[None]:
    """Hold the lock of a temporary folder. The kernel releases it when the process dies, for whatever reason.

    A process id would not suffice: containers reuse the same few ids.
    """
    with (temporary / _LOCK).open("a") as lock:
        with suppress(OSError):  # on a file system without locks `sweep` does not touch the folder
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _is_locked(temporary: Path) -> bool:
    with (temporary / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
