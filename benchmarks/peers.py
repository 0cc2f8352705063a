"""The peers' environments: virtual environments under .bench/, where nothing of a peer gets into ours.

A peer that does not install leaves its environment without it, and the reason beside it: the rows that need it then
say so.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


HERE = Path(__file__).parent
ROOT = HERE.parent
FOLDER = ROOT / ".bench"
FAILED = "not_installed.txt"


def python_of(name: str = "peers") -> Path:
    """The interpreter of an environment, made or not."""
    return FOLDER / name / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def requirements(text: str) -> tuple[list[str], list[str]]:
    """The lines of peers.txt: the peers, and what both sides stand on.

    Example:
        `requirements("a==1\\n# What both sides stand on\\nb==2")` is `(["a==1"], ["b==2"])`.
    """
    peers, _, base = text.partition("# What both sides stand on")
    return _pins(peers), _pins(base)


def prepare() -> Path:
    """Make the environment of peers.txt where there is none, or where the file has changed; its interpreter.

    Each peer is installed by itself, so that one that fails is missed by its own rows alone; next time it is
    tried again.

    Raises:
        subprocess.CalledProcessError: What both sides stand on did not install.
    """
    text = (HERE / "peers.txt").read_text()
    python, seal = python_of(), FOLDER / "peers" / "peers.txt"
    if seal.exists() and seal.read_text() == text:
        return python
    print(f"Installing the peers into {FOLDER / 'peers'}, once (a minute or so) ...", flush=True)
    FOLDER.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER / "peers")], check=True)
    peers, base = requirements(text)
    subprocess.run([*_pip(python), *base], check=True)
    failed = []
    for peer in peers:
        done = subprocess.run([*_pip(python), peer, *base], capture_output=True, text=True, check=False)
        if done.returncode:
            last = [line for line in done.stderr.splitlines() if line.strip()][-1:] or ["no reason was given"]
            failed.append(f"{peer} did not install: {last[0]}")
    (FOLDER / "peers" / FAILED).write_text("\n".join(failed))
    if not failed:
        seal.write_text(text)
    return python


def not_installed() -> list[str]:
    """The peers that did not install, and why."""
    file = FOLDER / "peers" / FAILED
    return file.read_text().splitlines() if file.exists() else []


def _pip(python: Path) -> list[str]:
    return [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]


def _pins(text: str) -> list[str]:
    return [line for line in text.splitlines() if "==" in line]
