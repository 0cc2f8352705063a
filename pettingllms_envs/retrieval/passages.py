"""What every retriever has in common: passages, how they are searched, and how a search fails."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from pettingllms_envs.failures import ServiceFailed


class Passage(NamedTuple):
    """A paragraph of text.

    Args:
        title: What it is about; may be empty.
    """

    title: str
    text: str

    @property
    def contents(self) -> str:
        """What is searched: title and text."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@runtime_checkable
class Retriever(Protocol):
    """Finds passages in a corpus. Safe to use from several threads."""

    @property
    def digest(self) -> str:
        """Identity of the corpus and of the ranking, not a path or an address; empty if it is unknown."""

    def search(self, query: str, k: int) -> tuple[Passage, ...]:
        """At most k passages, best first; the same ones every time.

        Raises:
            RetrieverFailed: It cannot say which ones.
        """


class RetrieverFailed(ServiceFailed):
    """A search has no result, not even an empty one: a server does not answer, or its answer makes no sense."""
