"""Retrieval from small corpora of passages that environments bring along: exact, and the same in every process."""

from pettingllms_envs.retrieval.bm25 import BM25, terms_of


__all__ = ["BM25", "terms_of"]
