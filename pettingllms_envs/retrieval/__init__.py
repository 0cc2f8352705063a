"""Retrieval: passages, indices of corpora in memory, and retrievers on servers.

`bm25` ranks texts, `local` has indices of `passages`, `corpora` reads them from files, `remote` asks servers.
"""
