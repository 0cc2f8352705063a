"""A conversation of roles about a prompt, whose replies a trainer's reward functions judge.

The settings: `pettingllms_envs.tasks.prompts.Prompts` and `pettingllms_envs.teams.conversation.Conversation`; all
other arguments: `pettingllms_envs.assembly.assemble`. `pettingllms_envs.conversation(roles=[...])` makes one for
`MultiAgentGRPOTrainer(env=...)`.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.tasks.prompts import Prompts
from pettingllms_envs.teams.conversation import Conversation


raw_env, env, parallel_env = assemble(Prompts, __name__, (Conversation,))

TEAM_SETTINGS = ("roles", "instructions", "history", "max_chars", "grader")
"""Settings that belong to a team: one that is saved is benchmarked with its own."""
