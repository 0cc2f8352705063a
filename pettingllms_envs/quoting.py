r"""Quotes text of others for a prompt: what another role, a tool, a program, a retriever or a data set wrote.

    >>> print(quote("Go left.\nTurn 9 of 9."))
    > Go left.
    > Turn 9 of 9.

All of it passes `escape`, so that it cannot pass for a turn of the chat. The rest of this module says how it stands in
a prompt, so that it cannot pass for a part of that either:

* `quote`: a message or a passage, each line after `> `;
* `quote_block`: a program, an output or a file, between fences;
* `quote_inline`: a few words in a sentence of the prompt, such as an error or an answer;
* `quote_headings`: a text that stands in the prompt as it is, such as the statement of a problem.

Only what is shown is changed: what is run, graded or recorded stays as it was written. The control tokens are those of
common chat templates and no tokenizer's own, so that an episode does not depend on a model. A text without any of this
stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pettingllms_envs.replies.fences import FENCE


ZERO_WIDTH_SPACE = "\u200b"
REPLACEMENT = "\ufffd"

_IN_ANGLES = r"""
    s|bos|eos|pad|unk|mask|sep|cls|BOS|EOS|PAD|UNK|MASK|SEP|CLS|(?:BOS|EOS|PAD|UNK|EOP|MASK)_TOKEN|EOT|EOD|
    think|thinking|tools|tool_calls?|tool_responses?|tool_results?|tool_outputs?|function_calls?|functions?|
    function_results?|arg_key|arg_value|
    start_of_turn|end_of_turn|start_of_image|end_of_image|image_soft_token|start_function_call|end_function_call|
    start_function_response|end_function_response|start_function_declaration|end_function_declaration|
    sop|eop|sog|eog|end_of_utterance|fake_token_around_image|global-img|row_\d+_col_\d+|
    image|images|img|video|audio|image_placeholder|
    fim_prefix|fim_middle|fim_suffix|fim_pad|role|escape|(?:start|end)_of_(?:audio|video)|audio_soft_token|
    (?:unused|extra_id_|SPECIAL_|reserved_?|dummy_?|loc|seg)\d+|seed:[\w:]+|minimax:\w+|longcat_\w+|mask:\d+|racm3:break|
    2mass|boi|eoi|eoss|begin_of_image|IMG_CONTEXT|ref|box|quad|
    reponame|repo_name|filename|file_sep|gh_stars|issue_(?:start|comment|closed)|commit_(?:before|msg|after)|
    jupyter_(?:start|text|code|output|script)|empty_output
"""
"""Control tokens in angle brackets, as `<s>` and `</s>`: of Gemma, GLM, Seed, Qwen, Cohere, SmolLM, T5, InternVL."""
_IN_BRACKETS = r"""
    INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|SYSTEM_PROMPT|MODEL_SETTINGS|THINK|ARGS|CALL_ID|
    IMG|IMG_BREAK|IMG_END|AUDIO|BEGIN_AUDIO|PREFIX|MIDDLE|SUFFIX|control_\d+|
    gMASK|sMASK|BOS|EOS|EOT|UNUSED_TOKEN_\d+|start_header_id|end_header_id|extra_id_\d+|
    REF|TRANSCRIBE|STREAMING_(?:PAD|WORD)|(?:NEXT|REPEAT)_AUDIO_TEXT|multimodal|@BOS@|toxicity=\d
"""
"""The same in square brackets, as `[INST]` and `[/INST]`: Mistral, GLM, Kimi, InternLM, Gemma.

BERT's are in no chat template, and `dp[MASK]` is an expression that its author may copy."""
_IN_DOUBLE_ANGLES = "TITLE|ABSTRACT|INTRODUCTION|SUMMARY|COMMENT|ANSWER|QUESTION|DOMAIN|PREFIX|SUFFIX|MIDDLE"
"""The same as `>>TITLE<<`: Falcon."""
_CONTROL_TOKEN = re.compile(
    rf"""
    <(?=
        [|｜](?:/?[\w▁][^\s<>]{{0,62}}|"\|)>   # <|im_start|>, <|turn>, and DeepSeek's
      | \w{{1,40}}\|>                       # <turn|>
      | </?SYS>>                            # Llama 2
      | /?(?:{_IN_ANGLES})>
    )
    | \[(?=
        /?(?:{_IN_BRACKETS})\]
      | \|\w{{1,40}}\|\]                    # EXAONE
      | e~\[                                # MiniMax
    )
    | \](?=~!?b[\[\]])
    | ｜(?=DSML｜)                          # DeepSeek's calls
    | >(?=>(?:{_IN_DOUBLE_ANGLES})<<)
    """,
    re.VERBOSE,
)
"""The first character of each control token: a zero-width space after it breaks the token and makes no other one."""

_GRAVE_ACCENT = "\u1fef"
"""Unicode calls it the same as a backtick, which tokenizers that normalize text make of it."""
_LINE_BREAK = re.compile("\r(?!\n)|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_UNPRINTABLE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_HEADING = re.compile(r"\s*(?:(?:Turn|Move) \d+ of \d+\.|The \w+ wrote(?::| nothing\.)|You are the \w+\.)")
_FENCES = re.compile("`{3,}")
_FENCE_LINE = re.compile(r" {0,3}(`{3,})([^`]*)")


def escape(text: str) -> str:
    """The text with control tokens broken up by zero-width spaces, and U+FFFD for unprintable characters.

    Lone surrogates are unprintable, too. All line breaks but `"\\r\\n"` become `"\\n"`.
    """
    text = _UNPRINTABLE.sub(REPLACEMENT, _LINE_BREAK.sub("\n", text)).replace(_GRAVE_ACCENT, "`")
    return _CONTROL_TOKEN.sub(lambda first: first[0] + ZERO_WIDTH_SPACE, text)  # a template takes five times as long


def quote(text: str) -> str:
    """The text, escaped, each line after `> `."""
    return "\n".join(f"> {line}" for line in escape(text).expandtabs(4).splitlines())


def quote_block(text: str, language: str = "") -> str:
    """The text, escaped, between fences that are longer than any in it."""
    text = escape(text)
    longest = max(map(len, _FENCES.findall(text)), default=len(FENCE) - 1)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def quote_inline(text: str) -> str:
    """The text, escaped, in one line."""
    lines = escape(text).splitlines()
    return " ".join(filter(None, map(str.strip, lines))) if len(lines) > 1 else "".join(lines)


def quote_headings(text: str) -> str:
    """The text, escaped, with `> ` before lines that could pass for a heading of the prompt, or open a block for good.

    Headings are lines such as "Turn 9 of 9.", "The adviser wrote:" and "You are the planner.".
    """
    text = escape(text)
    lines = text.splitlines(keepends=True)
    is_open = FENCE in text and None in lines_outside(text)
    return "".join(
        f"> {line}" if _HEADING.match(line) or (is_open and _FENCE_LINE.fullmatch(line)) else line for line in lines
    )


def lines_outside(text: str) -> Iterator[str | None]:
    """The lines of a prompt that are neither after `> ` nor between fences; None at the end of a block without one."""
    fence = ""
    for line in text.splitlines():
        found = _FENCE_LINE.fullmatch(line)
        if fence:
            is_end = found and len(found[1]) >= len(fence) and not found[2].strip()
            fence = "" if is_end else fence
        elif found:
            fence = found[1]
        elif not line.startswith("> "):
            yield line
    if fence:
        yield None


def shorten(text: str, most: int) -> str:
    """The text or, if it is long, its beginning and end with a line in between that says how much is missing."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
