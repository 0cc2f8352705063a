"""Tiny models with vision and their processors, made here from nothing: no network, and no torchvision.

python tests/trl/tiny_vlms.py FOLDER    # saves a Gemma 3 and its processor
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3Processor,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
)
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil


QWEN_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
)
GEMMA_TOKENS = (
    "<pad>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<start_of_image>",
    "<end_of_image>",
    "<image_soft_token>",
)


def _template(begin: str, end: str, image: str) -> str:
    return (
        "{% for m in messages %}" + begin + "{{ m['role'] }}\n"
        "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
        "{% if c['type'] == 'image' %}" + image + "{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}"
        + end + "\n{% endfor %}{% if add_generation_prompt %}" + begin + "assistant\n{% endif %}"
    )  # fmt: skip


QWEN_TEMPLATE = _template("<|im_start|>", "<|im_end|>", "<|vision_start|><|image_pad|><|vision_end|>")
GEMMA_TEMPLATE = _template("<start_of_turn>", "<end_of_turn>", "<start_of_image>")


def _byte_tokenizer(special: tuple[str, ...], **tokens: Any) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate([*special, *alphabet])}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(special))
    return PreTrainedTokenizerFast(tokenizer_object=inner, padding_side="left", **tokens)


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
    tokenizer = _byte_tokenizer(QWEN_TOKENS, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = QWEN_TEMPLATE
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


def gemma_processor() -> Gemma3Processor:
    """Of pictures of 4 places each, whatever their size."""
    names = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    tokenizer = _byte_tokenizer(GEMMA_TOKENS, eos_token="<end_of_turn>", pad_token="<pad>", extra_special_tokens=names)
    tokenizer.chat_template = GEMMA_TEMPLATE
    part = Gemma3ImageProcessorPil(size={"height": 56, "width": 56})
    return Gemma3Processor(part, tokenizer, chat_template=GEMMA_TEMPLATE, image_seq_length=4)


def gemma(processor: Gemma3Processor, *, initializer_range: float = 0.02) -> Gemma3ForConditionalGeneration:
    """A Gemma 3 of 2 layers of each part with random weights, the same every time."""
    tokenizer = processor.tokenizer
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    torch.manual_seed(0)
    model = Gemma3ForConditionalGeneration(
        Gemma3Config(
            text_config={
                "vocab_size": len(tokenizer),
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 16,
                "query_pre_attn_scalar": 16,
                "max_position_embeddings": 2048,
                "sliding_window": 512,
                "layer_types": ["sliding_attention", "full_attention"],
                "initializer_range": initializer_range,
                **ends,
            },
            vision_config={
                "image_size": 56,
                "patch_size": 14,
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
            },
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


FAMILIES = {"qwen": (qwen_processor, qwen), "gemma": (gemma_processor, gemma)}


def save_gemma(folder: str | Path) -> str:
    """What a trainer loads by the folder's name."""
    processor = gemma_processor()
    gemma(processor).save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


if __name__ == "__main__":
    save_gemma(sys.argv[1])
