"""BM25: ranks the passages of a small corpus by the words that they have in common with a query.

    >>> index = BM25(["Kenfe was born in Zulo.", "Zulo lies on the Mara.", "The Mara reaches the sea at Tirel."])
    >>> index.top("Where does the Mara end?", 2)
    [2, 1]

The score of a passage d for a query is the sum over the query's different terms t of

    idf(t) tf / (tf + k1 (1 - b + b |d| / avgdl)),    idf(t) = log(1 + (N - df + 0.5) / (df + 0.5))

with tf the occurrences of t in d, df the number of passages with t, N the number of passages, |d| the number of terms
in d, avgdl its mean. That is Lucene's variant (Kamphuis, de Vries, Boytsov and Lin, "Which BM25 do you mean?", ECIR
2020) of Robertson and Zaragoza, "The probabilistic relevance framework: BM25 and beyond" (2009). Terms are added in
the order of the query, so that sums are the same in every process; ties go to the earlier passage.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable


MOST_CHARACTERS = 2_000
"""Of a query; the rest is ignored, so that a query of a megabyte takes no longer."""

_TERM = re.compile(r"[^\W_]+")


class BM25:
    """An index of passages. It is never changed, and can be shared.

    Args:
        k1: How slowly further occurrences of a term stop to count, at least 0.
        b: How much longer passages are discounted, 0 to 1.
    """

    def __init__(self, passages: Iterable[str], *, k1: float = 1.2, b: float = 0.75) -> None:
        if k1 < 0 or not 0 <= b <= 1:
            raise ValueError(
                f"k1 is {k1!r} and b is {b!r}; expected k1 of at least 0, such as 1.2, and b from 0 to 1."
            )
        counts = [Counter(terms_of(passage)) for passage in passages]
        lengths = [count.total() for count in counts]
        mean = sum(lengths) / max(len(lengths), 1) or 1.0
        containing = Counter(term for count in counts for term in count)
        self._weights: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            discount = k1 * (1 - b + b * length / mean)
            for term, occurrences in count.items():
                found = containing[term]
                idf = math.log(1 + (len(counts) - found + 0.5) / (found + 0.5))
                self._weights[term].append((number, idf * occurrences / (occurrences + discount)))

    def scores(self, query: str) -> dict[int, float]:
        """The score of each passage that has a term of the query, by its number; all others have 0."""
        scores: dict[int, float] = defaultdict(float)
        for term in dict.fromkeys(terms_of(query[:MOST_CHARACTERS])):
            for number, weight in self._weights.get(term, ()):
                scores[number] += weight
        return dict(scores)

    def top(self, query: str, k: int) -> list[int]:
        """The numbers of the k best passages, best first; fewer if fewer have a term of the query."""
        best = heapq.nsmallest(k, self.scores(query).items(), key=lambda each: (-each[1], each[0]))
        return [number for number, _ in best]


def terms_of(text: str) -> list[str]:
    """The words of a text in lower case: runs of letters and digits."""
    return _TERM.findall(text.lower())
