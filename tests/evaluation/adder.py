"""A tool for tests that needs no sandbox: it adds numbers."""

from __future__ import annotations

from pettingllms_envs.core import ToolResult, ToolSpec


class Adder:
    """Adds the numbers of a text, such as `"1 2 3"`."""

    spec = ToolSpec(
        "add",
        "Adds numbers.",
        {"type": "object", "properties": {"numbers": {"type": "string"}}, "required": ["numbers"]},
    )
    digest = ""
    deterministic = True

    def __call__(self, request: str) -> ToolResult:
        numbers = request.split()
        if not all(each.isdecimal() for each in numbers):
            return ToolResult("", "it got no numbers")
        return ToolResult(str(sum(map(int, numbers))))
