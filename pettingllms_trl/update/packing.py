"""Packs sequences into one row with each prompt once, so that a decision's K candidates share their prompt.

    prompt   a b c          packed    a b | c x y | c z
    answers  x y !          position  0 1 | 2 3 4 | 2 3
             z !            predicts  - - | x y ! | z !

A candidate's branch starts with the prompt's last token, which predicts its first one, so that every position predicts
a single token; its last token predicts nothing and is left out. There is no padding. Only attention needs to know
which token sees which (`packed_attention.py`): all other layers of a transformer process each token separately.

A decision has P - 1 + K * C tokens instead of K * (P + C).
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
    """The positions of each sequence in a packed row: R sequences of at most L tokens, in G groups with one prompt.

    Args:
        rows: (R, L) positions in the row of each sequence's tokens, in their order; padded with any position.
        back: (T,) index of each token in `rows`, flattened, or, with `prompts`, in `prompts` and then `branches`.
        prompts: (G, S) positions of each group's common tokens; padded. `None`: attention runs sequence by sequence,
            which costs less if prompts are short.
        branches: (R, B) positions of each sequence's own tokens; padded.
        starts: (R,) how many tokens of a sequence are not its own.
        visible: (R, 1, B, L) with `prompts`: which tokens of a sequence each of its own sees. Used by every layer.
    """

    rows: torch.Tensor
    back: torch.Tensor
    prompts: torch.Tensor | None
    branches: torch.Tensor
    starts: torch.Tensor
    visible: torch.Tensor | None = None

    def as_single_sequence(self) -> Layout:
        """The layout of a single causal sequence: what a model computes that ignores the layout."""
        places = torch.arange(len(self.back), device=self.back.device)
        return Layout(
            rows=places[None], back=places, prompts=None, branches=places[None], starts=self.starts.new_zeros(1)
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """Sequences packed into one row of T tokens, N of which predict a token of a completion.

    Args:
        ids, positions, labels: (1, T) tokens, their positions in their sequences, and the tokens that they predict.
        layout: Which token sees which.
        target_positions: (N,) positions in the row that predict a token of a completion.
        targets: (N,) index of that token in the completions' (B, C), flattened.
        shape: Shape of the completions, (B, C).
    """

    ids: torch.Tensor
    positions: torch.Tensor
    labels: torch.Tensor
    layout: Layout
    target_positions: torch.Tensor
    targets: torch.Tensor
    shape: tuple[int, int]

    def of_completions(self, values: torch.Tensor) -> torch.Tensor:
        """Map values of the row's positions, (1, T), to the tokens that they predict, (B, C), with 0 elsewhere."""
        flat = values.new_zeros(self.shape[0] * self.shape[1])
        return flat.index_copy(0, self.targets, values[0].index_select(0, self.target_positions)).view(self.shape)


def num_tokens(prompt: int, completions: Sequence[int]) -> int:
    """Tokens of a packed group: its prompt once, and its completions, each counted as at least one token."""
    return prompt - 1 + sum(max(length, 1) for length in completions)


def pack(ids: torch.Tensor, mask: torch.Tensor, width: int, *, split: bool | None = None) -> Packed:
    """Pack padded sequences into one row without padding.

    Args:
        ids: (B, P + C) prompts, padded on the left, and completions, padded on the right.
        mask: (B, P + C) 1 for tokens, 0 for padding. Every prompt has a token; a completion may have none.
        width: C.
        split: Whether prompts and branches attend separately. `None`: if it costs less.
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
    """The distinct prompts, without padding, each with its rows. Merged by token ids: none of them has images."""
    groups: dict[bytes, tuple[Indices, list[int]]] = {}
    for row, (padded, seen) in enumerate(zip(prompts, real, strict=True)):
        prompt = padded[seen]
        assert len(prompt) > 0, "a prompt without tokens"
        groups.setdefault(prompt.tobytes(), (prompt, []))[1].append(row)
    return list(groups.values())


def _costs_less_split(rows: list[Indices], shared: list[Indices], own: list[Indices]) -> bool:
    """Whether split attention computes fewer pairs of query and key: a causal kernel skips half, a mask none."""
    longest, common, branch = max(map(len, rows)), max(map(len, shared)), max(map(len, own))
    return common > 0 and len(shared) * common**2 / 2 + len(rows) * branch * longest < len(rows) * longest**2 / 2


def _filled(places: list[Indices]) -> Indices:
    """The positions as an array (number, longest), padded with 0: what is computed there is not used."""
    filled = np.zeros((len(places), max(map(len, places))), dtype=np.int64)
    for line, own in zip(filled, places, strict=True):
        line[: len(own)] = own
    return filled


def _back(num_tokens: int, *parts: list[Indices]) -> Indices:
    """(num_tokens,) index of each token in the flattened `_filled` of one part after the other."""
    back = np.zeros(num_tokens, dtype=np.int64)
    begin = 0
    for part in parts:
        longest = max(map(len, part))
        for line, own in enumerate(part):
            back[own] = begin + line * longest + np.arange(len(own))
        begin += len(part) * longest
    return back
