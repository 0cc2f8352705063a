"""Reads what servers answer: how a reply ended, what failed or was refused in a 200, and which counts can be true.

The one reading for `bench`, programs, partners behind an API and vLLM's servers. Sources of the words: the API
references of OpenAI, Anthropic, Gemini, Mistral, Cohere, DeepSeek, Bedrock, OpenRouter, Zhipu, vLLM, SGLang and TGI.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from pettingllms_envs.agents.base import Reply
from pettingllms_envs.agents.chat_form import text_with_calls


_BETWEEN_WORDS = re.compile("[ -]+")

Ending = Literal["finished", "cut", "failed", "refused"]

_WORDS: Mapping[Ending, str] = {
    "finished": "stop stop_sequence stop_token stop_string end_turn end_of_turn eos eos_token matched_stop complete "
    "completed finished done normal tool_calls tool_call tool_use function_call malformed_function_call",
    "cut": "length max_tokens max_length max_output_tokens max_new_tokens model_length token_limit truncated "
    "context_length model_context_window_exceeded error_limit repetition",
    "failed": "error abort aborted cancel cancelled canceled user_cancel fail failed failure timeout network_error "
    "server_error internal_error overloaded unavailable preempted insufficient_system_resource",
    "refused": "content_filter content_filtered safety refusal refused recitation blocklist blocked spii sensitive "
    "prohibited_content error_toxic guardrail_intervened moderation",
}
ENDINGS: Mapping[str, Ending] = {word: kind for kind, words in _WORDS.items() for word in words.split()}
"""What the words of servers for the end of a reply mean, in lower case."""

_INSIDE = (
    (re.compile(r"insufficient[ _](quota|balance|credits?|funds)|credit balance is too low", re.I), 402),
    (re.compile(r"context[ _-]?(length|size|window)|prompt is too long|string_above_max_length", re.I), 400),
    (re.compile(r"content[ _](filter|policy)|moderation|was flagged", re.I), 400),
    (re.compile(r"invalid_api_key|authentication_error|unauthori[sz]ed", re.I), 401),
    (re.compile(r"model_not_found", re.I), 404),
)
"""What is the same at every try, in an error's words, and the status that says so."""

PASSING = (408, 409, 425, 429, 498)
"""Statuses below 500 after which a request is tried again: a timeout, a conflict, too many requests, no capacity."""
NEVER = (501, 505)


class AnswerFailed(Exception):
    """An answer that says that it failed, which is asked for again."""


class ErrorInside(Exception):
    """An answer with status 200 whose content is an error; `status` is what it should have had."""

    def __init__(self, status: int) -> None:
        super().__init__(f"an error inside an answer of status 200, as {status}")
        self.status = status


def ending(word: str | None) -> Ending | None:
    """What a word for the end of a reply means; None if it is not known."""
    return None if word is None else ENDINGS.get(_BETWEEN_WORDS.sub("_", word.strip().lower()))


def finish_of(word: Any) -> str | None:
    """Why a reply ended, as records have it: `"stop"`, `"length"`, or the server's word for a refusal or unknown."""
    word = _word_of(word)
    return None if word is None else {"finished": "stop", "cut": "length"}.get(ending(word) or "", word)


def _word_of(given: Any) -> str | None:
    """The word for the end of a reply, which is the `type` of an object in SGLang."""
    word = given.get("type") if isinstance(given, Mapping) else given
    return word if isinstance(word, str) and word.strip() else None


def status_of(status: int, words: str) -> int:
    """The status that an error's words say it is, where they say that it would be the same at every try."""
    return next((meant for pattern, meant in _INSIDE if pattern.search(words)), status)


def is_passing(status: int) -> bool:
    """Whether another try may help."""
    return status in PASSING or (status >= 500 and status not in NEVER)


