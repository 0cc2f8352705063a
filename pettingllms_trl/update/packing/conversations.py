"""Finds which prompts go on from which, and arranges sequences so that each token of a conversation is read once.

    prompt 1             a b c        candidates  d e | f        the first is played on
    prompt 2             a b c d e g  candidates  h | i
    arranged by prompt   a b c, d e, f, a b c d e g, h, i
    by conversation      a b c d e g with the labels of "d e"; f after "a b c"; h and i after all of it

A *trunk* is a prompt that no other prompt of the pass goes on from: the longest path that was played. A candidate that
the trunk goes on from has its tokens and labels in it; every other one is a *branch* of a trunk that begins with its
prompt. Only token ids decide, so sequences share what is equal, whichever instance or episode they are of.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


Tokens = Sequence[int] | NDArray[np.int64]
NONE = range(-1, -1)
"""No prompt."""
AFTER = b"\xff"
"""With it a sequence's key sorts after those of all that begin with the sequence."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a sequence, and which prompts begin with it. Prompts are numbered in the order of their tokens, in
    which those that begin alike are neighbours.

    Args:
        group: Identifies the sequences with the same prompt.
        later: Numbers of the prompts that begin with this one, its own first. Empty if no prompt goes on from another.
        onward: Numbers of the prompts that begin with this one and the completion.
    """

    group: Hashable
    prompt: int
    completion: int
    later: range = NONE  # frozen
    onward: range = NONE

    @property
    def branch(self) -> int:
        """Tokens of a branch: the prompt's last one, and the completion's but for its last one."""
        return max(self.completion, 1)

    @property
    def labels(self) -> range:
        """Places, from the prompt's beginning, that predict a token of the completion."""
        return range(self.prompt - 1, self.prompt - 1 + self.completion)


@dataclass(frozen=True, slots=True)
class Trunk:
    """A prompt that is read once, and the sequences that need it.

    Args:
        inside: Sequences whose completions are tokens of the trunk.
        branches: Sequences whose prompts it begins with, and whose completions are read after those.
    """

    row: int
    inside: list[int] = field(default_factory=list)
    branches: list[int] = field(default_factory=list)


def sizes_of(prompts: Sequence[Tokens], completions: Sequence[Tokens]) -> list[Size]:
    """The size of each sequence, by the token ids of its prompt and of its completion."""
    own = {id(prompt): prompt for prompt in prompts}  # a decision's candidates have the same
    keys = {number: _key(prompt) for number, prompt in own.items()}
    ordered = sorted({*keys.values()})
    # What begins with a prompt comes right after it.
    has_conversations = any(map(bytes.startswith, ordered[1:], ordered))

    def beginning_with(key: bytes) -> range:
        return range(bisect_left(ordered, key), bisect_left(ordered, key + AFTER))

    sizes = []
    for prompt, completion in zip(prompts, completions, strict=True):
        key = keys[id(prompt)]
        later = beginning_with(key) if has_conversations else NONE
        onward = beginning_with(key + _key(completion)) if len(later) > 1 and len(completion) else NONE
        sizes.append(Size(key, len(prompt), len(completion), later, onward))
    return sizes


def _key(tokens: Tokens) -> bytes:
    """Bytes that begin with those of whatever the tokens begin with, and sort as the tokens do."""
    return np.asarray(tokens, dtype=">u4").tobytes()


def arrange(sizes: Sequence[Size], *, by_conversation: bool) -> list[Trunk]:
    """The trunks of sequences, in the order of their rows. Each sequence belongs to one.

    `by_conversation`: whether a prompt stands for those that it goes on from. Else every prompt is a trunk.
    """
    by_prompt: dict[Hashable, Trunk] = {}
    for row, size in enumerate(sizes):
        by_prompt.setdefault(size.group, Trunk(row)).branches.append(row)
    if not by_conversation:
        return [*by_prompt.values()]
    trunks: dict[int, Trunk] = {}  # by the number of the prompt
    trunk_of: dict[Hashable, Trunk] = {}

    def beginning_so(numbers: range) -> list[Trunk]:
        """The longest first."""
        found = [trunks[number] for number in numbers if number in trunks]
        return sorted(found, key=lambda trunk: (-sizes[trunk.row].prompt, trunk.row))

    for row in sorted((trunk.row for trunk in by_prompt.values()), key=lambda row: -sizes[row].prompt):
        size = sizes[row]
        longer = beginning_so(size.later)
        trunk_of[size.group] = longer[0] if longer else Trunk(row)
        if size.later and not longer:
            trunks[size.later.start] = trunk_of[size.group]
    taken: dict[int, list[range]] = {}  # places of trunks that have labels
    for row, size in enumerate(sizes):
        for trunk in beginning_so(size.onward):
            labelled = taken.setdefault(trunk.row, [])
            if all(size.labels.stop <= each.start or each.stop <= size.labels.start for each in labelled):
                labelled.append(size.labels)
                trunk.inside.append(row)
                break
        else:
            trunk_of[size.group].branches.append(row)
    return sorted({trunk.row: trunk for trunk in trunk_of.values()}.values(), key=lambda trunk: trunk.row)


def num_tokens(sizes: Sequence[Size], trunks: Sequence[Trunk]) -> int:
    """Tokens that are read: each prompt that is a trunk but for its last token, and the branches."""
    return sum(sizes[trunk.row].prompt - 1 + sum(sizes[row].branch for row in trunk.branches) for trunk in trunks)
