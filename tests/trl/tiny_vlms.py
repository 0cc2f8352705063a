"""Tiny models with vision of two families, and their processors: no network, and no torchvision."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from pettingllms_trl.testing import GEMMA_TEMPLATE, gemma, gemma_processor, tokenizer_of_bytes


QWEN_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
)
QWEN_TEMPLATE = (
    GEMMA_TEMPLATE.replace("<start_of_image>", "<|vision_start|><|image_pad|><|vision_end|>")
    .replace("<start_of_turn>", "<|im_start|>")
    .replace("<end_of_turn>", "<|im_end|>")
)


class StillProcessor(Qwen2_5_VLProcessor):
    """Qwen's without the part for videos, which needs torchvision."""

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None) -> None:
        self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
        self.image_token_id, self.video_token_id = (
            tokenizer.convert_tokens_to_ids(token) for token in (self.image_token, self.video_token)
        )
        super(Qwen2_5_VLProcessor, self).__init__(image_processor, tokenizer, chat_template=chat_template)


def qwen_processor() -> StillProcessor:
    """Of pictures of 4 to 16 places of 28 x 28 pixels each."""
    tokenizer = tokenizer_of_bytes(QWEN_TOKENS, QWEN_TEMPLATE, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    size = {"shortest_edge": 4 * 28 * 28, "longest_edge": 16 * 28 * 28}
    return StillProcessor(Qwen2VLImageProcessorPil(size=size), tokenizer, chat_template=QWEN_TEMPLATE)


def qwen(processor: StillProcessor, *, initializer_range: float = 0.02) -> Qwen2_5_VLForConditionalGeneration:
    """A Qwen2.5-VL of 2 layers of each part with random weights, the same every time."""
    places = processor.tokenizer.convert_tokens_to_ids
    ends = {"eos_token_id": places("<|im_end|>"), "pad_token_id": places("<|endoftext|>")}
    torch.manual_seed(0)
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(
            text_config={
                "vocab_size": len(processor.tokenizer),
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "max_position_embeddings": 2048,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
                "bos_token_id": None,
                "initializer_range": initializer_range,
                **ends,
            },
            vision_config={
                "depth": 2,
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_heads": 4,
                "out_hidden_size": 64,
                "fullatt_block_indexes": [1],
                "window_size": 112,
                "initializer_range": initializer_range,
            },
            image_token_id=places("<|image_pad|>"),
            video_token_id=places("<|video_pad|>"),
            vision_start_token_id=places("<|vision_start|>"),
            vision_end_token_id=places("<|vision_end|>"),
            initializer_range=initializer_range,
            **ends,
        )
    )


FAMILIES = {"qwen": (qwen_processor, qwen), "gemma": (gemma_processor, gemma)}