def read_checked(text: str) -> Any:
    """The JSON of an answer of the status 200, which is no error, and whose replies have not failed.

    Raises:
        ErrorInside, AnswerFailed: It is one, or one has.
        ValueError, KeyError, TypeError, AttributeError: It is no completion.
    """
    answer = json.loads(text)
    choices = answer.get("choices") or ()
    found = answer.get("error") or (answer if answer.get("object") == "error" else None)
    for choice in choices:
        found = found or choice.get("error")
    if found:
        code = found.get("code") if isinstance(found, Mapping) else None
        code = int(str(code)) if str(code).isdecimal() else 500
        raise ErrorInside(status_of(code if 400 <= code < 600 else 500, json.dumps(found)))
    for choice in choices:
        if ending(word := _word_of(choice.get("finish_reason"))) == "failed":
            raise AnswerFailed(f"an answer that says that it failed: finish_reason {word!r}")
    if not choices:
        raise ValueError
    return answer


NOT_GIVEN, TOO_MANY = "not given", "more tokens than the limit"


class Usage(NamedTuple):
    """Numbers of tokens, None if unknown, and what is wrong with what the server said of them."""

    prompt: int | None = None
    completion: int | None = None
    note: str | None = None


def read_usage(given: Any, *, wrote: bool, limit: int | None = None) -> Usage:
    """The tokens that a server's `usage` counts, as far as they can be true of a reply of at most `limit` tokens.

    Tokens of reasoning that it counts beside the completion's are added to them.
    """
    given = given if isinstance(given, Mapping) else {}
    prompt = _first(given, "prompt_tokens", "input_tokens")
    written = _first(given, "completion_tokens", "output_tokens")
    total, details = _first(given, "total_tokens"), given.get("completion_tokens_details")
    reasoning = _first(details if isinstance(details, Mapping) else {}, "reasoning_tokens") or 0
    if prompt is None and written is None:
        return Usage(note=NOT_GIVEN)
    if (wrote and written == 0) or prompt == 0:
        return Usage(note="0 tokens for a text")
    if limit is not None and written is not None and written > limit:
        return Usage(note=TOO_MANY)
    if total is not None and total < (prompt or 0) + (written or 0):
        return Usage(note="a total below its parts")
    if written is not None and reasoning > written:
        written += reasoning
    if total is not None and prompt is not None:
        written = max(written or 0, total - prompt)
    if prompt is None or written is None:
        return Usage(prompt, written, NOT_GIVEN)
    return Usage(prompt, written, TOO_MANY if limit is not None and written > limit else None)


def read_chat(text: str, *, with_calls: bool, limit: int | None = None) -> Reply:
    """The reply of a chat completion, if there are tools with its calls in the text; fails as `read_checked` does."""
    answer = read_checked(text)
    choice = answer["choices"][0]
    message = choice["message"]
    content = message.get("content")  # some leave it out where all tokens went into thinking
    if isinstance(content, list):
        content = "".join(map(_said_in, content))
    if not isinstance(content, str | None):
        raise TypeError
    said, calls = content or _text(message.get("refusal")) or "", message.get("tool_calls")
    said = text_with_calls(said, calls or ()) if with_calls else said
    reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
    num_calls = (len(calls) if isinstance(calls, list) else 0) + isinstance(message.get("function_call"), dict)
    usage = read_usage(answer.get("usage"), wrote=bool(said or reasoning or num_calls), limit=limit)
    return Reply(
        text=said,
        reasoning=reasoning,
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        usage_note=usage.note,
        finish=finish_of(choice.get("finish_reason")),
        model=_text(answer.get("model")),
        num_tool_calls=0 if with_calls else num_calls,
    )


def is_refused(reply: Reply) -> bool:
    """Whether something has refused the reply, and left none."""
    return not reply.text.strip() and not reply.num_tool_calls and ending(reply.finish) == "refused"


def _said_in(part: Mapping[str, Any]) -> str:
    """The text of a part of a message, empty for thoughts; `TypeError` for what is no text, which would be lost."""
    if part["type"] in ("thinking", "redacted_thinking", "reasoning"):
        return ""
    said = part.get("text", part.get("refusal"))
    if not isinstance(said, str):
        raise TypeError
    return said


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _first(given: Mapping[str, Any], *names: str) -> int | None:
    """A number of tokens under the first of the names that has a whole number; else None."""
    for value in map(given.get, names):
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and 0 <= value < 2**53
            and value == int(value)
        ):
            return int(value)
    return None
