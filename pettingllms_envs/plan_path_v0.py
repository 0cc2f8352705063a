"""plan_path_v0: Plan-Path. Settings: `pettingllms_envs.tasks.plan_path.PlanPath`; the rest: `assembly.assemble`."""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.tasks.plan_path import PlanPath


raw_env, env, parallel_env = assemble(PlanPath)
