"""Proves that designs in Verilog are equal, and simulates them. Runs in the sandbox, as its module `resident`.

See `designs.py` beside this folder. The designs stand in a script on standard input, which Yosys reads; `main` answers
one request about them. What it writes is its own: the name of each stage before it begins, and at the end one line of
JSON. What the tool prints, which quotes what a model wrote, goes where nobody looks. Yosys ends the process where it
finds an error, so the last stage that was written says what is wrong.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import Any

from pyosys import libyosys as ys


TOP, CLOCK = "TopModule", "clk"
READ = "it is no valid Verilog, or has return, break or inside, which are not read"
SHAPE, PROOF = "its ports are not those that are asked for", "different"
REGISTERS = "it has a latch, or a register that the clock's rising edge does not set"
DIVISION = "it divides by what is not a constant"

_UNKNOWN = "it uses a module that there is not, or ports that it does not have"
_DRIVERS = "it has a loop, or a net that nothing or several things drive"
_FREE = "setundef -undriven -anyseq"  # what nothing drives, and x and z, may be anything, and so differ from all else
_ANY_START = "setattr -unset init w:*"  # registers start at any value, whatever is declared
_FLAT = (
    (f"hierarchy -check -top {TOP}", _UNKNOWN),
    ("proc -norom -noopt", "it has a block that is no circuit"),
    ("flatten", _UNKNOWN),
    ("check -assert", _DRIVERS),
    (_FREE, READ),
    (_ANY_START, READ),
)
_SIMPLE = (
    ("opt_expr", READ),
    ("opt_clean", READ),
    ("memory -nomap", "its memory is too large"),
    ("memory_map", "its memory is too large"),
    (_FREE, READ),
    (_ANY_START, READ),
    ("opt_expr", READ),  # and not opt_dff, which chooses how a register starts
    ("opt_merge", READ),
    ("opt_clean", READ),
)
_DIVISIONS = frozenset({"$div", "$mod", "$divfloor", "$modfloor", "$pow"})
_RESETS = {**dict.fromkeys(("rst", "reset", "areset"), 1), **dict.fromkeys(("rst_n", "resetn", "reset_n"), 0)}
_CLOCKED = re.compile(r"\$(?:s|a|al)?dffc?e?|\$dffsre?")
_MODEL = re.compile(r"^ +(?:(\d+) +)?\\in_(\w+) +(?:\d+|--) +[0-9a-f]+ +([01]+)\s*$", re.M)
_HIGH_IMPEDANCE = re.compile(r"'[01x]*z")  # a constant of a netlist that has a z
_MOST_STEPS, _MOST_INDEX = 64, (1 << 31) - 1

Values = dict[str, int | None]
"""A number for each port; None where it is unknown."""


def _run(command: str, design: ys.Design) -> None:
    ys.run_pass(f"tee -q {command}", design)


def _id(name: str) -> ys.IdString:
    return ys.IdString(f"\\{name}")


class Proof:
    """One request: the designs that were read, and the channel that only this module writes to."""

    def __init__(self) -> None:
        self._channel = os.dup(1)
        os.dup2(2, 1)
        self.design = ys.Design()
        self.stage(READ)
        ys.run_frontend("-", "script", self.design, "")

    def stage(self, name: str) -> None:
        """Say what is wrong if the process ends from here on."""
        os.write(self._channel, f"{name}\n".encode())

    def run(self, stages: Sequence[tuple[str, str]]) -> None:
        """Run commands, each with what is wrong if it fails."""
        for command, reason in stages:
            self.stage(reason)
            _run(command, self.design)

    def answer(self, found: Any) -> None:
        """Write what came of the request, and end the process before anything else can write."""
        os.write(self._channel, f"{json.dumps(found)}\n".encode())
        os._exit(0)

    def fail(self) -> None:
        """End the process as Yosys does."""
        os._exit(1)

    def printed(self, command: str) -> str:
        """What the tool prints of a command, on netlists whose names are ours."""
        ys.log_flush()
        begin = os.fstat(1).st_size
        ys.run_pass(command, self.design)
        ys.log_flush()
        return os.pread(1, os.fstat(1).st_size - begin, begin).decode("utf-8", "replace")

    def prepare(self, number: int, is_judged: bool = False) -> ys.Module:
        """A design as one flat module of simple cells, refused where its registers are not those of a clock."""
        _run(f"design -load read{number}", self.design)
        self.run(_FLAT[:1])
        for whole in (False, True):
            self.stage(_DRIVERS)
            modules = list(self.design.modules_.values())
            if is_judged and (any(map(_is_driven_twice, modules)) or (not whole and any(map(_names_inside, modules)))):
                self.fail()
            self.run(() if whole else _FLAT[1:])
        module = self.design.module(_id(TOP))
        self.stage(PROOF)
        if _HIGH_IMPEDANCE.search(module.to_rtlil_str()):
            self.fail()
        _guard(module)
        self.run(_SIMPLE)
        kinds = [(cell, cell.type.str()) for cell in module.cells_.values()]
        self.stage(DIVISION)
        if any(kind in _DIVISIONS for _, kind in kinds):
            self.fail()
        self.stage(REGISTERS)
        for cell, kind in kinds:
            if cell.is_builtin_ff() and not (_CLOCKED.fullmatch(kind) and _has_clock(cell)):
                self.fail()
        # A solver proves anything of a loop that has no solution.
        self.run((("async2sync", _DRIVERS), ("check -assert", _DRIVERS)))
        return module

    def miter(self, clocked: bool) -> str:
        """The two designs beside each other, and the command that proves that they never differ."""
        for number, name in enumerate(("gold", "gate")):
            ports = _ports(self.prepare(number, is_judged=number > 0))
            if number == 0:
                due = ports
            self.stage(SHAPE)
            if ports != due:
                self.fail()
            _run(_FREE, self.design)
            _run(f"rename {TOP} {name}", self.design)
            _run(f"design -stash {name}", self.design)
        for name in ("gold", "gate"):
            _run(f"design -copy-from {name} -as {name} {name}", self.design)
        _run("miter -equiv -flatten -make_outputs gold gate both", self.design)
        _run("hierarchy -top both", self.design)
        if not clocked:
            return "-prove trigger 0 both"
        reset = "".join(f"-set-at 1 in_{name} {value} " for name, value in _reset(due).items())
        return f"-seq 1 {reset}-tempinduct -prove trigger 0 both"


def _is_driven_twice(module: ys.Module) -> bool:
    """Whether a bit has two drivers, of which the tool would choose one: assignments, processes, cells."""
    drivers = [(target,) for target, _ in module.connections_]
    for process in module.processes.values():
        syncs = [sync for sync in process.syncs if sync.type != ys.SyncType.STi]  # of a declared start
        drivers.append(tuple(target for sync in syncs for target, _ in sync.actions))
    for cell in module.cells_.values():
        drivers += [(signal,) for name, signal in cell.connections_.items() if cell.known() and cell.output(name)]
    seen: set[tuple[str, int]] = set()
    for targets in drivers:
        bits = {(bit.wire.name.str(), bit.offset) for each in targets for bit in each.bits() if bit.is_wire()}
        if seen & bits:
            return True
        seen |= bits
    return False


def _names_inside(module: ys.Module) -> bool:
    """Whether a name is that of a net inside an instance, of which the tool makes another net."""
    cells = {cell.name.str() for cell in module.cells_.values()}
    return any(cells & set(accumulate(wire.name.str().split("."), "{}.{}".format)) for wire in module.wires_.values())


def _guard(module: ys.Module) -> None:
    """Make what is read out of range, or divided by 0, anything; the tool would choose what is simplest."""
    for number, cell in enumerate(list(module.cells_.values())):
        if (found := _domain(module, cell)) is None:
            continue
        name, index, signed, least, most = found
        result = cell.getPort(_id(name))
        if not signed and least == 0 and most >= (1 << index.size()) - 1:
            continue
        names = [ys.IdString(f"$guard${number}${part}") for part in range(6)]
        bounds = [ys.SigSpec(ys.Const(each, 33)) for each in (least, max(0, min(most, _MOST_INDEX)))]
        above = module.Ge(names[0], index, bounds[0], signed)
        within = module.And(names[2], above, module.Le(names[1], index, bounds[1], signed)) if most < inf else above
        read, free = ys.SigSpec(module.addWire(names[3], result.size())), module.Anyseq(names[4], result.size())
        cell.setPort(_id(name), read)
        module.addMux(names[5], free, read if most >= 0 else free, within, result)


def _domain(module: ys.Module, cell: ys.Cell) -> tuple[str, ys.SigSpec, bool, int, float] | None:
    """The output of a cell that not all values of an input give, that input, whether it is signed, and its range."""
    kind = cell.type.str()
    if kind == "$shiftx":
        most = cell.getPort(_id("A")).size() - cell.getPort(_id("Y")).size()
        return "Y", cell.getPort(_id("B")), cell.getParam(_id("B_SIGNED")).as_bool(), 0, most
    if kind in _DIVISIONS:
        signed = kind == "$pow" and cell.getParam(_id("B_SIGNED")).as_bool()
        return "Y", cell.getPort(_id("B")), signed, int(kind != "$pow"), inf
    if kind.startswith("$memrd"):
        memory = module.memories[ys.IdString(cell.getParam(_id("MEMID")).decode_string())]
        first = memory.start_offset
        return "DATA", cell.getPort(_id("ADDR")), False, first, first + memory.size - 1
    return None


def _has_clock(cell: ys.Cell) -> bool:
    if not cell.hasPort(_id("CLK")):
        return False
    clock = cell.getPort(_id("CLK"))
    is_port = clock.is_wire() and clock.as_wire().name.str() == f"\\{CLOCK}" and clock.as_wire().port_input
    return bool(is_port and cell.getParam(_id("CLK_POLARITY")).as_bool())


def _ports(module: ys.Module) -> list[tuple[str, int, bool]]:
    """Name, width and whether it is an input, of each port."""
    wires = [wire for wire in module.wires_.values() if wire.port_id]
    return sorted((wire.name.str()[1:], wire.width, wire.port_input and not wire.port_output) for wire in wires)


def _reset(ports: Sequence[tuple[str, int, bool]]) -> dict[str, int]:
    """The inputs of the first cycle by which a design is reset, perhaps none."""
    return {name: _RESETS[name] for name, width, is_input in ports if name in _RESETS and is_input and width == 1}


def prove(proof: Proof, clocked: bool) -> bool:
    """True if the two designs are equal; if they differ the process ends in the stage `PROOF`."""
    command = proof.miter(clocked)
    proof.stage(PROOF)
    _run(f"sat -verify {command}", proof.design)
    return True


def ports(proof: Proof) -> list[tuple[str, int, bool]]:
    """The ports of the first design."""
    return _ports(proof.prepare(0))


def counterexample(proof: Proof, clocked: bool) -> list[dict[str, int]]:
    """The inputs of each cycle, from the reset on, after which the two designs differ; empty if none was found."""
    command = proof.miter(clocked)
    proof.stage(PROOF)
    printed = proof.printed(f"sat -show-ports {command}")
    cycles: dict[int, dict[str, int]] = {}
    for at, name, bits in _MODEL.findall(printed):
        cycles.setdefault(int(at or 1), {})[name] = int(bits, 2)
    return [cycles[at] for at in sorted(cycles)][:_MOST_STEPS]


def simulate(proof: Proof, number: int, cycles: Sequence[Mapping[str, int]], clocked: bool) -> list[list[Values]]:
    """The outputs of each of some designs in each cycle after the reset, from registers that hold 0 and, again, 1.

    Where these differ an output is unknown. Without a clock each cycle is a case of its own.
    """
    found = []
    for index in range(number):
        module = proof.prepare(index)
        _run("dffunmap", proof.design)
        _run("opt_clean", proof.design)
        first = [_reset(_ports(module))] if clocked else []
        starts = [_simulated(module, [*first, *cycles], ys.State.S0)]
        if clocked:
            starts.append(_simulated(module, [*first, *cycles], ys.State.S1))
        both = list(zip(starts[0], starts[-1], strict=True))[len(first) :]
        found.append(
            [{name: value if value == other[name] else None for name, value in one.items()} for one, other in both]
        )
    return found


def _simulated(module: ys.Module, cycles: Sequence[Mapping[str, int]], start: ys.State) -> list[Values]:
    wires = [wire for wire in module.wires_.values() if wire.port_id]
    registers = [cell for cell in module.cells_.values() if cell.is_builtin_ff()]
    held = [ys.Const(start, cell.getPort(_id("Q")).size()) for cell in registers]
    results = []
    for cycle in cycles:
        eval = ys.ConstEval(module, ys.State.Sx)
        for wire in wires:
            if wire.port_input:
                eval.set(
                    ys.SigSpec(wire),
                    ys.Const.from_string(format(cycle.get(wire.name.str()[1:], 0), f"0{wire.width}b")),
                )
        for cell, value in zip(registers, held, strict=True):
            eval.set(cell.getPort(_id("Q")), value)
        outputs = {wire.name.str()[1:]: _evaluated(eval, ys.SigSpec(wire)) for wire in wires if wire.port_output}
        held = [_evaluated(eval, ys.SigSpec(cell.getPort(_id("D")))) for cell in registers]
        results.append(
            {
                name: int(bits, 2) if not bits.strip("01") else None
                for name, bits in ((name, value.as_string()) for name, value in outputs.items())
            }
        )
    return results


def _evaluated(eval: ys.ConstEval, signal: ys.SigSpec) -> ys.Const:
    eval.eval(signal)
    return signal.as_const()


_KINDS = {each.__name__: each for each in (prove, ports, counterexample, simulate)}


def main(kind: str, request: Mapping[str, Any]) -> None:
    """Answer a request about the designs of the script on standard input."""
    try:
        proof = Proof()
        proof.answer(_KINDS[kind](proof, **request))
    except BaseException:  # noqa: BLE001  # of ours, and no verdict
        os._exit(2)
