"""What it costs to encode a decision's prompt and to decode its candidates, by transformers' way and by ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trl
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from pettingllms_trl.policies.codecs import decoder


ROOT = Path(__file__).parents[1]
SPLIT = (  # Qwen's
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CANDIDATES, REPLY_TOKENS, PROMPTS = 8, 300, 64
SIZES = {"short": (600, 500), "middle": (2500, 1500), "long": (4000, 4000)}
"""Characters of the system's text and of the message."""


def tokenizer_like_qwens() -> Any:
    """Qwen's splitting and Qwen3's chat template, with 20,000 pieces fitted to the texts in this repository."""
    inner = Tokenizer(models.BPE())
    inner.normalizer = normalizers.NFC()
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=20_000,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sources = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("pettingllms_*/**/*.py")]
    inner.train([str(path) for path in sorted(sources)], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
    )
    templates = Path(trl.__file__).parent / "chat_templates"
    tokenizer.chat_template = (templates / "qwen3.jinja").read_text(encoding="utf-8")
    return tokenizer


@dataclass(frozen=True, slots=True)
class TokenCost:
    """CPU microseconds for a decision: its prompt of so many tokens, its eight replies of 300."""

    name: str
    tokens: int
    encode_us: float
    decode_us: tuple[float, float]

    def line(self) -> str:
        decode, own_decode = self.decode_us
        return (
            f"{self.name} prompt, {self.tokens} tokens: encoded in {self.encode_us:.0f} us; {CANDIDATES} replies "
            f"decoded in {own_decode:.0f} us, by batch_decode in {decode:.0f}: {decode / own_decode:.1f}x"
        )


def token_costs(repeats: int) -> list[TokenCost]:
    """Of each size."""
    tokenizer = tokenizer_like_qwens()
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    def template(prompts: Sequence[Any]) -> Any:
        return tokenizer.apply_chat_template(list(prompts), add_generation_prompt=True, return_dict=True)["input_ids"]

    costs = []
    for name, (system, message) in SIZES.items():
        prompts = [
            [
                {"role": "system", "content": text[:system].strip()},
                {"role": "user", "content": f"Turn {i}.\n{text[system + 40 * i :][:message].strip()}"},
            ]
            for i in range(PROMPTS)
        ]
        ids = template(prompts)
        reply = tokenizer(text[:4000], add_special_tokens=False)["input_ids"][:REPLY_TOKENS]
        replies = [reply] * (CANDIDATES * PROMPTS)
        decode = decoder(tokenizer)
        assert decode(replies) == tokenizer.batch_decode(replies, skip_special_tokens=True), "other texts"
        batch_decode = partial(tokenizer.batch_decode, replies, skip_special_tokens=True)
        costs.append(
            TokenCost(
                name,
                round(sum(map(len, ids)) / len(ids)),
                _least(partial(template, prompts), repeats),
                (_least(batch_decode, repeats), _least(partial(decode, replies), repeats)),
            )
        )
    return costs


def _least(work: Callable[[], object], repeats: int) -> float:
    """The least CPU microseconds for a decision."""
    least = float("inf")
    for _ in range(repeats):
        begin = time.process_time()
        work()
        least = min(least, time.process_time() - begin)
    return 1e6 * least / PROMPTS
