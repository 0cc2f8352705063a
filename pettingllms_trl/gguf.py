"""Models from GGUF files, the format of llama.cpp: loaded once, they are models of transformers like any other.

    from pettingllms_trl import load_gguf

    model, tokenizer = load_gguf("SmolLM2-135M-Instruct.Q4_1.gguf")
    model.save_pretrained("models/smollm2-135m")
    tokenizer.save_pretrained("models/smollm2-135m")

After that the folder is a `model_name_or_path`, for every command, for PEFT and for vLLM. Nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from pettingllms_envs.installing import install_command


MAGIC = b"GGUF"
"""The first bytes of every such file."""


def load_gguf(
    path: str | Path, *, dtype: torch.dtype = torch.float32
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the causal model and the tokenizer, with its chat template, that a GGUF file holds.

    Quantized weights are dequantized, so the model can be trained and saved; what quantization rounded off stays lost.

    Args:
        path: Of the file. Its architecture must be one that transformers reads from GGUF, such as Llama or Qwen3.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {str(path)!r}; expected a GGUF file. Correct the path, or get the file first: "
            "nothing is downloaded here."
        )
    with path.open("rb") as file:
        start = file.read(len(MAGIC))
    if start != MAGIC:
        raise ValueError(
            f"{str(path)!r} begins with {start!r}; expected {MAGIC!r}, with which every GGUF file begins. Give a GGUF "
            "file; a folder of transformers needs no conversion."
        )
    if importlib.util.find_spec("gguf") is None:
        raise ImportError(
            f"GGUF files are read by the package gguf, which is not installed. Run {install_command('gguf')}."
        )
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=dtype)
    # Dequantized, but still marked as quantized: transformers would neither train nor save it.
    del model.config.quantization_config
    model.hf_quantizer, model.is_quantized = None, False
    return model, AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
