"""Train a drafter and a planner to play Sokoban with AT-GRPO, an adapter each.

    python examples/train_sokoban.py --model Qwen/Qwen3-1.7B --output outputs/sokoban

`pettingllms train --config examples/configs/sokoban_L2_1.7B.yaml` in plain Python, to be copied and changed.
"""

from __future__ import annotations

import argparse

from datasets import Dataset

import pettingllms_envs
from pettingllms_envs import sokoban_v0
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer


def main() -> None:
    """Train, save, and play the published test set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen3-1.7B")
    parser.add_argument("--output", default="outputs/sokoban")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--tests", type=int, default=200, help="instances of the test set to play in the end")
    parser.add_argument("--tokens", type=int, default=4096, help="most that a reply may have")
    options = parser.parse_args()

    trainer = MultiAgentGRPOTrainer(
        model=options.model,
        env=sokoban_v0.env,  # a function that makes the environment; its id "pettingllms/sokoban-v0" would do
        policies="lora",
        args=MultiAgentGRPOConfig(
            output_dir=options.output,
            model_init_kwargs={"dtype": "bfloat16"},  # of the frozen model; float32 by default
            num_generations=4,  # candidates of a decision
            generation_batch_size=128,  # 32 instances x 4
            per_device_train_batch_size=8,
            gradient_accumulation_steps=8,
            learning_rate=1e-5,  # of adapters; some ten times that of a whole model
            lr_scheduler_type="constant",
            max_completion_length=options.tokens,
            chat_template_kwargs={"enable_thinking": False},
            max_steps=options.steps,
            logging_steps=1,
            log_completions=True,  # outputs/sokoban/completions/*.parquet has them all
            num_completions_to_print=4,
            report_to="none",
        ),
        train_dataset=Dataset.from_dict({"seed": range(6400), "split": ["train"] * 6400}),
    )
    trainer.train()
    trainer.save_model()  # outputs/sokoban/drafter, outputs/sokoban/planner

    episodes = trainer.play(pettingllms_envs.test_set("sokoban")[: options.tests], name="test")
    solved = sum(episode.outcome["success"] for episode in episodes)
    print(f"{solved} of {len(episodes)} rooms of the test set solved")


if __name__ == "__main__":
    main()
