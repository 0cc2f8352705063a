"""How often an agent can be right about readings that it has to remember by notes of a few digits: upper bounds.

The readings X = (X_1, ..., X_n) are independent and uniform over V values. The one who answers sees the notes and the
question, and nothing else that depends on the readings; the question is uniform over the n readings, and drawn
independently of them and of the notes. Notes are texts of at most L digits, the empty one among them, so there are
M = 1 + 10 + ... + 10^L.

Both bounds hold for every way to write notes and to answer from them, whatever the agents' model; random choices
cannot help, since the best of them is as good as the mean. What an agent could remember beside its notes, such as the
conversation so far, would have to be counted, too: they hold for agents that are shown the current prompt only.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache


def count_notes(digits: int) -> int:
    """The number of different notes of at most that many digits: the lengths count, so it is more than 10^digits."""
    return sum(10**length for length in range(digits + 1))


@cache
def counting_bound(readings: int, values: int, num_notes: int) -> Fraction:
    """The greatest share of right answers, by counting.

    For each of the M notes the answers to the n questions are one of the V^n sequences of readings. Exactly
    C(n, k) (V - 1)^k sequences differ from a given one in k places. So of all V^n sequences at most M C(n, k)
    (V - 1)^k are written down in notes whose answers are wrong in k places, and the share of right answers is at most
    what it would be if all these places were filled, for k = 0, 1, 2, ... until there are no sequences left. Perfect
    codes reach it (Hamming, "Error detecting and error correcting codes", 1950).

    Args:
        readings: n, at least 1.
        values: V, at least 2.
        num_notes: M, at least 1.
    """
    left, right = values**readings, 0
    for wrong in range(readings + 1):
        reached = min(left, num_notes * math.comb(readings, wrong) * (values - 1) ** wrong)
        right += reached * (readings - wrong)
        left -= reached
    return Fraction(right, readings * values**readings)


def shannon_bound(readings: int, values: int, num_notes: int) -> float:
    """The greatest share of right answers, by Shannon's converse; never less than `counting_bound`, and simpler.

    Let p_i be the probability that the answer to question i is right, p their mean, and h the binary entropy in bits.
    Fano's inequality gives H(X_i | notes) <= h(p_i) + (1 - p_i) log2(V - 1). The notes have at most log2 M bits, so

        n log2 V - log2 M <= H(X | notes) <= sum of H(X_i | notes) <= n (h(p) + (1 - p) log2(V - 1)),

    the last step since the right side is concave. Hence R(p) = log2 V - h(p) - (1 - p) log2(V - 1) <= log2(M) / n, and
    R rises from 0 at p = 1/V to log2 V at p = 1 (Shannon, "Coding theorems for a discrete source with a fidelity
    criterion", 1959).

    Args:
        readings: n, at least 1.
        values: V, at least 2.
        num_notes: M, at least 1.
    """
    if num_notes >= values**readings:
        return 1.0
    bits = math.log2(num_notes) / readings
    low, high = 1 / values, 1.0
    for _ in range(50):  # nearly as many as a float has bits
        middle = (low + high) / 2
        low, high = (middle, high) if _rate(middle, values) <= bits else (low, middle)
    return high


def _rate(p: float, values: int) -> float:
    """R(p), the bits that a reading needs so that it is answered rightly with probability p, in [1/V, 1)."""
    entropy = -p * math.log2(p) - (1 - p) * math.log2(1 - p)
    return math.log2(values) - entropy - (1 - p) * math.log2(values - 1)
