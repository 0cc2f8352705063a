"""Families of designs with a clock: `machine`, `counter` and `shifter`, each in two golden forms."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pettingllms_envs.environments.verilog.designs import Design, bits, design


RESET = "All registers take their values at the rising edge of clk. If rst is 1 at the edge,"


def machine(rng: random.Random, level: int) -> Design:
    """A random state machine of 3 to 6 states, no two alike: a number by cases, or a bit for each state."""
    num = level + 2
    shape = None
    while shape is None:
        following = [(rng.randrange(num), rng.randrange(num)) for _ in range(num)]
        outputs = [rng.randrange(2) for _ in range(num)]
        shape = _numbered(following, outputs)
    width, ones = (num - 1).bit_length(), [at for at in range(num) if outputs[at]]
    cases = "".join(
        f"      {width}'d{at}: s <= x ? {width}'d{one} : {width}'d{zero};\n"
        for at, (zero, one) in enumerate(following)
    )
    golden = (
        f"  reg {bits(width)}s;\n  always @(posedge clk)\n    if (rst) s <= 0;\n    else case (s)\n{cases}"
        f"      default: s <= 0;\n    endcase\n  assign y = {' | '.join(f'(s == {at})' for at in ones)};"
    )
    lines = [f"  reg {bits(num)}h;", "  always @(posedge clk) begin"]
    for at in range(num):
        into = " | ".join(
            f"(h[{state}] & {'x' if value else '~x'})"
            for state in range(num)
            for value in (0, 1)
            if following[state][value] == at
        )
        lines.append(f"    h[{at}] <= rst ? 1'b{int(at == 0)} : ({into or 0});")
    lines += ["  end", f"  assign y = {' | '.join(f'h[{at}]' for at in ones)};"]
    said = " ".join(f"From {at} to {zero} if x is 0, to {one} if x is 1." for at, (zero, one) in enumerate(following))
    text = (
        f"A machine with the states 0 to {num - 1}. {RESET} the state is 0; else it goes on. {said} y is 1 in the "
        f"states {', '.join(map(str, ones))}, and 0 in the others."
    )
    return design(text, "clk rst x", "y", (golden, "\n".join(lines)), "machine", shape)


def _numbered(following: Sequence[tuple[int, int]], outputs: Sequence[int]) -> tuple[object, ...] | None:
    """The machine with its states in the order in which they are reached, the same for all with other names.

    None if a state is not reached, or does what another one does.
    """
    order = [0]
    for state in order:
        order += dict.fromkeys(each for each in following[state] if each not in order)
    classes = list(outputs)
    for _ in outputs:
        signs = [(classes[at], classes[zero], classes[one]) for at, (zero, one) in enumerate(following)]
        classes = [signs.index(sign) for sign in signs]
    if len(order) < len(outputs) or len(set(classes)) < len(outputs):
        return None
    place = {state: at for at, state in enumerate(order)}
    return tuple((place[following[state][0]], place[following[state][1]], outputs[state]) for state in order)


def counter(rng: random.Random, level: int) -> Design:
    """A counter of an odd modulus, up or down: its value, or how far it is from the last one."""
    width = level + 2
    modulus = rng.randrange(2 ** (width - 1) + 1, 2**width, 2)
    up, enabled = rng.random() < 0.5, rng.random() < 0.5
    first, last = (0, modulus - 1) if up else (modulus - 1, 0)
    begin = rng.choice((first, rng.randrange(modulus)))
    following = f"(n == {width}'d{last}) ? {width}'d{first} : n {'+' if up else '-'} {width}'d1"
    golden = (
        f"  reg {bits(width)}n;\n  always @(posedge clk)\n    if (rst) n <= {width}'d{begin};\n"
        f"    else {'if (e) ' * enabled}n <= {following};\n  assign q = n;\n  assign t = n == {width}'d{last};"
    )
    going = f"(~|m ? {width}'d{modulus - 1} : m + {{{width}{{1'b1}}}})"
    far = modulus - 1 - begin if up else begin
    other = (
        f"  reg {bits(width)}m;\n  always @(posedge clk)\n"
        f"    m <= rst ? {width}'d{far} : {'~e ? m : ' * enabled}{going};\n"
        f"  assign q = {f'{width}{chr(39)}d{modulus - 1} - m' if up else 'm'};\n  assign t = ~|m;"
    )
    text = (
        f"A counter whose value q is from 0 to {modulus - 1}. {RESET} q is {begin}; "
        f"{'else if e is 0 q stays as it is; ' * enabled}else q is one {'more' if up else 'less'} than before, or "
        f"{first} if it was {last}. t is 1 while q is {last}, else 0."
    )
    inputs = f"clk rst{' e' * enabled}"
    return design(text, inputs, f"q:{width} t", (golden, other), "counter", modulus, up, enabled, begin)


def shifter(rng: random.Random, level: int) -> Design:
    """A shift register of 3 to 7 bits, fed by the parity of an input and some of its bits: as a whole, or by bits."""
    width = level + 2 + rng.randrange(2)
    taps = sorted(rng.sample(range(width), rng.randint(1, min(3, width - 1))))
    loads, left = rng.random() < 0.5, rng.random() < 0.5
    feed = " ^ ".join(["d", *(f"r[{at}]" for at in taps)])
    shifted = f"{{r[{width - 2}:0], {feed}}}" if left else f"{{{feed}, r[{width - 1}:1]}}"
    load = "    else if (l) r <= p;\n" if loads else ""
    golden = (
        f"  reg {bits(width)}r;\n  always @(posedge clk)\n    if (rst) r <= 0;\n{load}    else r <= {shifted};\n"
        "  assign q = r;"
    )
    lines = [f"  reg {bits(width)}v;", f"  wire f = d ^ (^(v & {width}'d{sum(1 << at for at in taps)}));"]
    lines += ["  always @(posedge clk) begin"]
    for at in range(width):
        before = at - 1 if left else at + 1
        source = f"v[{before}]" if 0 <= before < width else "f"
        lines.append(f"    v[{at}] <= ~rst & {f'(l ? p[{at}] : {source})' if loads else source};")
    lines += ["  end", "  assign q = v;"]
    moves = "up: q[1] becomes what q[0] was" if left else "down: q[0] becomes what q[1] was"
    text = (
        f"A register q of {width} bits. {RESET} q is 0; {'else if l is 1 q is p; ' * loads}else each bit moves one "
        f"place {moves}, and so on, and q[{0 if left else width - 1}] becomes the exclusive or of d and, before the "
        f"edge, {', '.join(f'q[{at}]' for at in taps)}."
    )
    inputs = f"clk rst d{f' l p:{width}' * loads}"
    return design(text, inputs, f"q:{width}", (golden, "\n".join(lines)), "shifter", width, taps, loads, left)
