"""Shortens the answer of a failing server to one line for an error message.

A proxy in front of a server that is down answers with an HTML page, of which an error message needs only the title.
"""

from __future__ import annotations

import html
import re


MOST_READ = 2**16
"""Characters of a page that are read."""
MOST_OF_PAGE = 200
"""Characters of a page that are shown."""

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
_PAGE = re.compile(r"<(!doctype\s+html|html|head|body)\b", re.I)
_TITLE = re.compile(r"<title\b[^<>]*>([^<]*)", re.I)
_NOT_TEXT = re.compile(r"<(script|style|head)\b.*?(</\1\s*>|\Z)|<!--.*?(-->|\Z)|<[^>]*(>|\Z)", re.I | re.S)


def one_line(answer: str, content_type: str | None = None, *, length: int = 300) -> str:
    """An answer's text in one line; for an HTML page its title or, without one, its text without tags.

    Of one that is not HTML there are at most `length` characters.
    """
    kind = (content_type or "").partition(";")[0].strip().lower()
    start = answer[:MOST_READ]
    if "html" not in kind and not _PAGE.match(_COMMENT.sub("", start).lstrip()):
        return " ".join(start.split())[:length]
    title = _TITLE.search(start)
    text = _plain(title[1]) if title else ""
    return f"a page of {kind or 'text/html'}: {(text or _plain(start))[:MOST_OF_PAGE]!r}"


def _plain(markup: str) -> str:
    return " ".join(html.unescape(_NOT_TEXT.sub(" ", markup)).split())
