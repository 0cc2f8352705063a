"""Ways of writing a design that are equal to it."""

from __future__ import annotations

import re

from pettingllms_envs.environments.verilog.designs import Design, bits, header
from pettingllms_envs.graders.designs import TOP


def rewritings(design: Design) -> list[str]:
    """The other golden form; and a form in a module of its own whose inputs, outputs or both are inverted twice."""
    return [
        design.other,
        nested(design, design.golden, inputs=False, outputs=True),
        nested(design, design.other, inputs=True, outputs=False),
        nested(design, design.golden, inputs=True, outputs=True),
    ]


def nested(design: Design, form: str, *, inputs: bool, outputs: bool) -> str:
    given = [port for port in design.ports if port.is_input]
    body = [f"wire {bits(port.width)}n_{port.name} = ~{port.name};" for port in given if port.name != "clk"]
    signals = [f".{p.name}({f'~n_{p.name}' if inputs and p.name != 'clk' else p.name})" for p in given]
    for port in design.ports:
        if not port.is_input:
            body.append(f"wire {bits(port.width)}r_{port.name};")
            body.append(f"assign {port.name} = {f'~(~r_{port.name})' if outputs else f'r_{port.name}'};")
            signals.append(f".{port.name}(r_{port.name})")
    return whole(design, [*body, f"inner inner_1({', '.join(signals)});"], renamed(form, "inner"))


def redundant(design: Design) -> str:
    """Both forms at once, of whose outputs the bits are taken that both have."""
    body, signals = [], {"first": [], "second": []}
    for port in design.ports:
        for name, each in signals.items():
            each.append(f".{port.name}({port.name if port.is_input else f'{name}_{port.name}'})")
            if not port.is_input:
                body.append(f"wire {bits(port.width)}{name}_{port.name};")
        if not port.is_input:
            body.append(f"assign {port.name} = first_{port.name} & second_{port.name};")
    body += [f"{name} {name}_1({', '.join(each)});" for name, each in signals.items()]
    return whole(design, body, renamed(design.golden, "first"), renamed(design.other, "second"))


def renamed(source: str, name: str) -> str:
    return re.sub(rf"\b{TOP}\b", name, source)


def whole(design: Design, body: list[str], *others: str) -> str:
    return "\n".join([header(design.ports), *body, "endmodule", *others])
