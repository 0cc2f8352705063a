"""What acts for a role: an OpenAI-compatible client, the environment's oracle, scripted replies, a random sample."""

from pettingllms_envs.agents.base import Agent, AgentFailed, AgentRefused, Asked, Reply, Scripted
from pettingllms_envs.agents.spec import Spec


__all__ = ["Agent", "AgentFailed", "AgentRefused", "Asked", "Reply", "Scripted", "Spec"]
