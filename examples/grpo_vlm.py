"""Train a team with a vision-language model: TRL's examples/scripts/grpo_vlm.py, with an environment.

    python examples/grpo_vlm.py \
        --model_name_or_path Qwen/Qwen2.5-VL-3B-Instruct \
        --output_dir outputs/grpo-Qwen2.5-VL-3B-Instruct \
        --learning_rate 1e-5 \
        --dtype bfloat16 \
        --max_completion_length 256 \
        --use_peft \
        --lora_target_modules q_proj v_proj \
        --log_completions

The describer sees a grid as a picture and writes it; the solver reads only that, and plays. Rewards are the
environment's, and a row is the seed of an instance.
"""

from __future__ import annotations

from functools import partial

import torch
from datasets import Dataset
from trl import ModelConfig, ScriptArguments, TrlParser, get_peft_config, get_quantization_config

import pettingllms_envs
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer


def main() -> None:
    """Train and save."""
    parser = TrlParser((ScriptArguments, MultiAgentGRPOConfig, ModelConfig))
    script_args, training_args, model_args = parser.parse_args_and_config()

    # ---- Model ----
    named = model_args.dtype
    training_args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "attn_implementation": model_args.attn_implementation,
        "dtype": named if named in ("auto", None) else getattr(torch, named),
    }

    # ---- Rows ----
    rows = Dataset.from_dict({"seed": range(1100), "split": ["train"] * 1100})
    dataset = rows.train_test_split(test_size=100, seed=42)

    # ---- Training ----
    trainer = MultiAgentGRPOTrainer(
        model=model_args.model_name_or_path,
        env=partial(pettingllms_envs.make, "plan_path", workflow="describer_solver", size=4),
        policies="lora" if model_args.use_peft else "shared",
        args=training_args,
        train_dataset=dataset["train"],
        eval_dataset=dataset["test"] if training_args.eval_strategy != "no" else None,
        peft_config=get_peft_config(model_args),
        quantization_config=get_quantization_config(model_args),
    )
    trainer.train()

    trainer.save_model(training_args.output_dir)
    if training_args.push_to_hub:
        trainer.push_to_hub(dataset_name=script_args.dataset_name)


if __name__ == "__main__":
    main()
