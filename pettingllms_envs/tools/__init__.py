"""Tools that roles may call: Python, and those that other packages offer (entry-point group `pettingllms.tools`).

    >>> from pettingllms_envs.tools import make_tool
    >>> make_tool("python").spec.name
    'python'

A tool is a `pettingllms_envs.core.Tool`. `make("plan_path", role_tools={"planner": ["python"]})` lets a role of any
environment call some before it replies, see `pettingllms_envs.teams.tool_calls`.
"""

from pettingllms_envs.tools.calls import Call, read_native_calls, read_text_calls, written_call
from pettingllms_envs.tools.registry import make_tool, tool_names


__all__ = ["Call", "make_tool", "read_native_calls", "read_text_calls", "tool_names", "written_call"]
