"""Retrievers of passages that are in memory: BM25 of our own, `bm25s` for larger corpora, and a sentence encoder.

| | for | needs |
|---|---|---|
| `PassageIndex` | up to some thousand passages, such as those of a row | nothing |
| `SparseIndex` | corpora on this machine; the same ranking as `PassageIndex` | `bm25s` |
| `DenseIndex` | either of them, by meaning instead of words | a sentence encoder |

Ties go to the earlier passage. Ranks of `DenseIndex` are as exact as 32-bit floating point on one machine.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from pettingllms_envs.caching import remembered
from pettingllms_envs.installing import needs_extra
from pettingllms_envs.retrieval.bm25 import BM25, MOST_CHARACTERS, terms_of
from pettingllms_envs.retrieval.passages import Passage


K1, B = 1.2, 0.75
"""Parameters of BM25, as in Lucene."""


class Encoder(Protocol):
    """Two methods of `sentence_transformers.SentenceTransformer`; both return arrays of shape (texts, dimensions)."""

    def encode_query(self, inputs: list[str], **options: Any) -> Any:
        """Embeddings of queries."""

    def encode_document(self, inputs: list[str], **options: Any) -> Any:
        """Embeddings of passages."""


class PassageIndex:
    """BM25 in plain Python; without a digest its identity is that of its text."""

    def __init__(self, passages: Sequence[Passage], digest: str = "") -> None:
        self._passages = tuple(passages)
        self._index = BM25((each.contents for each in self._passages), k1=K1, b=B)
        self.digest = digest or digest_of(self._passages)

    def search(self, query: str, k: int) -> tuple[Passage, ...]:
        """Passages that share a term with the query."""
        return tuple(self._passages[number] for number in self._index.top(query, k))


class SparseIndex:
    """BM25 by `bm25s` (Lù, 2024, arXiv:2407.03618), with the formula and the terms of `PassageIndex`."""

    def __init__(self, passages: Sequence[Passage], digest: str = "") -> None:
        with needs_extra("search", "bm25s", "a corpus"):
            from bm25s import BM25 as SparseScores
        self._passages = tuple(passages)
        self._scores = SparseScores(k1=K1, b=B, method="lucene", dtype="float64")
        terms = [terms_of(each.contents) for each in self._passages]
        self._terms = frozenset(term for each in terms for term in each)
        self._scores.index(terms, show_progress=False)
        self.digest = digest or digest_of(self._passages)

    def search(self, query: str, k: int) -> tuple[Passage, ...]:
        """Passages that share a term with the query."""
        terms = [term for term in dict.fromkeys(terms_of(query[:MOST_CHARACTERS])) if term in self._terms]
        if not terms:
            return ()
        scores = np.asarray(self._scores.get_scores(terms))
        found = np.flatnonzero(scores)  # a partition is slow where most scores are equal
        return tuple(self._passages[found[index]] for index in best(scores[found], k))


class DenseIndex:
    """Nearest passages by the cosine of embeddings.

    Args:
        encoder: What embeds passages and queries, such as `sentence_encoder("...")`.
        digest: Identity of corpus and encoder; empty for that of the corpus.
    """

    def __init__(self, passages: Sequence[Passage], encoder: Encoder, digest: str = "") -> None:
        self._passages = tuple(passages)
        self._encoder = encoder
        self._vectors = unit(encoder.encode_document([each.contents for each in passages], show_progress_bar=False))
        self.digest = digest or digest_of(self._passages)

    def search(self, query: str, k: int) -> tuple[Passage, ...]:
        """The k nearest passages, whatever the query."""
        (vector,) = unit(self._encoder.encode_query([query[:MOST_CHARACTERS]], show_progress_bar=False))
        return tuple(self._passages[number] for number in best(self._vectors @ vector, k))


class SentenceEncoder:
    """A sentence encoder that many threads share: tokenizers raise errors where two of them use one at a time.

    Args:
        model: A `sentence_transformers.SentenceTransformer`.
    """

    def __init__(self, model: Encoder) -> None:
        self._model, self._lock = model, threading.Lock()

    def encode_query(self, inputs: list[str], **options: Any) -> Any:
        with self._lock:
            return self._model.encode_query(inputs, **options)

    def encode_document(self, inputs: list[str], **options: Any) -> Any:
        with self._lock:
            return self._model.encode_document(inputs, **options)


@remembered(64)  # a model takes seconds to load: once in a process, for all indices and threads
def sentence_encoder(model: str) -> Encoder:
    """A sentence encoder of the Hub or in a folder, on the CPU, so that all processes of a machine can have it.

    Queries and passages get the prompts that are stored with the model, if any; for models that expect others, such as
    E5, save one with `SentenceTransformer(..., prompts={"query": "query: ", "document": "passage: "})`.

    Args:
        model: Its name, such as `"sentence-transformers/all-MiniLM-L6-v2"`, or its folder.
    """
    with needs_extra("search", "sentence_transformers", "an encoder"):
        from sentence_transformers import SentenceTransformer
    return SentenceEncoder(SentenceTransformer(model, device="cpu"))


def best(scores: np.ndarray[Any, Any], k: int) -> list[int]:
    """Indices of the k greatest scores, greatest first, equal ones in their order.

    Args:
        scores: Shape (passages,).
        k: At least 0; all of them if there are fewer.
    """
    if k <= 0:
        return []
    candidates = np.arange(len(scores))
    if k < len(scores):
        least = np.partition(scores, -k)[-k]
        candidates = np.flatnonzero(scores >= least)
    order = np.argsort(-scores[candidates], kind="stable")[:k]
    return [int(index) for index in candidates[order]]


def unit(vectors: Any) -> np.ndarray[Any, Any]:
    """Rows of length 1; zero rows stay as they are. Shape (N, D)."""
    rows = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1))


def digest_of(passages: Iterable[Passage]) -> str:
    """SHA-256 of a corpus, 64 hex digits."""
    found = hashlib.sha256()
    for each in passages:
        found.update(repr(tuple(each)).encode("utf-8", "surrogatepass"))
    return found.hexdigest()
