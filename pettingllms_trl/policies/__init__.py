"""Policies: which weights decide for which agent, and how these weights read prompts, sample, are saved and loaded."""

from pettingllms_trl.policies.routing import Policy, Routing, route


__all__ = ["Policy", "Routing", "route"]
