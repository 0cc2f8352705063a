"""Models from GGUF files."""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from gguf_files import Q8_0, tiny_llama, write_gguf
from pettingllms_trl import load_gguf
from pettingllms_trl.byte_tokenizers import CHAT_TEMPLATE, byte_tokenizer


@pytest.fixture(scope="module")
def llama() -> LlamaForCausalLM:
    return tiny_llama()


def test_a_file_of_float32_gives_the_logits_of_the_model_that_was_written(
    llama: LlamaForCausalLM, tmp_path: Path
) -> None:
    loaded, _ = load_gguf(write_gguf(tmp_path / "tiny.gguf", llama))
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, llama(ids).logits)


def test_quantized_weights_are_dequantized_into_the_dtype_that_is_asked_for(
    llama: LlamaForCausalLM, tmp_path: Path
) -> None:
    loaded, _ = load_gguf(write_gguf(tmp_path / "tiny.gguf", llama, Q8_0), dtype=torch.bfloat16)
    written = llama.model.layers[0].mlp.up_proj.weight.detach().numpy()
    read = torch.from_numpy(np.array(gguf.quants.dequantize(gguf.quants.quantize(written, Q8_0), Q8_0)))
    assert torch.equal(loaded.model.layers[0].mlp.up_proj.weight, read.to(torch.bfloat16))
    assert not np.array_equal(read.numpy(), written)  # the file did lose something


def test_the_tokenizer_has_the_ids_and_the_chat_template_of_the_file(llama: LlamaForCausalLM, tmp_path: Path) -> None:
    _, loaded = load_gguf(write_gguf(tmp_path / "tiny.gguf", llama))
    own, chat = byte_tokenizer(), [{"role": "user", "content": "Moves: Ü R"}]
    assert (
        loaded.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
        == (own.apply_chat_template(chat, add_generation_prompt=True)["input_ids"])
    )
    assert (loaded.eos_token, loaded.pad_token) == (own.eos_token, own.pad_token)


def test_a_saved_model_is_loaded_by_its_folder_as_any_other(llama: LlamaForCausalLM, tmp_path: Path) -> None:
    model, tokenizer = load_gguf(write_gguf(tmp_path / "tiny.gguf", llama, Q8_0))
    for each in (model, tokenizer):
        each.save_pretrained(tmp_path / "saved")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert all(torch.equal(weight, again.state_dict()[name]) for name, weight in model.state_dict().items())
    assert AutoTokenizer.from_pretrained(tmp_path / "saved").chat_template == CHAT_TEMPLATE


def test_errors_say_what_was_given_and_what_to_do(
    llama: LlamaForCausalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file '.*absent\.gguf'; expected a GGUF file"):
        load_gguf(tmp_path / "absent.gguf")
    (tmp_path / "page.gguf").write_bytes(b"<html>")
    with pytest.raises(ValueError, match=r"begins with b'<htm'; expected b'GGUF'"):
        load_gguf(tmp_path / "page.gguf")
    path = write_gguf(tmp_path / "tiny.gguf", llama)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match=r"Run pip install -e '\.\[gguf\]' in a checkout"):
        load_gguf(path)
