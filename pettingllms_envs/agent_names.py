"""The names of agents: that of a role, and a number."""

from __future__ import annotations


def role_of(agent: str) -> str:
    """`"planner_0"` -> `"planner"`; a name without a number is its own role."""
    head, _, number = agent.rpartition("_")
    return head if head and number.isdigit() else agent
