"""How this package and its extras are installed, for messages and docs: from a checkout, for it is on no index."""

from collections.abc import Iterator
from contextlib import contextmanager


def install_command(extra: str) -> str:
    """The command that installs an extra, and where to run it, such as for `"data"`."""
    return f"pip install -e '.[{extra}]' in a checkout of PettingLLMs"


@contextmanager
def needs_extra(extra: str, library: str, purpose: str) -> Iterator[None]:
    """A block that imports a library of an extra, and says how to install it if it is missing.

    Raises:
        ImportError: An import in the block failed.
    """
    try:
        yield
    except ImportError as error:
        words = f"{library} is not installed; expected it for {purpose}. Run {install_command(extra)}."
        raise ImportError(words) from error
