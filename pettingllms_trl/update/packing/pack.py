"""Packs sequences into one row with each prompt once, so that a decision's K candidates share their prompt, and the
turns of a conversation what came before them.

    prompt   a b c          packed    a b | c x y | c z
    answers  x y !          position  0 1 | 2 3 4 | 2 3
             z !            predicts  - - | x y ! | z !

A candidate's branch starts with the prompt's last token, which predicts its first one, so that every position predicts
a single token; its last token predicts nothing and is left out. There is no padding. Only attention needs to know
which token sees which (`../packed_attention.py`): all other layers of a transformer process each token separately.

A decision has P - 1 + K * C tokens instead of K * (P + C). A prompt that another one goes on from is not there a
second time: its candidates are branches of the longest such prompt, which has the labels of the one that was played on
(`conversations.py`), where that costs less (`cost.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pettingllms_trl.update.packing.conversations import sizes_of
from pettingllms_trl.update.packing.cost import WAYS, Way, cheapest, token_price_of


Indices = NDArray[np.int64]
IGNORED = -100
"""Label of a position that predicts nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segments:
    """A packed row as N segments, one after another: a prompt, or a sequence's own tokens after one. Each query sees
    the keys of its sequence up to its own.

    Args:
        keys: (S,) positions in the row of the segments' keys, those of one after those of another.
        queries_from, keys_from: (N + 1,) int32 where each begins in the row and in `keys`, and where the last ends.
        most_queries, most_keys: Of a segment.
    """

    keys: torch.Tensor
    queries_from: torch.Tensor
    keys_from: torch.Tensor
    most_queries: int
    most_keys: int

    @property
    def lengths(self) -> tuple[torch.Tensor, torch.Tensor, int, int]:
        """What kernels for sequences of different lengths are given, in their order."""
        return self.queries_from, self.keys_from, self.most_queries, self.most_keys


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """The positions of each sequence in a packed row: R sequences of at most L tokens, each of which begins with one
    of G prompts or with a part of it. Sequences that lie inside a prompt are not among them.

    Args:
        rows: (R, L) positions in the row of each sequence's tokens, in their order; padded with any position.
        back: (T,) index of each token in `rows`, flattened, or, with `prompts`, in `prompts` and then `branches`.
        prompts: (G, S) positions of each prompt's tokens but the last; padded. `None`: attention runs sequence by
            sequence, which costs less if prompts are short.
        branches: (R, B) positions of each sequence's own tokens; padded.
        starts: (R,) how many tokens of a sequence are a prompt's.
        segments: The same row for a kernel that needs neither padding nor masks.
    """

    rows: torch.Tensor
    back: torch.Tensor
    prompts: torch.Tensor | None
    branches: torch.Tensor
    starts: torch.Tensor
    segments: Segments

    @cached_property
    def visible(self) -> torch.Tensor:
        """(R, 1, B, L) which tokens of a sequence each of its own sees. Made once, for all layers that need it."""
        seen = torch.arange(self.rows.size(1), device=self.rows.device)
        return seen <= (self.starts[:, None] + seen[: self.branches.size(1)])[:, None, :, None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """Sequences packed into one row of T tokens, N of which predict a token of a completion.

    Args:
        ids, positions, labels: (1, T) tokens, their positions in their sequences, and the tokens that they predict.
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

    @property
    def inputs(self) -> dict[str, Any]:
        """The arguments of a model with packed attention, whose output has log-probabilities and no logits."""
        return {
            "input_ids": self.ids,
            "attention_mask": torch.ones_like(self.ids),
            "position_ids": self.positions,
            "shift_labels": self.labels,
            "shared_prefix": self.layout,
            "fused_lm_head": True,
        }

    def of_completions(self, values: torch.Tensor) -> torch.Tensor:
        """Map values of the row's positions, (1, T), to the tokens that they predict, (B, C), with 0 elsewhere."""
        flat = values.new_zeros(self.shape[0] * self.shape[1])
        return flat.index_copy(0, self.targets, values[0].index_select(0, self.target_positions)).view(self.shape)


def pack(
    ids: torch.Tensor,
    mask: torch.Tensor,
    width: int,
    *,
    device: torch.device | None = None,
    token_price: float = token_price_of("cpu", 1024),  # a constant
    way: Way | None = None,
) -> Packed:
    """Pack padded sequences into one row without padding.

    Args:
        ids: (B, P + C) prompts, padded left, and completions, padded right. The host waits for those that it lacks.
        mask: (B, P + C) 1 for tokens, 0 for padding. Every prompt has a token; a completion may have none.
        width: C.
        device: Of the packed row, which is moved there at once. `None`: that of `ids`.
        token_price: Of the model, by which the cheapest way is found.
        way: How they are read. `None`: in the cheapest way.
    """
    tokens, real = ids.cpu().numpy(), mask.cpu().numpy().astype(bool)
    prompts = [row[seen] for row, seen in zip(tokens[:, :-width], real[:, :-width], strict=True)]
    assert all(map(len, prompts)), "a prompt without tokens"
    columns = [np.flatnonzero(seen) for seen in real[:, -width:]]
    completions = [row[own] for row, own in zip(tokens[:, -width:], columns, strict=True)]
    way, trunks = cheapest(sizes_of(prompts, completions), token_price, among=WAYS if way is None else (way,))
    pieces: list[tuple[Indices, Indices, Indices]] = []  # tokens, positions, labels
    shared: list[Indices] = []
    own: list[Indices] = []
    rows: list[Indices] = []
    segments: list[tuple[int, Indices]] = []  # number of queries, keys
    places: dict[int, Indices] = {}  # of the labels of each sequence
    end = 0
    for trunk in trunks:
        common = prompts[trunk.row][:-1]
        shared.append(np.arange(end, end + len(common)))
        of_trunk = np.full(len(common), IGNORED)
        pieces.append((common, np.arange(len(common)), of_trunk))
        end += len(common)
        segments += [(len(common), shared[-1])] if len(common) else []
        for row in trunk.inside:
            first = len(prompts[row]) - 1
            of_trunk[first : first + len(completions[row])] = completions[row]
            places[row] = shared[-1][first : first + len(completions[row])]
        for row in trunk.branches:
            completion, before = completions[row], len(prompts[row]) - 1
            branch = np.append(prompts[row][-1:], completion[:-1])
            place = np.arange(end, end + len(branch))
            pieces.append((branch, before + place - end, completion if len(completion) else np.array([IGNORED])))
            own.append(place)
            rows.append(np.append(shared[-1][:before], place))
            segments.append((len(place), rows[-1]))
            places[row] = place[: len(completion)]
            end += len(branch)

    split = way != "rows"
    packed_ids, positions, labels, target_positions, targets, starts, keys, queries_from, keys_from, *more = _moved(
        ids.device if device is None else device,
        *(np.concatenate(part)[None] for part in zip(*pieces, strict=True)),
        np.concatenate([*places.values()]),
        np.concatenate([row * width + columns[row] for row in places]),
        np.array([len(row) - len(branch) for row, branch in zip(rows, own, strict=True)]),
        np.concatenate([keys for _, keys in segments]),
        np.cumsum([0, *(number for number, _ in segments)]),
        np.cumsum([0, *(len(keys) for _, keys in segments)]),
        _filled(rows),
        _back(end, shared, own) if split else _back(end, rows),
        _filled(own),
        *([_filled(shared)] if split else []),
    )
    of_rows, back, of_branches, *of_prompts = more
    layout = Layout(
        rows=of_rows,
        back=back,
        prompts=of_prompts[0] if split else None,
        branches=of_branches,
        starts=starts,
        segments=Segments(
            keys=keys,
            queries_from=queries_from.int(),
            keys_from=keys_from.int(),
            most_queries=max(number for number, _ in segments),
            most_keys=max(len(keys) for _, keys in segments),
        ),
    )
    return Packed(
        ids=packed_ids,
        positions=positions,
        labels=labels,
        layout=layout,
        target_positions=target_positions,
        targets=targets,
        shape=(len(tokens), width),
    )


def _moved(device: torch.device, *arrays: Indices) -> list[torch.Tensor]:
    """The arrays on a device: in one copy, for which the host does not wait."""
    flat = torch.from_numpy(np.concatenate([array.ravel() for array in arrays])).to(device, non_blocking=True)
    parts = torch.split(flat, [array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]


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
