"""Writes what users ask for beside their records (pages, numbers, pictures), and never over any other file."""

from __future__ import annotations

import errno
from pathlib import Path

from pettingllms_envs.episodes.files import EPISODES, REPORT, RUN, write_whole


LEAD = 6
"""Bytes by which kinds of files are told apart: of a page `<!doct`, of a film `GIF89a`, of findings and comparisons a
brace with the first letter of their first field, which is another in a run.json and a report.json."""


def write_output(file: Path, content: str | bytes) -> None:
    """Write a file atomically. A link is replaced, so that nothing is written where it leads."""
    content = content.encode("utf-8") if isinstance(content, str) else content
    check_output(file, content)
    if not file.parent.is_dir():  # named as it was given, and not as the temporary file is
        raise FileNotFoundError(errno.ENOENT, "the folder does not exist", str(file.parent))
    if file.exists() and not file.is_file():  # such as /dev/stdout
        file.write_bytes(content)
    else:
        write_whole(file, content)


def check_output(file: Path, content: bytes) -> None:
    """Raise `ValueError` unless a command may write a file: it replaces its own earlier output, and nothing else.

    Args:
        file: The file, under any of its names: what is there decides, not how it is spelled.
        content: What will be written, or its first `LEAD` bytes. An existing file must begin likewise, or be empty.
    """
    name = file.name.casefold()  # on some systems RUN.JSON is run.json
    if name in (RUN, EPISODES) or (name == REPORT and is_run(file.parent)):
        raise ValueError(f"{file} is the name of a run's record; expected another name. Write to another file.")
    if not file.is_file():
        return
    with open(file, "rb") as stream:
        lead = stream.read(LEAD)
    if lead and lead != content[:LEAD]:
        raise ValueError(
            f"{file} exists, and is not what this command writes; expected a new file or an earlier one of the same "
            "kind. Name another, or remove it."
        )


def check_new_run(folder: Path) -> None:
    """Raise `ValueError` if a folder has a run, or a part of one."""
    if is_run(folder) or (folder / REPORT).exists():
        raise ValueError(f"{folder} has a run already; expected a new folder. Name another.")


def is_run(folder: Path) -> bool:
    """Whether a folder has a run's record, perhaps damaged."""
    return any((folder / name).exists() for name in (RUN, EPISODES))


def inside(folder: Path, name: str) -> Path:
    """The file of a name, perhaps from a record, in a folder; one that leads outside of it raises `ValueError`."""
    if Path(name).name != name or name in ("", ".."):
        raise ValueError(f"a file of {folder} would be called {name!r}; expected a name without '/'. Rename it.")
    return folder / name
