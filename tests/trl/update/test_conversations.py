"""A conversation is read once: the arrangement by hand, and log-probabilities and gradients of each row alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from packed_models import difference, gradients, made, one_by_one, together
from pettingllms_trl.update.packed_attention import attending
from pettingllms_trl.update.packing.conversations import Size, arrange, num_tokens, sizes_of
from pettingllms_trl.update.packing.cost import DEAR, TOKEN_PRICES, WAYS, Way, Work, cheapest, token_price_of, work
from pettingllms_trl.update.packing.pack import IGNORED, Packed, pack


Row = tuple[str, str]
"""A prompt and a completion, a token for each letter."""


def tokens(text: str) -> list[int]:
    """The letter a is token 2."""
    return [ord(letter) - ord("a") + 2 for letter in text]


def text(ids: Sequence[int]) -> str:
    return "".join("-" if each == IGNORED else chr(each - 2 + ord("a")) for each in ids)


def sizes(rows: Sequence[Row]) -> list[Size]:
    return sizes_of([tokens(p) for p, _ in rows], [tokens(c) for _, c in rows])


def padded(rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Ids and mask, and the width of completions."""
    prompt, width = (max(1, max(len(row[side]) for row in rows)) for side in (0, 1))
    ids, mask = torch.zeros(2, len(rows), prompt + width, dtype=torch.long)
    for row, (before, after) in enumerate(rows):
        place = slice(prompt - len(before), prompt + len(after))
        ids[row, place], mask[row, place] = torch.tensor(tokens(before + after)), 1
    return ids, mask, width


def together_by_conversation(rows: Sequence[Row]) -> list[tuple[str, list[int], list[int]]]:
    """The text of each trunk, and the rows inside and after it."""
    found = arrange(sizes(rows), by_conversation=True)
    return [(rows[trunk.row][0], trunk.inside, trunk.branches) for trunk in found]


# ---- The arrangement ------------------------------------------------------------------------------------------------

TWO_TURNS = [("abc", "de"), ("abc", "f"), ("abcdeg", "h"), ("abcdeg", "ij")]


def test_a_conversation_stands_once_with_the_labels_of_the_candidate_that_was_played_on() -> None:
    packed = pack(*padded(TWO_TURNS), way="conversations")
    assert text(packed.ids[0].tolist()) == "abcde" + "c" + "g" + "gi"
    assert text(packed.labels[0].tolist()) == "--de-" + "f" + "h" + "ij"
    assert packed.positions.tolist() == [[0, 1, 2, 3, 4, 2, 5, 5, 6]]
    layout = packed.layout
    assert layout.prompts is not None
    assert layout.prompts.tolist() == [[0, 1, 2, 3, 4]]
    assert layout.starts.tolist() == [2, 5, 5]
    own = [row[:n].tolist() for row, n in zip(layout.rows, (3, 6, 7), strict=True)]
    assert own == [[0, 1, 5], [0, 1, 2, 3, 4, 6], [0, 1, 2, 3, 4, 7, 8]]
    assert packed.of_completions(torch.arange(9.0)[None]).tolist() == [[2, 3], [5, 0], [6, 0], [7, 8]]


