"""GGUF files of tiny models, written by the `gguf` package as llama.cpp lays them out."""

from __future__ import annotations

from pathlib import Path

import gguf
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pettingllms_trl.byte_tokenizers import CHAT_TEMPLATE, SPECIAL_TOKENS, byte_tokenizer


F32, Q8_0 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q8_0
HEADS, KV_HEADS = 4, 2
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Of transformers, and of llama.cpp."""
MERGED = ("Ā", "ā")
"""The bytes 0 and 1, which no text has: a list of merges may not be empty."""


def tiny_llama() -> LlamaForCausalLM:
    """One layer of random weights, the same every time."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(byte_tokenizer()) + 1,  # see `MERGED`
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=1,
        )
    ).eval()


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of queries or keys as llama.cpp has them: the halves that are rotated together lie side by side."""
    out, into = weight.shape
    return weight.view(heads, 2, out // heads // 2, into).transpose(1, 2).reshape(out, into)


def write_gguf(path: Path, model: LlamaForCausalLM, kind: gguf.GGMLQuantizationType = F32) -> Path:
    """The model and the byte tokenizer as a GGUF file; matrices are of a kind."""
    config, tokenizer = model.config, byte_tokenizer()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__), "".join(MERGED)])
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if i < len(SPECIAL_TOKENS) else normal for i in range(config.vocab_size)])
    writer.add_token_merges([" ".join(MERGED)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(0)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, weight in model.model.state_dict(prefix="model.").items():
        if "q_proj" in name or "k_proj" in name:
            weight = interleaved(weight, HEADS if "q_proj" in name else KV_HEADS)
        of_kind = kind if weight.dim() == 2 else F32
        data = gguf.quants.quantize(weight.numpy(), of_kind)
        writer.add_tensor(llama_cpp_name(name), data, raw_dtype=of_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def llama_cpp_name(name: str) -> str:
    """`model.layers.0.mlp.up_proj.weight` as `blk.0.ffn_up.weight`."""
    part = name.removesuffix(".weight")
    if part in NAMES:
        return f"{NAMES[part]}.weight"
    _, _, layer, inner = part.split(".", 3)
    return f"blk.{layer}.{NAMES[inner]}.weight"
