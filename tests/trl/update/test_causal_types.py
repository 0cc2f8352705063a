"""No causal type of the installed transformers is packed, or continued from kept keys, with other numbers."""

from __future__ import annotations

import pytest

from causal_types import KINDS, Decided, decide
from pettingllms_trl.structure.miniature import EXACT


@pytest.mark.slow
@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_type_is_packed_and_its_keys_are_kept_only_where_numbers_stay(kind: str, bf16: bool) -> None:
    found: Decided = decide(kind, bf16=bf16)
    print(kind, found)  # the table: pytest -m slow -s
    if found.error:
        pytest.skip(found.error)
    assert found.packed or found.why
    if found.packed:
        assert found.off <= (max(3 * found.noise, 2**-8) if bf16 else EXACT)
    assert found.cache_off <= EXACT
