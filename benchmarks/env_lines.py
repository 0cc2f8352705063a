"""How much is there to write for an environment? Lines of code of the third-party environments of the tests.

    python benchmarks/env_lines.py

A line of code is one that is neither blank nor comment nor docstring, at the project's line length. "Before" is the
same environment under the first contract, which had no base classes, function workflows, tools, images or declared
branching, formatted and counted alike, and how many checks of the conformance suite it failed. An
environment that failed some could be played, and not relied on.
"""

from __future__ import annotations

from typing import NamedTuple

from architecture import ROOT, lines_of


CONTRIBUTED = ROOT / "tests" / "envs" / "contributed"


class Contributed(NamedTuple):
    """A third-party environment: its file, and its code lines, files and failed checks under the first contract."""

    what: str
    file: str
    before: tuple[int, int, int] | None


ENVIRONMENTS = (
    Contributed("a game with its own team", "lights_out_v0.py", (134, 2, 0)),
    Contributed("a free topology", "council_v0.py", (92, 2, 1)),
    Contributed("SQL with a tool", "shop_v0.py", (170, 2, 0)),
    Contributed("images", "pixel_path_v0.py", (20, 1, 3)),
    Contributed("a hosted environment", "hosted_v0.py", (33, 1, 2)),
    Contributed("a simulator, MuJoCo", "reach_v0.py", (96, 1, 0)),
    Contributed("a debate as a function", "debate_v0.py", None),
)


def table() -> list[str]:
    """The environments as lines of a table in Markdown."""
    lines = [
        "| environment | code lines before | files | failed checks | code lines | files |",
        "|---|---|---|---|---|---|",
    ]
    for each in ENVIRONMENTS:
        code, _ = lines_of(CONTRIBUTED / each.file)
        before = " | ".join(map(str, each.before or ("-",) * 3))
        lines.append(f"| {each.what} (`{each.file}`) | {before} | {code} | 1 |")
    return lines


def main() -> None:
    """Print the table."""
    print("\n".join(table()))


if __name__ == "__main__":
    main()
