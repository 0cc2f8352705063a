"""Families of designs without a clock: `table`, `adder`, `mux` and `unit`, each in two golden forms."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pettingllms_envs.environments.verilog.designs import Design, bits, design


def table(rng: random.Random, level: int) -> Design:
    """A random function of 3 to 6 bits: a constant that is indexed, or the terms of its zeros."""
    num = level + 2
    size = 1 << num
    ones = [at for at in range(size) if rng.random() < 0.5] or [rng.randrange(size)]
    names = [f"x{at}" for at in range(num)]
    terms = [
        " & ".join(f"{'' if at >> bit & 1 else '~'}{name}" for bit, name in enumerate(names))
        for at in range(size)
        if at not in ones
    ]
    golden = (
        f"  wire {bits(size)}ones = {size}'d{sum(1 << at for at in ones)};\n"
        f"  assign y = ones[{{{', '.join(reversed(names))}}}];"
    )
    other = f"  assign y = ~({' | '.join(f'({term})' for term in terms) or '1 - 1'});"
    text = (
        "The inputs are the bits of a number, x0 the least significant. y is 1 for these numbers and 0 for all "
        f"others: {', '.join(map(str, ones))}."
    )
    return design(text, " ".join(names), "y", (golden, other), "table", num, _spectrum(ones, num))


def _spectrum(ones: Sequence[int], num: int) -> list[list[int]]:
    """The sizes of the Walsh coefficients of each order.

    They are the same for functions that are alike but for negated inputs, a negated output and the inputs' order.
    """
    values = [-1 if at in set(ones) else 1 for at in range(1 << num)]
    for bit in range(num):
        for at in range(1 << num):
            if not at >> bit & 1:
                one, other = values[at], values[at | 1 << bit]
                values[at], values[at | 1 << bit] = one + other, one - other
    return [sorted(abs(v) for at, v in enumerate(values) if at.bit_count() == order) for order in range(num + 1)]


def adder(rng: random.Random, level: int) -> Design:
    """Sum or difference of two numbers of 2 to 10 bits, some with a carry: in one line, or bit by bit."""
    width, carries, subtracts, inverts = 2 * level + rng.randrange(3), *(rng.random() < 0.5 for _ in range(3))
    value, inverted = f"a {'-' if subtracts else '+'} b", "~" * inverts
    if carries:
        value += f" {value[2]} c"
    golden = (
        f"  wire [{width}:0] s = {value.replace('a', '{1' + chr(39) + 'b0, a}')};\n"
        f"  assign y = {inverted}s[{width - 1}:0];\n  assign o = s[{width}];"
    )
    first = ("~c" if subtracts else "c") if carries else f"1'b{int(subtracts)}"
    lines = [
        f"  wire [{width}:0] k;",
        f"  wire {bits(width)}d = {'~' * subtracts}b;",
        f"  assign k[0] = {first};",
        f"  assign o = {'~' * subtracts}k[{width}];",
    ]
    for at in range(width):
        lines.append(f"  assign y[{at}] = {inverted}(a[{at}] ^ d[{at}] ^ k[{at}]);")
        lines.append(f"  assign k[{at + 1}] = (a[{at}] & d[{at}]) | (k[{at}] & (a[{at}] | d[{at}]));")
    over = "is below 0" if subtracts else f"needs more than {width} bits"
    text = (
        f"a and b are unsigned numbers of {width} bits. y is the {width} low bits of {value}"
        f"{', each of them inverted' * inverts}. o is 1 if {value} {over}, else 0."
    )
    inputs = f"a:{width} b:{width}{' c' * carries}"
    shape = width, carries, subtracts, inverts
    return design(text, inputs, f"y:{width} o", (golden, "\n".join(lines)), "adder", *shape)


def mux(rng: random.Random, level: int) -> Design:
    """One of 3 to 8 inputs, in an order of its own, some of them inverted: by cases, or by masks."""
    num, width = level + 2 + rng.randrange(3), rng.choice((1, 2, 4))
    select = (num - 1).bit_length()
    order, inverted = rng.sample(range(num), num), [rng.random() < 0.3 for _ in range(num)]
    sources = [f"{'~' * inverted[at]}d{order[at]}" for at in range(num)]
    cases = "".join(f"      {select}'d{at}: r = {source};\n" for at, source in enumerate(sources))
    golden = (
        f"  reg {bits(width)}r;\n  always @(*)\n    case (s)\n{cases}      default: r = 0;\n    endcase\n"
        "  assign y = r;"
    )
    terms = [f"({{{width}{{s == {select}'d{at}}}}} & {source})" for at, source in enumerate(sources)]
    other = f"  assign y = {' | '.join(terms)};"
    said = "; ".join(f"{at}: d{order[at]}{' inverted' * inverted[at]}" for at in range(num))
    text = f"y is, by the value of s, this input: {said}. For any other value of s all bits of y are 0."
    inputs = " ".join([f"s:{select}", *(f"d{at}:{width}" for at in range(num))])
    shape = num, width, sum(inverted)
    return design(text, inputs, f"y:{width}", (golden, other), "mux", *shape)


_OPERATIONS = (
    ("a + b", "a + b", "b - ~a - {one}"),
    ("a - b", "a - b", "a + ~b + {one}"),
    ("the bits that a and b share", "a & b", "~(~a | ~b)"),
    ("the bits that a or b has", "a | b", "(a ^ b) | (a & b)"),
    ("the bits in which a and b differ", "a ^ b", "(a | b) & ~(a & b)"),
    ("the smaller of a and b", "(a < b) ? a : b", "({{{width}{{a < b}}}} & a) | ({{{width}{{b <= a}}}} & b)"),
    ("the larger of a and b", "(a > b) ? a : b", "({{{width}{{a > b}}}} & a) | ({{{width}{{b >= a}}}} & b)"),
    ("a shifted left by one, with a 0 as the lowest bit", "a << 1", "a + a"),
    ("a shifted right by one, with a 0 as the highest bit", "a >> 1", "{{1'b0, a[{last}:1]}}"),
    ("a inverted", "~a", "{zero} - a - {one}"),
    ("b - a", "b - a", "b + ~a + {one}"),
    ("a + 1", "a + {one}", "a - ~{zero}"),
)
"""What a unit can do: in words, and in the two golden forms."""


def unit(rng: random.Random, level: int) -> Design:
    """An arithmetic unit with 2 to 8 operations on numbers of 3 to 7 bits, and whether the result is 0."""
    num, width = (2, 3, 4, 8)[level - 1], level + 2 + rng.randrange(2)
    select = (num - 1).bit_length()
    chosen = rng.sample(range(len(_OPERATIONS)), num)
    words = {"one": f"{width}'d1", "zero": f"{width}'d0", "width": width, "last": width - 1}
    operations = [tuple(each.format(**words) for each in _OPERATIONS[at]) for at in chosen]
    cases = "".join(f"      {select}'d{at}: r = {one};\n" for at, (_, one, _) in enumerate(operations))
    golden = (
        f"  reg {bits(width)}r;\n  always @(*)\n    case (op)\n{cases}      default: r = a;\n    endcase\n"
        "  assign y = r;\n  assign z = r == 0;"
    )
    lines = [f"  wire {bits(width)}r{at} = {other};" for at, (_, _, other) in enumerate(operations)]
    result = "a"
    for at in reversed(range(num)):
        result = f"(op == {select}'d{at} ? r{at} : {result})"
    other = "\n".join([*lines, f"  assign y = {result};", "  assign z = ~|y;"])
    said = "; ".join(f"{at}: {words}" for at, (words, _, _) in enumerate(operations))
    text = (
        f"a and b are unsigned numbers of {width} bits. y is, by the value of op, the {width} low bits of: {said}. "
        "For any other value of op y is a. z is 1 if all bits of y are 0, else 0."
    )
    inputs = f"op:{select} a:{width} b:{width}"
    return design(text, inputs, f"y:{width} z", (golden, other), "unit", sorted(chosen), width)
