"""A conversation of roles about a prompt, whose replies a trainer's reward functions judge.

`pettingllms_envs.conversation(roles=[...])` makes one for `MultiAgentGRPOTrainer(env=...)`.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.conversation.conversation import Conversation
from pettingllms_envs.environments.conversation.prompts import Prompts


raw_env, env, parallel_env = assemble(Prompts, __name__, (Conversation,))

TEAM_SETTINGS = ("roles", "instructions", "history", "max_chars", "grader")
"""Settings that belong to a team: one that is saved is benchmarked with its own."""
