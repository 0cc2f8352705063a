"""Several passes are logged as the one that they are parts of."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pettingllms_trl.update.pass_metrics import ForwardMetrics, merge_passes, of_completions, over_policies, pooled_std


def one(num_rows: int, num_tokens: int, scale: float = 1.0, **metrics: Any) -> ForwardMetrics:
    named = {name.replace("__", "/"): value for name, value in metrics.items()}
    return ForwardMetrics(policy="solver", metrics=named, num_rows=num_rows, num_tokens=num_tokens, loss_scale=scale)


def test_a_single_pass_is_logged_as_it_is() -> None:
    assert merge_passes([one(3, 7, 0.3, entropy=0.1, policy_loss=0.7)], ratios_of_rows=False) == {
        "entropy": 0.1,
        "policy_loss": 0.7,
    }


def test_means_over_tokens_weigh_by_tokens_and_those_over_rows_by_rows() -> None:
    # 1 row of 9 tokens and 3 rows of 3 tokens in all.
    passes = [one(1, 9, entropy=2.0, aux_loss=2.0, kl=1.0), one(3, 3, entropy=6.0, aux_loss=6.0, kl=5.0)]
    found = merge_passes(passes, ratios_of_rows=False)
    assert found == {"entropy": (9 * 2 + 3 * 6) / 12, "aux_loss": (2 + 3 * 6) / 4, "kl": (9 * 1 + 3 * 5) / 12}


@pytest.mark.parametrize(("of_rows", "expected"), [(False, 9 / 12), (True, 1 / 4)])
def test_a_ratio_is_one_of_each_token_or_one_of_each_row(of_rows: bool, expected: float) -> None:
    passes = [one(1, 9, clip_ratio__region_mean=1.0), one(3, 3, clip_ratio__region_mean=0.0)]
    assert merge_passes(passes, ratios_of_rows=of_rows) == {"clip_ratio/region_mean": expected}


def test_extremes_are_extremes_and_parts_of_the_loss_add_up() -> None:
    passes = [
        one(2, 4, 0.75, clip_ratio__low_min=0.2, clip_ratio__high_max=0.1, policy_loss=4.0),
        one(1, 4, 0.25, clip_ratio__low_min=0.1, clip_ratio__high_max=0.9, policy_loss=-8.0),
    ]
    assert merge_passes(passes, ratios_of_rows=False) == {
        "clip_ratio/low_min": 0.1,
        "clip_ratio/high_max": 0.9,
        "policy_loss": 0.75 * 4 - 0.25 * 8,
    }


def test_what_is_not_a_number_does_not_count() -> None:
    assert merge_passes([one(1, 2, kl=math.nan), one(1, 4, kl=3.0)], ratios_of_rows=False) == {"kl": 3.0}
    (value,) = merge_passes([one(1, 2, kl=math.nan), one(1, 4, kl=math.nan)], ratios_of_rows=False).values()
    assert math.isnan(value)
    assert merge_passes([one(2, 0, entropy=0.0), one(2, 0, entropy=0.0)], ratios_of_rows=False) == {"entropy": 0.0}


def test_completions_of_several_policies_are_those_of_one_with_all_rows() -> None:
    # One policy ends at once, the other never, and has more rows.
    own = [of_completions([4, 5], [True, True]), of_completions([16, 16, 12], [False] * 3)]
    each = {name: [metrics[name] for metrics in own] for name in own[0]}
    found = over_policies({**each, "reward": [1.0, 0.5]}, [2, 3])
    assert found.pop("reward") == (2 * 1.0 + 3 * 0.5) / 5
    assert found == pytest.approx(of_completions([4, 5, 16, 16, 12], [True, True, False, False, False]))
    assert (found["completions/mean_length"], found["completions/mean_terminated_length"]) == pytest.approx(
        (10.6, 4.5)
    )


def test_the_deviation_over_policies_is_that_of_all_rewards() -> None:
    # 0, 4 (mean 2, deviation sqrt(8)) and 1 alone: of 0, 4, 1 the mean is 5/3 and the variance 13/3.
    assert pooled_std([2.0, 1.0], [8**0.5, math.nan], [2, 1]) == pytest.approx((13 / 3) ** 0.5)
