"""Policies: which weights act for which agent, how they encode prompts and sample, and how they are saved."""

from pettingllms_trl.policies.routing import Policy, Routing, route


__all__ = ["Policy", "Routing", "route"]
