"""Right replies for a supervised team, in the words that the base models of `bases.py` have learned.

supervised: {demonstrations: "benchmarks/studies/demonstrations.py:right", tokens: 60000}
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pettingllms_envs.aec import TextEnv
from pettingllms_trl.records import Prompt
from pettingllms_trl.sft.demonstrations import Demonstration


sys.path.insert(0, str(Path(__file__).parent))

from bases import of_archives


def right(env: TextEnv, seeds: Iterable[int]) -> Iterator[Demonstration]:
    """What the environment's oracle replies in instances of the split `train`; in archives a message says the relation
    with the name."""
    for seed in seeds:
        env.reset(seed=seed, options={"split": "train"})
        while not env.standing():
            agent = env.agent_selection
            shown, reply = env.observe(agent), env.oracle()
            if "Question: " in shown["text"]:
                reply = of_archives(random.Random(0), shown["text"], reply, False)
            prompt = Prompt(
                [{"role": "system", "content": shown["system"]}, {"role": "user", "content": shown["text"]}]
            )
            yield Demonstration(role=agent, prompt=prompt, reply=reply, success=True)
            env.step(reply)
