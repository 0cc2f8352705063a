r"""A retriever on a server that speaks Search-R1's protocol, with retries.

    POST URL  {"queries": ["..."], "topk": 3, "return_scores": true}
    ->        {"result": [[{"document": {"id": "...", "contents": "\"Title\"\ntext"}, "score": 1.5}, ...]]}

Documents without scores, `{"result": [[{"id": ..., "contents": ...}]]}`, are read, too. A server that does not answer,
answers something else, or finds fewer than `topk` passages is asked again; after `patience` seconds `RetrieverFailed`
is raised. There is no search without a result: an outage is never an empty page, which would be paid as one.

A result is cached by address, corpus, query and k, so that all branches of an episode read the same.

Source: `search_r1/search/retrieval_server.py` of github.com/PeterGriffinJin/Search-R1 (Jin et al., arXiv:2503.09516).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import httpx2

from pettingllms_envs.agents.server import Notices, Server, ServerRefused, ServerUnreachable
from pettingllms_envs.caching import remembered
from pettingllms_envs.retrieval.corpora import passage_of
from pettingllms_envs.retrieval.passages import Passage, RetrieverFailed


MOST_BYTES = 2**22
"""Of an answer; a larger one counts as a failure."""

MOST_CACHED = 100_000
"""Results in a process; the oldest goes first."""

_notices = Notices()


@dataclass(frozen=True, slots=True)
class RemoteRetriever:
    """A retriever by its address. It holds no connection, and can be pickled.

    Args:
        url: The whole address, such as `"http://localhost:8000/retrieve"`.
        digest: Identity of the server's corpus, as far as you know it; part of an environment's settings.
        timeout: Seconds in which an answer must come.
        patience: Seconds of retries, after which a search fails.
    """

    url: str
    digest: str = ""
    timeout: float = 30.0
    patience: float = 120.0

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url is {self.url!r}; expected one such as http://localhost:8000/retrieve. Correct it.")
        for name in ("timeout", "patience"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected seconds, more than 0. Raise it.")

    def search(self, query: str, k: int) -> tuple[Passage, ...]:
        """The k passages that the server finds.

        Raises:
            RetrieverFailed: It does not say which, for as long as `patience`.
        """
        return _found(self, query, k)


@remembered(MOST_CACHED)
def _found(retriever: RemoteRetriever, query: str, k: int) -> tuple[Passage, ...]:
    server = Server(
        url=retriever.url,
        client=_client(os.getpid()),
        timeout=retriever.timeout,
        patience=retriever.patience,
        most_bytes=MOST_BYTES,
        advice="Start the retriever, or correct its url",
        notices=_notices,
    )
    body = {"queries": [query], "topk": k, "return_scores": True}
    try:
        read = partial(_passages, k=k)
        return server.ask("POST", "", body, read=read, expected=f"list of {k} passages").value
    except (ServerUnreachable, ServerRefused) as error:
        raise RetrieverFailed(f"the retriever has no result: {error}") from error


def _passages(text: str, k: int) -> tuple[Passage, ...]:
    """The passages in an answer. Raises one of the errors of a wrong structure if there are not k of them."""
    (found,) = json.loads(text)["result"]
    contents: list[Any] = [each.get("document", each)["contents"] for each in found[:k]]
    if len(contents) < k or not all(isinstance(each, str) for each in contents):
        raise ValueError(f"{len(contents)} texts")
    return tuple(map(passage_of, contents))


@cache  # connections are not shared with a forked process
def _client(process: int) -> httpx2.Client:
    return httpx2.Client(follow_redirects=True)
