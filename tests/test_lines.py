"""The two packages have no more lines than `lines.toml` allows, and each of their folders as many as it says.

A line is one of `wc -l` of a Python file. `python tests/test_lines.py` rewrites the lines of the folders, and neither
the ceiling nor the rooms; CONTRIBUTING.md says when those change.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path


ROOT = Path(__file__).resolve().parents[1]
RECORDED = Path(__file__).with_name("lines.toml")
PACKAGES = ("pettingllms_envs", "pettingllms_trl")
FOLDERS = "[folders]\n"
SLACK = 100
"""Lines that the total may lie below the ceiling before that has to be lowered."""


def counted() -> dict[str, int]:
    """The lines of each top folder; those of a package's own modules under its name."""
    lines: Counter[str] = Counter()
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            parts = file.relative_to(ROOT).parts
            lines["/".join(parts[: min(2, len(parts) - 1)])] += file.read_bytes().count(b"\n")
    return dict(sorted(lines.items()))


def rewritten(text: str, folders: dict[str, int]) -> str:
    """The file with other lines of the folders; all above them stays."""
    rows = "".join(f'"{name}" = {number}\n' for name, number in folders.items())
    return text.partition(FOLDERS)[0] + FOLDERS + rows


def fault(ceiling: int, rooms: dict[str, int], total: int) -> str:
    """What is wrong with a total, and what to do; empty if nothing is."""
    if total > ceiling + sum(rooms.values()):
        more = total - ceiling - sum(rooms.values())
        return f"{total} lines are {more} above the ceiling and all rooms; remove some, or name the feature in [rooms]"
    return f"{total} lines: lower the ceiling, {ceiling}, to that" if total < ceiling - SLACK else ""


def test_each_folder_has_as_many_lines_as_is_recorded() -> None:
    recorded = tomllib.loads(RECORDED.read_text(encoding="utf-8"))["folders"]
    assert recorded == counted(), "run `python tests/test_lines.py`; see CONTRIBUTING.md"


def test_the_total_is_below_the_ceiling_and_the_rooms_of_named_features() -> None:
    recorded = tomllib.loads(RECORDED.read_text(encoding="utf-8"))
    assert not fault(recorded["ceiling"], recorded["rooms"], sum(counted().values()))
    assert all(name.strip() and lines > 0 for name, lines in recorded["rooms"].items())


def test_a_rise_needs_room_and_a_fall_lowers_the_ceiling() -> None:
    rooms = {"images in replies": 30, "a table of options": 20}
    assert fault(1000, {}, 1000) == fault(1000, rooms, 1050) == fault(1000, rooms, 900) == ""
    assert fault(1000, {}, 1001).startswith("1001 lines are 1 above the ceiling")
    assert fault(1000, rooms, 1051).startswith("1051 lines are 1 above the ceiling and all rooms")
    assert fault(1000, rooms, 899) == "899 lines: lower the ceiling, 1000, to that"


def test_rewriting_changes_the_lines_of_folders_alone() -> None:
    above = 'ceiling = 9\n\n[rooms]\n"a feature" = 2 # why\n\n'
    assert rewritten(f'{above}[folders]\n"old" = 5\n', {"a/b": 3}) == f'{above}[folders]\n"a/b" = 3\n'


if __name__ == "__main__":
    RECORDED.write_text(rewritten(RECORDED.read_text(encoding="utf-8"), counted()), encoding="utf-8")
