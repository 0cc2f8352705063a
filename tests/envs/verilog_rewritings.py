"""Four ways of writing a design that are equal to it."""

from __future__ import annotations

import re

from pettingllms_envs.environments.verilog.designs import Design, bits, header
from pettingllms_envs.graders.designs import TOP


def rewritings(design: Design) -> list[str]:
    """The other golden form; either form in a module of its own, with inputs or outputs inverted twice; and both."""
    golden, other = renamed(design.golden, "first"), renamed(design.other, "second")
    outputs = [port for port in design.ports if not port.is_input]
    inputs = [port for port in design.ports if port.is_input]
    inverted = [f"wire {bits(p.width)}n_{p.name} = ~{p.name};" for p in inputs if p.name != "clk"]
    again = [f".{p.name}({'' if p.name == 'clk' else '~n_'}{p.name})" for p in inputs]
    plain = [f".{p.name}({p.name})" for p in inputs]
    results = [f"wire {bits(p.width)}{which}_{p.name};" for p in outputs for which in ("g", "o")]
    return [
        design.other,
        whole(
            design,
            [
                *results,
                instance("first", "g", plain, outputs),
                *(f"assign {p.name} = ~(~g_{p.name});" for p in outputs),
            ],
            golden,
        ),
        whole(
            design,
            [
                *inverted,
                *results,
                instance("second", "o", again, outputs),
                *(f"assign {p.name} = o_{p.name};" for p in outputs),
            ],
            other,
        ),
        whole(
            design,
            [
                *results,
                instance("first", "g", plain, outputs),
                instance("second", "o", plain, outputs),
                *(f"assign {p.name} = g_{p.name} & o_{p.name};" for p in outputs),
            ],
            golden,
            other,
        ),
    ]


def renamed(source: str, name: str) -> str:
    return re.sub(rf"\b{TOP}\b", name, source)


def instance(module: str, which: str, inputs: list[str], outputs: list) -> str:
    return f"{module} {which}_1({', '.join([*inputs, *(f'.{p.name}({which}_{p.name})' for p in outputs)])});"


def whole(design: Design, body: list[str], *others: str) -> str:
    return "\n".join([header(design.ports), *body, "endmodule", *others])
