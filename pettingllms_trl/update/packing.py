"""Sequences laid in one row, each prompt once: a decision's K candidates begin alike, and the model reads that once.

    prompt   a b c          packed    a b | c x y | c z
    answers  x y !          position  0 1 | 2 3 4 | 2 3
             z !            predicts  - - | x y ! | z !

A candidate's branch begins with the prompt's last token, which predicts its first, so that every position predicts a
single token; its last token predicts nothing and is left out. Nothing is padded. What sees what is for the attention
to know (`packed_attention.py`): all other layers of a transformer take each token by itself.

Tokens of a decision: P - 1 + K * C, in place of K * (P + C).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray


Indices = NDArray[np.int64]
IGNORED = -100
"""Label of a position that predicts nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """Where in a packed row each sequence is: R sequences of at most L tokens, in G groups that begin alike.

    Args:
        rows: (R, L) of each sequence its tokens' places in the row, in their order; then any place.
        back: (T,) of each token its place among those of `rows`, or, with `prompts`, of `prompts` and then `branches`.
        prompts: (G, S) places of what the group has in common; then any. `None`: attention goes sequence by sequence,
            which costs less where prompts are short.
        branches: (R, B) places of what is a sequence's own; then any.
        starts: (R,) how many tokens of a sequence are not its own.
        seen: (R, 1, B, L) with `prompts`: which tokens of a sequence each of its own sees. Every layer asks for it.
    """

    rows: torch.Tensor
    back: torch.Tensor
    prompts: torch.Tensor | None
    branches: torch.Tensor
    starts: torch.Tensor
    visible: torch.Tensor | None = None

    def as_single_sequence(self) -> Layout:
        """The row as a single sequence, in which everything sees all before it: what a model makes of it that does
        not heed the layout."""
        places = torch.arange(len(self.back), device=self.back.device)
        return Layout(
            rows=places[None], back=places, prompts=None, branches=places[None], starts=self.starts.new_zeros(1)
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """Sequences in one row of T tokens, N of which predict a token that counts.

    Args:
        ids, positions, labels: (1, T) tokens, their positions in their sequences, what they predict.
        layout: What sees what.
        target_positions: (N,) places in the row that predict a token of a completion.
        targets: (N,) where that token was in the completions' (B, C), flattened.
        shape: Of the completions, (B, C).
    """

    ids: torch.Tensor
    positions: torch.Tensor
    labels: torch.Tensor
    layout: Layout
    target_positions: torch.Tensor
    targets: torch.Tensor
    shape: tuple[int, int]

    def of_completions(self, values: torch.Tensor) -> torch.Tensor:
        """Values of the row's positions, (1, T), as those of the tokens that they predict, (B, C); else 0."""
        flat = values.new_zeros(self.shape[0] * self.shape[1])
        return flat.index_copy(0, self.targets, values[0].index_select(0, self.target_positions)).view(self.shape)


def num_tokens(prompt: int, completions: Sequence[int]) -> int:
    """Of a packed group: its prompt once, and its completions, each of them at least as one token."""
    return prompt - 1 + sum(max(length, 1) for length in completions)


def pack(ids: torch.Tensor, mask: torch.Tensor, width: int, *, split: bool | None = None) -> Packed:
    """Sequences with padding to a row without.

    Args:
        ids: (B, P + C) prompts, padded on the left, and completions, padded on the right.
        mask: (B, P + C) 1 for tokens, 0 for padding. Every prompt has a token; a completion may have none.
        width: C.
        split: Attention to prompts apart from that of branches. `None`: where it costs less.
    """
    tokens, real = ids.cpu().numpy(), mask.cpu().numpy().astype(bool)
    pieces: list[tuple[Indices, Indices, Indices]] = []  # tokens, positions, labels
    shared: list[Indices] = []
    own: list[Indices] = []
    rows: list[Indices] = []
    target_positions: list[Indices] = []
    targets: list[Indices] = []
    end = 0
    for prompt, members in _groups(tokens[:, :-width], real[:, :-width]):
        common = np.arange(end, end + len(prompt) - 1)
        pieces.append((prompt[:-1], np.arange(len(common)), np.full(len(common), IGNORED)))
        shared.append(common)
        end += len(common)
        for row in members:
            columns = np.flatnonzero(real[row, -width:])
            completion = tokens[row, -width:][columns]
            branch = np.append(prompt[-1:], completion[:-1])
            place = np.arange(end, end + len(branch))
            pieces.append((branch, len(common) + place - end, completion if len(completion) else np.array([IGNORED])))
            own.append(place)
            rows.append(np.append(common, place))
            target_positions.append(place[: len(completion)])
            targets.append(row * width + columns)
            end += len(branch)

    def on_device(array: Indices) -> torch.Tensor:
        return torch.from_numpy(array).to(ids.device)

    ids_of_row, positions, labels = (on_device(np.concatenate(each))[None] for each in zip(*pieces, strict=True))
    split = _costs_less_split(rows, shared, own) if split is None else split
    starts = on_device(np.array([len(row) - len(branch) for row, branch in zip(rows, own, strict=True)]))
    longest, longest_branch = (torch.arange(max(map(len, each)), device=ids.device) for each in (rows, own))
    layout = Layout(
        rows=on_device(_filled(rows)),
        back=on_device(_back(end, shared, own) if split else _back(end, rows)),
        prompts=on_device(_filled(shared)) if split else None,
        branches=on_device(_filled(own)),
        starts=starts,
        visible=(longest <= (starts[:, None] + longest_branch)[:, None, :, None]) if split else None,
    )
    return Packed(
        ids=ids_of_row,
        positions=positions,
        labels=labels,
        layout=layout,
        target_positions=on_device(np.concatenate(target_positions)),
        targets=on_device(np.concatenate(targets)),
        shape=(len(tokens), width),
    )


def _groups(prompts: Indices, real: NDArray[np.bool_]) -> list[tuple[Indices, list[int]]]:
    """The distinct prompts, without padding, and the rows that have each."""
    groups: dict[bytes, tuple[Indices, list[int]]] = {}
    for row, (padded, seen) in enumerate(zip(prompts, real, strict=True)):
        prompt = padded[seen]
        assert len(prompt) > 0, "a prompt without tokens"
        groups.setdefault(prompt.tobytes(), (prompt, []))[1].append(row)
    return list(groups.values())


def _costs_less_split(rows: list[Indices], shared: list[Indices], own: list[Indices]) -> bool:
    """Whether fewer pairs of a query and a key are looked at, counting those that a causal kernel leaves out as left
    out, and those that a mask hides as looked at."""
    longest, common, branch = (max(map(len, each)) for each in (rows, shared, own))
    return common > 0 and len(shared) * common**2 / 2 + len(rows) * branch * longest < len(rows) * longest**2 / 2


def _filled(places: list[Indices]) -> Indices:
    """(number, longest) with the row's first place where there is none: what is computed there is not used."""
    filled = np.zeros((len(places), max(map(len, places))), dtype=np.int64)
    for line, own in zip(filled, places, strict=True):
        line[: len(own)] = own
    return filled


def _back(num_tokens: int, *parts: list[Indices]) -> Indices:
    """(num_tokens,) of each token its place in the flattened `_filled` of one part after the other."""
    back = np.zeros(num_tokens, dtype=np.int64)
    begin = 0
    for part in parts:
        longest = max(map(len, part))
        for line, own in enumerate(part):
            back[own] = begin + line * longest + np.arange(len(own))
        begin += len(part) * longest
    return back
