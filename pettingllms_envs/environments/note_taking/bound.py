"""How often an agent can be right about readings that it has to remember by notes of a few digits: an upper bound.

The readings X = (X_1, ..., X_n) are independent and uniform over V values. The one who answers sees the notes and the
question, and nothing else that depends on the readings; the question is uniform over the n readings, and drawn
independently of them and of the notes. Notes are texts of at most L digits, the empty one among them, so there are
M = 1 + 10 + ... + 10^L.

The bound holds for every way to write notes and to answer from them, whatever the agents' model; random choices
cannot help, since the best of them is as good as the mean. What an agent could remember beside its notes, such as the
conversation so far, would have to be counted, too: it holds for agents that are shown the current prompt only.
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
