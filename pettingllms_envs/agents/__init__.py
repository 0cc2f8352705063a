"""Agents that play a role: an OpenAI-compatible client, the environment's oracle, scripted replies, random samples."""

from pettingllms_envs.agents.base import Agent, AgentFailed, AgentRefused, Reply, Request, Scripted
from pettingllms_envs.agents.spec import AgentSpec


__all__ = ["Agent", "AgentFailed", "AgentRefused", "AgentSpec", "Reply", "Request", "Scripted"]
