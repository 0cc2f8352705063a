"""Says when and by which command a run was started, for its `run.json`, and takes paths of this machine out of it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


_OPTION = re.compile(r"(?<![\w-])([\w-]+)=[^,\s]+")
_SECRET = re.compile(r"(token|key|secret|password)$", re.I)
"""Names of options whose values are not written: `--hub_token`, `api_key=...`."""

_PATH = re.compile(r"(?<![\w./\\<-])(?:/(?!/)|~[/\\]|[A-Za-z]:\\)(?:[^\s/\\'\",=:]+[/\\])+([^\s/\\'\",=:]+)")


def origin(argv: Sequence[str] | None = None) -> dict[str, str]:
    """`started`, the time in UTC, and `command`, without secrets; by default that of this process."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return {"started": started, "command": command(sys.argv if argv is None else argv)}


def command(argv: Sequence[str]) -> str:
    """The command line, with the program's name alone and `...` in the place of tokens, keys and passwords."""
    program, *rest = argv
    words = [Path(program).name]
    is_secret = False
    for word in rest:
        if is_secret and not word.startswith("-"):
            word = "..."
        else:
            word = _OPTION.sub(lambda found: f"{found[1]}=..." if _SECRET.search(found[1]) else found[0], word)
        is_secret = word.startswith("--") and _SECRET.search(word) is not None
        words.append(word)
    return shlex.join(words)


def without_paths(value: Any) -> Any:
    """A value of a `run.json` with the last name of each absolute path in its place."""
    if isinstance(value, Mapping):
        return {name: without_paths(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(without_paths, value))
    return _PATH.sub(r"\1", value) if isinstance(value, str) else value
