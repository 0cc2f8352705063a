"""Environments that another process holds: actors of Ray (`ray_envs`)."""
