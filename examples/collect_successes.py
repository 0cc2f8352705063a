"""Collect the successful episodes of a model, for a warm-up by imitation (rejection sampling).

    python examples/collect_successes.py --env pettingllms/plan_path-v0 --model Qwen/Qwen3-1.7B \
        --output successes.jsonl
    pettingllms sft --env pettingllms/plan_path-v0 --imports pettingllms_envs --model_name_or_path Qwen/Qwen3-1.7B \
        --policies lora --from successes.jsonl --output_dir outputs/warm

The instances are from the train split, with seeds that reinforcement learning does not use.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.sft.demonstrations import FIRST_SEED, of_episodes, write


def main() -> None:
    """Play, select, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen3-1.7B")
    parser.add_argument("--env", default="pettingllms/plan_path-v0", help="an id of PettingZoo's registry")
    parser.add_argument("--output", type=Path, default=Path("successes.jsonl"))
    parser.add_argument("--instances", type=int, default=500)
    parser.add_argument("--tries", type=int, default=4, help="episodes of each instance")
    parser.add_argument("--tokens", type=int, default=4096, help="maximum length of a reply")
    options = parser.parse_args()

    player = MultiAgentGRPOTrainer(  # without a train_dataset it only plays
        model=options.model,
        env=options.env,
        args=MultiAgentGRPOConfig(
            output_dir="outputs/player",
            max_completion_length=options.tokens,
            max_envs=64,  # episodes at once
            chat_template_kwargs={"enable_thinking": False},
            report_to="none",
        ),
    )
    rows = [{"seed": FIRST_SEED + i, "split": "train"} for i in range(options.instances)]
    episodes = player.play(rows, num_episodes=options.tries, name="collect")
    kept = [demonstration for demonstration in of_episodes(episodes) if demonstration.success]
    number = write(options.output, kept)
    solved = sum(bool(episode.outcome["success"]) for episode in episodes)
    print(f"{solved} of {len(episodes)} episodes succeeded; {number} decisions in {options.output}")
    if not kept:
        print("Nothing to imitate: try easier instances (a level in the rows), more --tries, or the oracle.")


if __name__ == "__main__":
    main()
