"""Checks that an environment can be trained in, with a tiny model that is made here: no GPU, no network.

    def test_a_tiny_model_trains_in_it(tmp_path):
        train_briefly(my_game_v0.env, tmp_path)

`python -m pettingllms_trl.testing FOLDER` saves such a model in a folder, for trying commands with it;
with `--vision`, one that reads images.

The model has random weights and writes nothing that makes sense, so its replies are replaced by samples of the agents'
action spaces and by the oracle's. The run shows that prompts are rendered, episodes are branched, rewards arrive and
optimizer steps are taken; it says nothing about whether a model learns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from datasets import Dataset
from peft import LoraConfig
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

from pettingllms_envs.prompts import images_of, read_observation
from pettingllms_trl.byte_tokenizers import byte_tokenizer, tokenizer_of_bytes
from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.trainer.trainer import MultiAgentGRPOTrainer


GEMMA_TOKENS = (
    *("<pad>", "<start_of_turn>", "<end_of_turn>"),
    *("<start_of_image>", "<end_of_image>", "<image_soft_token>"),
)
GEMMA_TEMPLATE = (
    "{% for m in messages %}<start_of_turn>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<start_of_image>{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>assistant\n{% endif %}"
)
MAX_POSITIONS = 16_384
NUM_CANDIDATES = 2


def train_briefly(make_env: Callable[[], Any], folder: str | Path, *, num_steps: int = 3) -> MultiAgentGRPOTrainer:
    """Train a tiny model in an environment for a few steps on the CPU, with an adapter for each role; return the
    trainer.

    Args:
        folder: Where model and outputs are written, such as pytest's `tmp_path`.
    """
    env = make_env()
    env.reset(seed=0)
    sees = any(images_of(read_observation(env.observe(agent), agent=agent).messages) for agent in env.agents)
    path = Path(folder) / "model"
    model = save_tiny_gemma(path) if sees else save_tiny_model(path, byte_tokenizer())
    trainer = MultiAgentGRPOTrainer(
        model,
        make_env,
        MultiAgentGRPOConfig(
            str(Path(folder) / "outputs"),
            per_device_train_batch_size=NUM_CANDIDATES,
            num_generations=NUM_CANDIDATES,
            max_completion_length=8,
            max_turns=2,
            max_steps=num_steps,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            shared_prefix=not sees,
            use_cpu=True,
            bf16=False,
        ),
        Dataset.from_dict({"seed": range(num_steps)}),
        policies="lora",
        peft_config=LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    replies = _replies(env, num_steps)
    tokenizer = trainer.processing_class.tokenizer if sees else trainer.processing_class
    tokenizer.batch_decode = lambda rows, **_: [replies[ids[0] % len(replies)] for ids in rows]
    trainer.train()
    return trainer


def _replies(env: Any, num_instances: int) -> list[str]:
    """Samples of the action spaces and, where there is an oracle, its first reply in some instances."""
    spaces = [env.action_space(agent) for agent in env.possible_agents]
    replies = []
    for seed in range(num_instances):
        env.reset(seed=seed)
        replies += [str(space.sample()) for space in spaces]
        if env.metadata.get("has_oracle"):
            replies.append(env.unwrapped.oracle())
    return replies


def gemma_processor() -> transformers.Gemma3Processor:
    """A processor for which each picture has 4 places, whatever its size."""
    names = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    tokenizer = tokenizer_of_bytes(
        GEMMA_TOKENS, GEMMA_TEMPLATE, eos_token="<end_of_turn>", pad_token="<pad>", extra_special_tokens=names
    )
    part = Gemma3ImageProcessorPil(size={"height": 56, "width": 56})
    return transformers.Gemma3Processor(part, tokenizer, chat_template=GEMMA_TEMPLATE, image_seq_length=4)


def gemma(
    processor: transformers.Gemma3Processor, *, initializer_range: float = 0.02
) -> transformers.Gemma3ForConditionalGeneration:
    """A Gemma 3 of 2 layers of each part with random weights, the same every time."""
    tokenizer = processor.tokenizer
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    width = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    model = transformers.Gemma3ForConditionalGeneration(
        transformers.Gemma3Config(
            text_config={
                **width,
                **ends,
                "vocab_size": len(tokenizer),
                "num_key_value_heads": 2,
                "head_dim": 16,
                "query_pre_attn_scalar": 16,
                "max_position_embeddings": MAX_POSITIONS,
                "sliding_window": 512,
                "layer_types": ["sliding_attention", "full_attention"],
                "initializer_range": initializer_range,
            },
            vision_config={**width, "image_size": 56, "patch_size": 14},
            mm_tokens_per_image=4,
            image_token_index=tokenizer.image_token_id,
            boi_token_index=tokenizer.boi_token_id,
            eoi_token_index=tokenizer.eoi_token_id,
            initializer_range=initializer_range,
            **ends,
        )
    )
    torch.nn.init.normal_(model.model.multi_modal_projector.mm_input_projection_weight, std=0.1)  # of zeros else
    return model


def save_tiny_gemma(folder: Path) -> str:
    """Save `gemma`, a model with vision, and its processor, which needs no torchvision; returns the folder."""
    processor = gemma_processor()
    gemma(processor).save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


def save_tiny_model(
    folder: Path,
    tokenizer: transformers.PreTrainedTokenizerFast,
    *,
    hidden_size: int = 32,
    head_dim: int = 16,
    max_position_embeddings: int = MAX_POSITIONS,
    **config: Any,
) -> str:
    """Save a Qwen3 of 2 layers with random weights, the same every time, and its tokenizer; returns the folder."""
    torch.manual_seed(0)
    model = transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=hidden_size,
            intermediate_size=2 * hidden_size,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=head_dim,
            max_position_embeddings=max_position_embeddings,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
            **config,
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def main(argv: Sequence[str] | None = None) -> None:
    """Save a tiny model in a folder. Its attention heads have 64 dimensions, the fewest that vLLM takes on a CPU."""
    parser = argparse.ArgumentParser(description="Make a tiny model with random weights, for trying commands.")
    parser.add_argument("folder", type=Path, help="where to, such as outputs/tiny")
    parser.add_argument("--vision", action="store_true", help="a Gemma 3 that reads images, in place of a Qwen3")
    given = parser.parse_args(argv)
    if given.vision:
        path = save_tiny_gemma(given.folder)
    else:
        # At the usual initializer range of 0.02 the norms of queries and keys divide by next to nothing.
        path = save_tiny_model(given.folder, byte_tokenizer(), hidden_size=64, head_dim=64, initializer_range=0.1)
    sys.stdout.write(f"A model with random weights is in {path}.\n")


if __name__ == "__main__":
    main()
