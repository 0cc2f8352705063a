"""What acts for a role: an OpenAI-compatible client, the environment's oracle, scripted replies, a random sample."""

from pettingllms_envs.agents.base import Agent, AgentFailed, AgentRefused, Reply, Request, Scripted
from pettingllms_envs.agents.spec import AgentSpec


__all__ = ["Agent", "AgentFailed", "AgentRefused", "AgentSpec", "Reply", "Request", "Scripted"]
