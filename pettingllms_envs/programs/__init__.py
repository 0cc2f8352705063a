"""Programs as environments: teams that ask an OpenAI-compatible endpoint, written in any framework or in none.

    from pettingllms_envs.programs import program

    env = program(team, agents=("writer", "critic"))  # team(base_url, row) returns the reward
    MultiAgentGRPOTrainer(model, env, ...)

`FILE.py:NAME` is its name on command lines. A run of the program is an episode, and each of its calls a
decision of the agent that asks. Needs no torch.
"""

from pettingllms_envs.failures import ProgramFailed
from pettingllms_envs.programs.maker import ProgramMaker, load, program
from pettingllms_envs.programs.program import Program
from pettingllms_envs.programs.program_env import ProgramEnv


__all__ = ["Program", "ProgramEnv", "ProgramFailed", "ProgramMaker", "load", "program"]