CASES: dict[str, tuple[list[Row], list[tuple[str, list[int], list[int]]]]] = {
    "two turns": (TWO_TURNS, [("abcdeg", [0], [1, 2, 3])]),
    "rows in any order": ([TWO_TURNS[i] for i in (3, 1, 2, 0)], [("abcdeg", [3], [0, 1, 2])]),
    "a conversation restarted in the middle": (
        # The second turn begins anew with its own words; the third goes on from it.
        [("abc", "d"), ("abc", "e"), ("axc", "d"), ("axcdf", "g")],
        [("abc", [], [0, 1]), ("axcdf", [2], [3])],
    ),
    "candidates with equal tokens": ([("abc", "d"), ("abc", "d"), ("abcde", "f")], [("abcde", [0], [1, 2])]),
    "a completion without tokens": ([("abc", ""), ("abc", "d"), ("abcdf", "")], [("abcdf", [1], [0, 2])]),
    "nothing is observed between two turns": ([("abc", "d"), ("abc", "e"), ("abcd", "f")], [("abcd", [0], [1, 2])]),
    "a prompt that begins another by chance": (
        # "ab" is another instance's. Its "cd" is in the trunk, too, but the place of "d" has the first row's label.
        [("abc", "d"), ("ab", "cd"), ("ab", "x"), ("abcde", "f")],
        [("abcde", [0], [1, 2, 3])],
    ),
    "continuations": (
        # Both candidates of the first turn are played on. The longer path is the trunk of what is on neither.
        [("abc", "d"), ("abc", "e"), ("abc", "f"), ("abcdg", "h"), ("abcegg", "i")],
        [("abcdg", [0], [3]), ("abcegg", [1], [2, 4])],
    ),
    "equally long paths": ([("abc", "d"), ("abc", "e"), ("abc", "f"), ("abcdg", "h"), ("abceg", "i")],
        [("abcdg", [0], [2, 3]), ("abceg", [1], [4])],
    ),
    "a left-out candidate whose later turns are trained on": (
        # Of the first turn only the candidate that was not played on.
        [("abc", "f"), ("abcdeg", "h")],
        [("abcdeg", [], [0, 1])],
    ),
    "an instance played twice": (
        # The first prompt is of both episodes, and so is the group.
        [("abc", "d"), ("abc", "e"), ("abcdg", "h"), ("abceg", "i"), ("abceg", "j")],
        [("abcdg", [0], [2]), ("abceg", [1], [3, 4])],
    ),
    "prompts of one token": ([("a", "b"), ("a", "c"), ("abd", "e")], [("abd", [0], [1, 2])]),
    "nothing in common": ([("ab", "c"), ("de", "f")], [("ab", [], [0]), ("de", [], [1])]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_row_hangs_on_the_longest_path_that_begins_with_its_prompt(case: str) -> None:
    rows, expected = CASES[case]
    assert together_by_conversation(rows) == expected


@pytest.mark.parametrize("case", CASES)
def test_the_packed_row_has_the_tokens_that_are_counted_and_every_label_of_every_row(case: str) -> None:
    rows, _ = CASES[case]
    check_packed(rows, pack(*padded(rows), way="conversations"))


def check_packed(rows: Sequence[Row], packed: Packed) -> None:
    of_rows = sizes(rows)
    trunks = arrange(of_rows, by_conversation=True)
    assert packed.ids.size(1) == num_tokens(of_rows, trunks)
    labels = packed.of_completions(packed.labels)
    seen = packed.of_completions(packed.positions)
    assert len(set(packed.target_positions.tolist())) == sum(len(reply) for _, reply in rows)
    for row, (prompt, reply) in enumerate(rows):
        assert labels[row, : len(reply)].tolist() == tokens(reply)
        assert seen[row, : len(reply)].tolist() == [*range(len(prompt) - 1, len(prompt) - 1 + len(reply))]


def forest(seed: int) -> list[Row]:
    """One to three conversations of up to four turns, of few letters, so that much is equal by chance."""
    draw, rows = random.Random(seed), list[Row]()

    def some(least: int, most: int) -> str:
        return "".join(draw.choice("abc") for _ in range(draw.randint(least, most)))

    for _ in range(draw.randint(1, 3)):
        prompt = some(1, 6)
        for _ in range(draw.randint(1, 4)):
            replies = [some(0, 4) for _ in range(draw.randint(1, 3))]
            rows += [(prompt, reply) for reply in replies]
            prompt += replies[0] + some(0, 3)
    return draw.sample(rows, len(rows))


def test_any_conversations_are_counted_as_they_are_packed_and_no_row_is_lost() -> None:
    for seed in range(200):
        rows = forest(seed)
        of_rows = sizes(rows)
        trunks = arrange(of_rows, by_conversation=True)
        assert sorted(row for trunk in trunks for row in trunk.inside + trunk.branches) == [*range(len(rows))]
        assert num_tokens(of_rows, trunks) <= num_tokens(of_rows, arrange(of_rows, by_conversation=False))
        check_packed(rows, pack(*padded(rows), way="conversations"))


# ---- Models ---------------------------------------------------------------------------------------------------------


def assert_as_each_alone(rows: Sequence[Row], model: Any) -> None:
    ids, mask, width = padded(rows)
    expected = one_by_one(model, ids, mask, width)
    of_rows = gradients(model, expected)
    with attending(model):
        found = together(model, pack(ids, mask, width, way="conversations"))
        of_row = gradients(model, found)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert difference(of_row, of_rows) < 2e-5  # 1.07e-5 on one processor, below 1e-5 on others


@pytest.mark.parametrize("case", CASES)
def test_log_probabilities_entropies_and_gradients_are_those_of_each_row_alone(case: str) -> None:
    assert_as_each_alone(CASES[case][0], made("qwen3"))


LONG = [
    *(("abcdefgh", reply) for reply in ("ijk", "lmnop", "")),
    *(("abcdefghijkqrst", reply) for reply in ("uv", "wxy")),
    *(("abcdefghijkqrstwxyzab", reply) for reply in ("cdefg", "hi", "jkl")),
]
"""Three turns, longer than the windows of the models."""


@pytest.mark.parametrize("checkpointing", ["", "checkpointed", "reentrant"])
@pytest.mark.parametrize(
    ("name", "lora"),
    [("qwen3", False), ("qwen3", True), ("qwen3-window", False), ("mistral-window", True), ("gemma3-windows", False)],
)
def test_models_with_windows_adapters_and_checkpoints_read_a_conversation_once(
    name: str, lora: bool, checkpointing: str
) -> None:
    assert_as_each_alone(LONG, made(name, lora=lora, checkpointing=checkpointing))


def test_random_conversations_have_the_gradients_of_each_row_alone() -> None:
    model = made("qwen3")
    for seed in range(8):
        assert_as_each_alone(forest(seed), model)


def test_the_model_reads_a_conversation_once_forward_and_backward() -> None:
    model = made("qwen3")
    read: list[int] = []
    layer = model.get_submodule("model.layers.1.mlp")
    layer.register_forward_hook(lambda *args: read.append(args[2].numel() // 32))
    layer.register_full_backward_hook(lambda *args: read.append(args[2][0].numel() // 32))
    with attending(model):
        gradients(model, together(model, pack(*padded(LONG), way="conversations")))
    # The last prompt of 21 less its last token; 5, 1 and 3 tokens of the first turn's branches, of which the first is
    # played on, 2 of the second's, and 5, 2 and 3.
    assert read == [20 + 5 + 1 + 2 + 5 + 2 + 3] * 2


# ---- A single turn is packed as ever --------------------------------------------------------------------------------


@pytest.mark.parametrize(("prompt", "reply", "way"), [(512, 64, "prompts"), (1024, 64, "prompts"), (64, 512, "rows")])
def test_a_decision_of_one_turn_is_laid_out_as_ever(prompt: int, reply: int, way: Way) -> None:
    before, each, number = torch.arange(prompt), torch.arange(8 * reply).view(8, reply) + prompt, 8
    ids = torch.cat([before.expand(number, -1), each], dim=1)
    packed = pack(ids, torch.ones_like(ids), reply, token_price=token_price_of("cpu", 512))
    own = prompt - 1 + torch.arange(number * reply).view(number, reply)
    common = torch.arange(prompt - 1)
    of_branches = torch.cat([before[-1:].expand(number, 1), each[:, :-1]], dim=1)
    assert torch.equal(packed.ids, torch.cat([common, of_branches.flatten()])[None])
    assert torch.equal(packed.positions, torch.cat([common, (prompt - 1 + torch.arange(reply)).repeat(number)])[None])
    assert torch.equal(packed.labels, torch.cat([torch.full((prompt - 1,), IGNORED), each.flatten()])[None])
    assert torch.equal(packed.targets, torch.arange(number * reply))
    assert torch.equal(packed.target_positions, own.flatten())
    layout = packed.layout
    assert torch.equal(layout.rows, torch.cat([common.expand(number, -1), own], dim=1))
    assert torch.equal(layout.branches, own)
    assert torch.equal(layout.starts, torch.full((number,), prompt - 1))
    if way == "prompts":
        assert layout.prompts is not None
        assert torch.equal(layout.prompts, common[None])
        seen = torch.arange(prompt - 1 + reply) <= torch.arange(prompt - 1, prompt - 1 + reply)[:, None]
        assert torch.equal(layout.visible, seen.expand(number, 1, -1, -1))
        assert torch.equal(layout.back, torch.arange(prompt - 1 + number * reply))
    else:
        assert layout.prompts is None
        last = (number - 1) * (prompt - 1 + reply)  # the prompt's tokens as the last row has them
        of_rows = torch.arange(number)[:, None] * (prompt - 1 + reply) + torch.arange(prompt - 1, prompt - 1 + reply)
        assert torch.equal(layout.back, torch.cat([last + common, of_rows.flatten()]))


# ---- The cheapest way -----------------------------------------------------------------------------------------------


def test_the_way_depends_on_lengths_and_the_price_of_a_token_alone() -> None:
    # Beside the two turns, eight long replies to a short prompt. Tokens: 1,614, or 1,610 by conversation. Pairs of 12
    # rows of at most 201 tokens, copied: 12 * 201 * (201 + 64) / 2; by prompt three of 5**2 / 2, and 12 * 200 * 201;
    # by conversation two, and 11.
    rows = [*TWO_TURNS, *(("yz", letter * 200) for letter in "abcdefgh")]
    of_rows = sizes(rows)
    found = {way: work(of_rows, arrange(of_rows, by_conversation=way == "conversations"), way) for way in WAYS}
    assert found == {
        "rows": Work(1614, 319_590),
        "prompts": Work(1614, 37.5 + 482_400),
        "conversations": Work(1610, 25 + 442_200),
    }
    # Four tokens are worth 122,635 pairs from 30,658.75 on.
    assert [cheapest(of_rows, price)[0] for price in (0, 30_658, 30_659)] == ["rows", "rows", "conversations"]
    assert cheapest(of_rows, DEAR)[0] == "conversations"
    assert cheapest(of_rows, 0, among=("prompts",))[0] == "prompts"
    assert cheapest(sizes([("a", "b"), ("c", "d")]), 1e9)[0] == "rows"  # nothing to share


def test_a_token_costs_more_in_a_wider_model() -> None:
    assert token_price_of("cpu", 512) == 512 * TOKEN_PRICES["cpu"]
    assert token_price_of("xpu", 512) == token_price_of("cuda", 512)
