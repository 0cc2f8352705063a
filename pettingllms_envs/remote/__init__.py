"""Environments that another process holds, and teams for others.

Actors of Ray: `workers` reads what a run asks for, `ray_envs` plays it. OpenEnv: `openenv_client` is the wire,
`openenv_env` plays a server, `openenv_server` serves a team.
"""
