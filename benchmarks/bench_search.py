"""What `search` costs besides the model: a step with its query, a snapshot, and the indices of corpora.

    PYTHONPATH=. python benchmarks/bench_search.py [--rounds 2000]

Times are medians. Texts are random words, 100 to a paragraph; paragraphs of real sets are as long.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from figures import table

import pettingllms_envs
from pettingllms_envs.retrieval.local import PassageIndex, SparseIndex
from pettingllms_envs.retrieval.passages import Passage, Retriever


WORDS = [f"w{number}" for number in range(3000)]
PARAGRAPHS = (10, 20)
"""Of a question: of HotpotQA and 2WikiMultihopQA, and of MuSiQue."""
CORPUS = 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000, help="of each time (2000)")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}; expected at least 1")
    for title, rows in (("A question", question(options.rounds)), ("A corpus", corpus(options.rounds, CORPUS))):
        print(f"{title}\n\n{table(rows)}\n")
    return 0


def question(rounds: int) -> Iterator[tuple[str, ...]]:
    """Rows: the paragraphs of a question, and what it costs to index them, to search in a step, and to go back."""
    yield "paragraphs", "index", "step with its query, and the next prompt", "snapshot and restore"
    for number in PARAGRAPHS:
        rng = random.Random(number)
        passages = texts(rng, number, 100)
        env = pettingllms_envs.make("search", retriever=PassageIndex(passages))
        env.reset(seed=0)
        start = env.snapshot()
        queries = iter([query(rng) for _ in range(rounds)])

        def search(env: pettingllms_envs.aec.TextEnv = env, queries: Iterator[str] = queries) -> None:
            env.step(f"Search: {next(queries)}")
            env.last()

        def back(env: pettingllms_envs.aec.TextEnv = env) -> None:
            env.restore(env.snapshot())

        yield (
            str(number),
            micro(median(lambda passages=passages: PassageIndex(passages, "d"), max(1, rounds // 100))),  # type: ignore[misc]
            micro(median(search, rounds, before=lambda env=env, start=start: env.restore(start))),  # type: ignore[misc]
            micro(median(back, rounds)),
        )


def corpus(rounds: int, size: int) -> Iterator[tuple[str, ...]]:
    """Rows: each index, the seconds that it takes to make, and the milliseconds of a query."""
    yield f"{size:,} passages", "index, s", "query, ms"
    rng = random.Random(0)
    passages = texts(rng, size, 60)
    for make in (PassageIndex, SparseIndex):
        began = time.perf_counter()
        index: Retriever = make(passages, "d")
        seconds = time.perf_counter() - began
        queries = iter([query(rng) for _ in range(rounds)])
        taken = median(lambda index=index, queries=queries: index.search(next(queries), 3), rounds)  # type: ignore[misc]
        yield make.__name__, f"{seconds:.1f}", f"{1e3 * taken:.2f}"


def texts(rng: random.Random, number: int, length: int) -> list[Passage]:
    """Paragraphs of random words with titles of two words."""
    return [Passage(" ".join(rng.choices(WORDS, k=2)), " ".join(rng.choices(WORDS, k=length))) for _ in range(number)]


def query(rng: random.Random) -> str:
    """Six random words."""
    return " ".join(rng.choices(WORDS, k=6))


def median(call: Callable[[], object], rounds: int, *, before: Callable[[], object] = lambda: None) -> float:
    """Seconds that a call takes, without what is called before each."""
    times = []
    for _ in range(rounds):
        before()
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def micro(seconds: float) -> str:
    """In microseconds."""
    return f"{1e6 * seconds:.1f} us"


if __name__ == "__main__":
    sys.exit(main())
