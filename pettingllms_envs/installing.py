"""Where this package comes from and how it is installed: for messages, docs, and the packages of `pettingllms new`.

It is on no package index, so it is installed from a checkout. Files that can compute nothing (pyproject.toml,
CITATION.cff) repeat `REPOSITORY`; tools/release.py compares them.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


REPOSITORY = "https://pettingllms.invalid/pettingllms"
"""Address of the repository. A placeholder until there is one: `.invalid` leads nowhere (RFC 2606), and `make release`
refuses it."""

ON_WINDOWS = "On Windows install WSL 2 (`wsl --install`), and pettingllms in it."

POSIX = ("fcntl", "grp", "pwd", "resource", "termios")
"""Modules of the standard library that Python has on Linux and macOS alone."""

TRAINER = ("accelerate", "datasets", "peft", "torch", "transformers", "trl", "yaml")
"""Modules that the commands of the extra `trl` import."""


def is_published() -> bool:
    """Whether `REPOSITORY` is an address, and no placeholder."""
    return ".invalid/" not in REPOSITORY


def install_command(extra: str) -> str:
    """The command that installs an extra, and where to run it, such as for `"data"`."""
    return f"pip install -e '.[{extra}]' in a checkout of PettingLLMs"


def requirement() -> str:
    """The line of a requirements file with which pip finds this package without an index.

    It names the repository; while that has no address, the checkout that is in use; and without a checkout the package
    alone, which is installed then.
    """
    if is_published():
        return f"pettingllms @ git+{REPOSITORY}"
    checkout = Path(__file__).parents[1]
    return f"-e {checkout}" if (checkout / "pyproject.toml").is_file() else "pettingllms"


def about_missing(error: ImportError) -> str:
    """The error of an import in one sentence; for a module of `POSIX` or `TRAINER` also what to do."""
    module = (error.name or "").partition(".")[0]
    if module in POSIX:
        return (
            f"this needs {module}, which Python does not have on {sys.platform}; expected Linux or macOS. {ON_WINDOWS}"
        )
    if module in TRAINER:
        return f"{module} is not installed; expected the trainer's libraries. Run {install_command('trl')}."
    return str(error)


@contextmanager
def needs_extra(extra: str, library: str, purpose: str) -> Iterator[None]:
    """A block that imports a library of an extra, and says how to install it if it is missing."""
    try:
        yield
    except ImportError as error:
        words = f"{library} is not installed; expected it for {purpose}. Run {install_command(extra)}."
        raise ImportError(words) from error
