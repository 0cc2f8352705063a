"""Makes tools by name: this package's own, and those of the entry-point group `pettingllms.tools`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pettingllms_envs.core import Tool, check_choice


GROUP = "pettingllms.tools"

_OWN: Mapping[str, str] = {
    "mcp": "pettingllms_envs.tools.mcp:McpTool",
    "python": "pettingllms_envs.sandbox:ToolExecutor",
}


def tool_names() -> tuple[str, ...]:
    """The names of all installed tools."""
    return tuple(sorted(_installed()))


def make_tool(tool: str | Mapping[str, Any] | Tool) -> Tool:
    """A tool by name.

    Args:
        tool: A name, such as `"python"`; a mapping with the name and the tool's settings, such as
            `{"tool": "python", "imports": ["sympy"]}`; or a tool, which is returned.
    """
    if not isinstance(tool, str | Mapping):
        return tool
    settings = {"tool": tool} if isinstance(tool, str) else dict(tool)
    name = str(settings.pop("tool", ""))
    installed = _installed()
    check_choice("the name of a tool", name, tuple(sorted(installed)))
    make: Callable[..., Tool] = installed[name].load()
    return make(**{key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()})


def _installed() -> dict[str, EntryPoint]:
    own = {name: EntryPoint(name, path, GROUP) for name, path in _OWN.items()}
    return own | {point.name: point for point in entry_points(group=GROUP)}
