"""What it costs to write a decision's prompt in token ids and to read its candidates, by TRL's way and by ours."""

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

from pettingllms_trl.policies.prompt_encoder import PromptEncoder, decoder


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
    write_us: tuple[float, float]
    read_us: tuple[float, float]

    def line(self) -> str:
        """For the report."""
        (write, own_write), (read, own_read) = self.write_us, self.read_us
        return (
            f"{self.name} prompt, {self.tokens} tokens: written in {own_write:.0f} us, by the chat template each time "
            f"in {write:.0f}; {CANDIDATES} replies read in {own_read:.0f} us, by batch_decode in {read:.0f}; together "
            f"{(write + read) / (own_write + own_read):.1f}x"
        )


def token_costs(repeats: int) -> list[TokenCost]:
    """Of each size, the two ways in turn."""
    tokenizer = tokenizer_like_qwens()
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    def template(prompts: Sequence[Any]) -> Any:
        return tokenizer.apply_chat_template(list(prompts), add_generation_prompt=True, return_dict=True)["input_ids"]

    def render(prompt: Any) -> Any:
        return tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)

    costs = []
    for name, (system, message) in SIZES.items():
        prompts = [
            [
                {"role": "system", "content": text[:system].strip()},
                {"role": "user", "content": f"Turn {i}.\n{text[system + 40 * i :][:message].strip()}"},
            ]
            for i in range(PROMPTS)
        ]
        write = PromptEncoder(template, render, tokenizer, tokenizer.chat_template)
        ids = template(prompts)
        assert [list(one) for one in write(prompts)] == ids, "other ids"
        reply = tokenizer(text[:4000], add_special_tokens=False)["input_ids"][:REPLY_TOKENS]
        replies = [reply] * (CANDIDATES * PROMPTS)
        read = decoder(tokenizer)
        assert read(replies) == tokenizer.batch_decode(replies, skip_special_tokens=True), "other texts"
        written = _in_turn(partial(template, prompts), partial(write, prompts), repeats)
        batch_decode = partial(tokenizer.batch_decode, replies, skip_special_tokens=True)
        costs.append(
            TokenCost(
                name,
                round(sum(map(len, ids)) / len(ids)),
                written,
                _in_turn(batch_decode, partial(read, replies), repeats),
            )
        )
    return costs


def _in_turn(theirs: Callable[[], object], ours: Callable[[], object], repeats: int) -> tuple[float, float]:
    """The least CPU microseconds of each for a decision."""
    least = [float("inf"), float("inf")]
    for _ in range(repeats):
        for i, work in enumerate((theirs, ours)):
            begin = time.process_time()
            work()
            least[i] = min(least[i], time.process_time() - begin)
    return 1e6 * least[0] / PROMPTS, 1e6 * least[1] / PROMPTS
