"""Train a team in a third-party environment: a plain PettingZoo class, with only the space of all strings from us.

    python examples/train_third_party.py --model Qwen/Qwen3-1.7B --output outputs/twenty

Two agents name numbers in turn. Reaching a sum of exactly 20 wins for both; going over it ends the episode. Each step
also rewards the moves that it saves the team, so that every step carries a learning signal, not only the last one.
"""

from __future__ import annotations

import argparse
import math
import re
from typing import Any, ClassVar

from datasets import Dataset
from pettingzoo import AECEnv

from pettingllms_envs.spaces import ChatText
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer


GOAL = 20


def moves_left(total: int) -> int:
    """The fewest numbers from 1 to 9 that bring the sum from `total` to the goal."""
    return math.ceil((GOAL - total) / 9)


class Twenty(AECEnv):
    """Observations and actions are text; that is all that the trainer asks for."""

    metadata: ClassVar[dict[str, Any]] = {"name": "twenty_v0", "render_modes": []}

    def __init__(self) -> None:
        self.possible_agents = ["first_0", "second_0"]
        self.text = ChatText()

    def observation_space(self, agent: str) -> ChatText:
        """Any string."""
        return self.text

    def action_space(self, agent: str) -> ChatText:
        """Any string."""
        return self.text

    def observe(self, agent: str) -> str:
        """What the model reads."""
        return f"The sum is {self.sum}. Add a number from 1 to 9, so that your team reaches {GOAL} exactly."

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """A row of the data set: its seed, and its other columns as options."""
        self.sum = (seed or 0) % 10
        self.agents = self.possible_agents[:]
        self.agent_selection = self.agents[0]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {"outcome": {"success": False}} for agent in self.agents}

    def step(self, action: str | None) -> None:
        """Play a model's reply, whatever it is; the last number in it counts."""
        if action is None:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[self.agent_selection] = 0.0
        said = re.findall(r"\d", action)
        before = self.sum
        self.sum += int(said[-1]) if said else 0
        saved = moves_left(before) - moves_left(self.sum) if self.sum <= GOAL else 0
        self.rewards = dict.fromkeys(self.agents, float(self.sum == GOAL) + 0.5 * saved)
        self.rewards[self.agent_selection] -= 0.0 if said else 0.2
        self._accumulate_rewards()
        self.terminations = dict.fromkeys(self.agents, self.sum >= GOAL)
        self.infos = {agent: {"outcome": {"success": self.sum == GOAL}} for agent in self.agents}
        self.agent_selection = self.agents[1 - self.agents.index(self.agent_selection)]


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen3-1.7B")
    parser.add_argument("--output", default="outputs/twenty")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    trainer = MultiAgentGRPOTrainer(
        model=options.model,
        env=Twenty,
        policies="lora",  # adapters "first" and "second"
        args=MultiAgentGRPOConfig(
            output_dir=options.output,
            num_generations=8,
            per_device_train_batch_size=16,
            max_completion_length=64,
            max_turns=8,  # a team that only names small numbers, or none, would play forever
            max_steps=options.steps,
            learning_rate=1e-5,
            chat_template_kwargs={"enable_thinking": False},
            report_to="none",
        ),
        train_dataset=Dataset.from_dict({"seed": range(1000)}),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
