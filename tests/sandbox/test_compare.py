import json
import time

import pytest

from pettingllms_envs.sandbox.compare import read_value, same_result, same_tokens, same_values


@pytest.mark.parametrize(
    ("printed", "expected", "tolerance", "same"),
    [
        (b"1 2\n3", b"1\n2 3\n\n", None, True),
        (b"1 2", b"1 2 3", None, False),
        (b"", b"", None, True),
        (b" \n", b"", None, True),
        (b"1", b"", None, False),
        (b"YES", b"yes", None, False),
        (b"1.0", b"1", None, False),
        (b"1.0", b"1", 1e-6, True),
        (b"0.3333333", b"0.333333333", 1e-6, True),
        (b"0.33333", b"0.333333333", 1e-6, False),
        (b"1000001.0", b"1000000.0", 1e-6, True),  # relative: 1e-6 of a million is 1
        (b"1000002.0", b"1000000.0", 1e-6, False),
        (b"1000000006", b"1000000007", 1e-6, False),  # whole numbers are not close, whatever is allowed
        (b"1000000006.0", b"1000000007", 1e-6, False),  # nor is what rounds to another one
        (b"1000000006.9", b"1000000007", 1e-6, True),
        (b"3.0000001", b"3", 1e-6, True),  # a real number that happens to be whole
        (b"3", b"2.9999999", 1e-6, True),
        (b"3.00001", b"3", 1e-6, False),
        (b"+05", b"5", 1e-6, True),
        (b"9007199254740993.0", b"9007199254740993", 1e-6, True),  # where floats are farther apart than 1
        (b"9007199254740992.0", b"9007199254740993", 1e-6, False),
        (b"1e+17", b"100000000000000000", 1e-6, True),
        (b"0.30001", b"0.3", 1e-5, True),  # at the bound itself, which floats would miss
        (b"0.300011", b"0.3", 1e-5, False),
        (b"-.5e1", b"-5", 1e-6, True),
        (b"nan", b"nan", 1e-6, True),  # the same word
        (b"nan", b"1", 1e-6, False),
        (b"1", b"nan", 1e9, False),
        (b"inf", b"1e400", 1e-6, False),
        (b"1e400", b"1e401", 1e-6, False),
        (b"1_0", b"10", 1e-6, False),  # Python's float() reads it
        (b"\xd9\xa1", b"1", 1e-6, False),  # an Arabic digit, which Python's float() reads as well
        (b"\xff\xfe", b"\xff\xfe", None, True),
        (b"1\x002", b"1 2", None, False),
        (b"1\xc2\xa02", b"1 2", None, False),  # a no-break space is no white space here
    ],
)
def test_tokens_are_the_same_words_or_close_numbers(printed, expected, tolerance, same):
    assert same_tokens(printed, expected, tolerance) is same


@pytest.mark.parametrize(
    ("printed", "expected", "close"),
    [
        (b"0.00001", b"0.00002", {"absolute", "either"}),
        (b"100.005", b"100.0", {"relative", "either"}),
        (b"0.50001", b"0.5", {"absolute", "relative", "either"}),
        (b"0.0", b"0.00005", {"absolute", "either"}),
        (b"100.1", b"100.0", set()),
    ],
)
def test_a_tolerance_is_absolute_or_relative_or_either(printed, expected, close):
    kinds = ("absolute", "relative", "either")
    assert {kind for kind in kinds if same_tokens(printed, expected, 1e-4, kind)} == close
    assert {kind for kind in kinds if same_result(printed, float(expected), 1e-4, kind)} == close


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [(b"yes\nNo", b"YES\nNO", True), (b"yes", b"NO", False), (b"1E-3", b"1e-3", True), (b"\xc4", b"\xe4", False)],
)
def test_letters_may_be_of_any_case_where_that_is_allowed(printed, expected, same):
    assert same_tokens(printed, expected, ignore_case=True) is same
    assert not same_tokens(printed, expected)


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        (1000000006, 1000000007, False),
        (1000000006.0, 1000000007, False),
        (3.0000001, 3, True),
        (3, 2.9999999, True),
        (0.20000000000000004, 0.2, True),
        (True, 1.0000001, False),
        (0.9999999, True, False),
    ],
)
def test_a_tolerance_is_not_for_two_whole_values(value, expected, same):
    assert same_values(value, expected, 1e-6) is same


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        (2, 2.0, True),
        (True, 1, True),
        (False, 0, True),
        (1, True, True),
        (2, True, False),
        ("1", 1, False),
        (1, "1", False),
        (None, None, True),
        (None, False, False),
        (0, None, False),
        ([1, [2, "a"]], (1, (2, "a")), True),
        ([1, 2], [1], False),
        ([], {}, False),
        ({"1": 2}, {1: 2}, True),
        ({"true": 1, "null": 2, "1.5": 3}, {True: 1, None: 2, 1.5: 3}, True),
        ({"True": 1}, {True: 1}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": [1]}, {"a": [1.0]}, True),
        (10**400, 10**400, True),
        (10**400, 10**400 + 1, False),
        (0.1 + 0.2, 0.3, False),
        (float("nan"), float("nan"), False),
    ],
)
def test_values_are_compared_by_kind_then_by_value(value, expected, same):
    assert same_values(value, expected) is same


def test_a_tolerance_reaches_into_lists_and_never_beyond_numbers():
    assert same_values([0.1 + 0.2, "x"], [0.3, "x"], 1e-9)
    assert not same_values([0.31], [0.3], 1e-9)
    assert not same_values([10**400], [1.0], 1e-9)
    assert not same_values(["0.3"], [0.3], 1e-9)


class Always(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


def test_an_object_that_equals_everything_equals_nothing():
    assert not same_values(Always(1), 2)
    assert not same_values(1, Always(2))
    assert not same_values([Always(1)], [1])
    assert not same_values(object(), object())


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"1 2",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b"[" * 1_000_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 5000,
        b"\xff",
        b'"\xed\xa0\x80"',
        b"[1,]",
        b"'a'",
        b"True",
        b"1" * 1_000_000,
    ],
    ids=lambda written: repr(written[:12]),
)
def test_what_is_no_plain_json_is_no_result_and_costs_next_to_nothing(written):
    began = time.process_time()
    assert not same_result(written, 1)
    with pytest.raises(ValueError):  # noqa: PT011  # of many kinds; that it is one is the claim
        read_value(written)
    assert time.process_time() - began < 5.0


def test_what_json_can_nest_can_be_compared():
    deep: list[object] = []
    for _ in range(900):
        deep = [deep]
    assert same_result(json.dumps(deep).encode(), deep)
    assert not same_result(json.dumps([deep]).encode(), deep)


def test_the_largest_integer_that_is_read_has_4300_digits():
    assert same_result(b"9" * 4300, 10**4300 - 1)
    assert not same_result(b"1" + b"0" * 4300, 10**4300)


def test_a_result_is_one_document_and_the_last_of_equal_keys_counts_as_in_python():
    assert same_result(b' {"a": [1, 2.5, null, true]}\n', {"a": [1, 2.5, None, True]})
    assert not same_result(b"[1][1]", [1])
    assert same_result(b'{"a": 1, "a": 2}', json.loads('{"a": 1, "a": 2}'))
