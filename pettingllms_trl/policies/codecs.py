"""`PolicyCodec`: how one policy's model writes messages as token ids, and reads token ids as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerFast

from pettingllms_trl.policies.escaping import escape_of
from pettingllms_trl.policies.profiles import PolicyProfile
from pettingllms_trl.policies.rendering import TurnBridge
from pettingllms_trl.records import Message


Ids = Sequence[int]
Prompt = Sequence[Message]
Tokenize = Callable[[PolicyProfile, Sequence[Prompt]], Sequence[Ids]]
"""Prompts to their ids, by a policy's chat template, as TRL applies it."""


class PolicyCodec:
    """Prompts to token ids and sampled ids to text: TRL's own, but that texts never become control tokens.

    Args:
        profile: The policy's tokenizer.
        tokenize: TRL's way from prompts to ids.
        chat_template: The user's, in the place of the tokenizer's; `None`: the tokenizer's.
        chat_template_kwargs: As TRL gives them to the template.
    """

    def __init__(
        self,
        profile: PolicyProfile,
        *,
        tokenize: Tokenize,
        chat_template: str | None,
        chat_template_kwargs: Mapping[str, Any],
    ) -> None:
        self._profile, self._tokenize = profile, tokenize
        self._chat_template, self._chat_template_kwargs = chat_template, dict(chat_template_kwargs)
        self._escape = escape_of(profile.tokenizer, chat_template)
        self.decode = decoder(profile.processing_class)
        """Ids of several completions to their texts, without special tokens."""

    @property
    def stop_token_ids(self) -> list[int]:
        """The ids that end a completion."""
        return list(self._profile.eos_token_ids)

    def encode(self, prompts: Sequence[Prompt]) -> Sequence[Ids]:
        """Token ids of each prompt; equal ones, as at the beginning of one instance's episodes, are encoded once."""
        keys = [tuple((message["role"], message["content"]) for message in prompt) for prompt in prompts]
        distinct = {key: self._escape(prompt) for key, prompt in zip(keys, prompts, strict=True)}
        ids = dict(zip(distinct, self._tokenize(self._profile, list(distinct.values())), strict=True))
        return [ids[key] for key in keys]

    def bridge(self, policy: str, *, longest: int | None) -> TurnBridge:
        """What continues a conversation from one turn's tokens to the next.

        Args:
            policy: Its name, for errors.
            longest: Tokens of a conversation, after which it begins again; `None`: no bound.

        Raises:
            ValueError: The chat template does not let conversations go on.
        """
        tokenizer = self._profile.tokenizer
        bridge = TurnBridge(
            render=self._render,
            encode=lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
            special={*self._profile.eos_token_ids, *tokenizer.all_special_ids, *tokenizer.added_tokens_decoder},
            longest=longest,
        )
        bridge.check(policy)
        return bridge

    def _render(self, messages: Prompt) -> str:
        """The text that the chat template makes of messages."""
        text: str = self._profile.processing_class.apply_chat_template(
            list(self._escape(messages)),
            tokenize=False,
            add_generation_prompt=True,
            chat_template=self._chat_template,
            **self._chat_template_kwargs,
        )
        return text


def decoder(processing_class: Any) -> Callable[[Sequence[Ids]], list[str]]:
    """`batch_decode(..., skip_special_tokens=True)` of a tokenizer.

    Of a fast tokenizer by one call of its backend: transformers looks at every single id in Python first.
    """
    is_fast = _is_plain(processing_class) and not processing_class.clean_up_tokenization_spaces

    def decode(completions: Sequence[Ids]) -> list[str]:
        if not is_fast or "batch_decode" in vars(processing_class):  # replaced since
            return list(processing_class.batch_decode(list(completions), skip_special_tokens=True))
        texts: list[str] = processing_class.backend_tokenizer.decode_batch(list(completions), skip_special_tokens=True)
        return texts

    return decode


def _is_plain(tokenizer: Any) -> bool:
    """Whether it decodes as transformers' fast tokenizers do: no processor, and no method is replaced."""
    own = ("__call__", "_encode_plus", "apply_chat_template", "batch_decode", "decode", "_decode")
    return isinstance(tokenizer, PreTrainedTokenizerFast) and all(
        getattr(type(tokenizer), name) is getattr(PreTrainedTokenizerFast, name) for name in own
    )
