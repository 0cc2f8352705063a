"""What a check says of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


Status = Literal["passed", "warning", "failed", "not recorded", "not applicable"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict of one check.

    Args:
        name: What the check looks for, such as `"mixed prompts"`.
        status: `"passed"`: looked for in all that there is, and not found. `"not recorded"`: a column that it needs is
            missing, so that nothing was looked at. `"not applicable"`: there can be none in a run of this kind.
        where: The first place where it was found, or nothing.
    """

    name: str
    status: Status
    text: str
    where: str = ""
    remedy: str = ""

    @property
    def is_bad(self) -> bool:
        return self.status in ("warning", "failed")

    @property
    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    def __str__(self) -> str:
        where = f" First: {self.where}." if self.where else ""
        return f"{self.name}: {self.text}{where}{' ' if self.remedy else ''}{self.remedy}"


def counted(number: int, what: str) -> str:
    """`"1 group"`, `"2 groups"`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
