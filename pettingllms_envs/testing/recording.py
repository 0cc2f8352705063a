"""Records a game as a text file: states, prompts, replies and rewards of a few episodes, compared on every test run.

A change of the game shows as a difference; it needs a new version of the environment, and so a new file.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.testing.play import texts


NUM_EPISODES = 3
_JUNK = "I am not sure."


def record(make: Callable[[], TextEnv]) -> str:
    """Play a few episodes, of the test split if there are splits, and record everything observable.

    The replies are the oracle's, well-formed ones that ignore the state, and an unreadable one, chosen with a fixed
    seed; the last episode has only the oracle's, so that one is solved. Without an oracle the first bot replies. Of
    images there are their descriptions, since their bytes depend on the version of Pillow.

    Args:
        make: Makes the environment; its output must not depend on the machine.
    """
    env = make()
    best = env.oracle if env.metadata["has_oracle"] else partial(env.bot, env.metadata["bots"][0])
    rng = random.Random(0)
    lines: list[str] = []
    for seed in range(NUM_EPISODES):
        has_splits = "split" in env.metadata["reset_options"]
        env.reset(seed=seed, options={"split": "test"} if has_splits else None)
        lines += [f"=== {env}, {'test' if has_splits else 'seed'} {seed}"]
        systems = [(agent, env.observe(agent)["system"]) for agent in env.agents] if seed == 0 else []
        for agent, system in systems:
            lines += [f"--- what {agent} reads first", system]
        while not (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            agent = env.agent_selection
            blind = rng.choice(env.workflow.task.blind_replies)
            reply = rng.choice((best(), blind, blind, _JUNK)) if seed < NUM_EPISODES - 1 else best()
            lines += [f"--- {agent} reads", texts(env.observe(agent))[-1], f"--- {agent} replies", reply]
            env.step(reply)
            lines += [f"--- rewards {parts}" for parts in _paid(env)]
            lines += [f"--- state {env.state_hash()}"]
        lines += [f"--- outcome {dict(env.infos[env.agent_selection]['outcome'])}"]
    return "\n".join(lines) + "\n"


def _paid(env: TextEnv) -> list[str]:
    """The reward of each agent and its parts, to six digits."""
    infos, rewards = env.infos, env.rewards
    return [
        f"{agent} {rewards[agent]:+.6f}: " + ", ".join(f"{k} {v:+.6f}" for k, v in infos[agent]["rewards"].items())
        for agent in env.agents
    ]
