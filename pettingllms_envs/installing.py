"""How this package is installed, for messages and docs: it is on no package index, so from a checkout."""


def install_command(extra: str) -> str:
    """The command that installs an extra, and where to run it, such as for `"data"`."""
    return f"pip install -e '.[{extra}]' in a checkout of PettingLLMs"
