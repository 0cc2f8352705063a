"""Research on training, as `pettingllms_envs.research` is on teams: nothing imports it."""
