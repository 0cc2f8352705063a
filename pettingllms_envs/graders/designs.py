"""Judges designs in Verilog by proof, in the sandbox: is a design equal to the golden one for all inputs, for ever?

    prove(golden, design, clocked=False)          # Proved("equal"), ("different"), ("refused", why) or ("not proved")
    simulate([golden], [{"a": 3, "b": 7}])        # [({"y": 10},)]

A combinational design is proved by a SAT solver on the miter of both. One with a clock, `clk`, is proved by temporal
induction: its registers start at any value, `rst` is 1 in a first cycle, and from the next one on all outputs are the
same. Where a design's output is x or z, or hangs on how a register started, it differs.

The tool is Yosys, which the extra `verilog` brings. A verdict is read from a channel that only our code can write to,
and from how the process ended; nothing that the tool prints is read. See `inside/designs.py`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pettingllms_envs.caching import Memo
from pettingllms_envs.sandbox import Limits, Sandbox, SandboxFailed, Verdict
from pettingllms_envs.sandbox.sandbox import num_cores
from pettingllms_envs.sandbox.values import ENDINGS, ProgramResult


TOP, CLOCK, RESET = "TopModule", "clk", "rst"
EQUAL, DIFFERENT, REFUSED, NOT_PROVED = "equal", "different", "refused", "not proved"
LIMITS = Limits(cpu=3.0, memory=1 << 30, output=1 << 20)
GOLDEN_LIMITS = Limits(cpu=30.0, total=30.0, memory=1 << 30, output=1 << 20)
MOST_SLOTS, MOST_DESIGN = 4, 20_000

_RESIDENT = Path(__file__).parent / "inside" / "designs.py"
_PROVED: Memo[tuple[str, str, bool], Proved] = Memo(8192)
_ASKED: Memo[tuple[str, str], Any] = Memo(4096)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.S)
_WORD = re.compile(r"\w+")
_MODULE = re.compile(r"\b(?:macro)?module\s+(?:automatic\s+|static\s+)?(\w+)")
_REFUSED = re.compile(
    r"(?P<directive>`)|(?P<task>\$(?!(?:signed|unsigned|clog2|bits)\b))|(?P<attribute>\(\s*\*(?!\s*\)))|"
    r"(?P<text>[\"\\])|(?P<word>\b(?:initial|final|bind|import|export|package|interface|modport|program|checker|assert|"
    r"assume|cover|restrict|property|force|release|defparam|rand|const|specify|primitive|include|config)\b)"
)
_REASONS = {
    "directive": "it has a directive or a macro",
    "task": "it calls a system task",
    "attribute": "it has an attribute",
    "text": "it has a string or an escaped name",
    "word": "it has a statement that no design needs",
}


class Proved(NamedTuple):
    """What is known of a design.

    Args:
        verdict: `EQUAL`, `DIFFERENT`, `REFUSED`, or `NOT_PROVED`, where the solver did not end.
        reason: Why it was refused, a clause in fixed words.
    """

    verdict: str = ""
    reason: str = ""

    @property
    def equal(self) -> bool:
        return self.verdict == EQUAL


class Port(NamedTuple):
    """A port of a design: its name, its number of bits, and whether it is an input."""

    name: str
    width: int
    is_input: bool


def bare(source: str) -> str:
    """A design without its comments."""
    return _COMMENT.sub(" ", source.replace("\r", " "))  # which the tool leaves out, also between * and /


def words(source: str) -> list[str]:
    """The words of a design that are no comments, in their order."""
    return _WORD.findall(bare(source))


def renamed(source: str, old: str, new: str) -> str:
    """A text in which another word stands for one."""
    return _WORD.sub(lambda word: new if word[0] == old else word[0], source)


def modules(source: str) -> list[str]:
    """The names of its modules, in their order."""
    return _MODULE.findall(bare(source))


def tops(source: str) -> list[str]:
    """The names of its modules that nothing names but their own headers."""
    named = words(source)
    return [name for name in modules(source) if named.count(name) == 1]


def refusal(source: str) -> str:
    """Why a design is refused before anything reads it, a clause; empty if it is not."""
    text = bare(source)
    if found := _REFUSED.search(text):
        return _REASONS[found.lastgroup or ""]
    if any(name != TOP for name in tops(source)):
        return "it has a second top module"
    return ""


def prove(golden: str, design: str, *, clocked: bool, limits: Limits = LIMITS) -> Proved:
    """What is known of a design; `SandboxFailed` if the sandbox failed twice.

    Args:
        golden: A design that can be read.
        design: Without null characters and lone surrogates.
    """
    if why := refusal(design):
        return Proved(REFUSED, why)
    key = golden, design, clocked
    if (known := _PROVED.get(key)) is None:
        known = _verdict(_run("prove", (golden, design), limits, clocked=clocked))
        _PROVED.put(key, known)
    return known


def simulate(designs: Sequence[str], cycles: Sequence[Mapping[str, int]], *, clocked: bool) -> Any:
    """The outputs of designs that can be read, in each cycle after the reset; None for one that is unknown.

    Without a clock each cycle is a case of its own. Returns a list of dictionaries for each design.
    """
    found = _asked("simulate", designs, number=len(designs), cycles=cycles, clocked=clocked)
    return found or [[{}] * len(cycles)] * len(designs)


def ports(design: str) -> tuple[Port, ...]:
    """The ports of a design, sorted by name; empty if it cannot be read."""
    return tuple(Port(*each) for each in _asked("ports", (design,)) or ())


def counterexample(golden: str, design: str, *, clocked: bool) -> list[dict[str, int]]:
    """The inputs of each cycle after the reset, in the last of which two designs differ; empty if none is known."""
    found = [] if refusal(design) else _asked("counterexample", (golden, design), clocked=clocked)
    return (found or [])[int(clocked) :]


def _asked(kind: str, designs: Sequence[str], **request: Any) -> Any:
    """What the sandbox answers to a request, or None where it did not get to its end."""
    key = kind, json.dumps([designs, request])
    if (known := _ASKED.get(key)) is None:
        result = _run(kind, designs, LIMITS, **request)
        known = json.loads(result.stdout.splitlines()[-1]) if result.verdict == Verdict.FINISHED else []
        _ASKED.put(key, known)
    return known


def _run(kind: str, designs: Sequence[str], limits: Limits, **request: Any) -> ProgramResult:
    text = "\n".join(designs)
    end = f"end_{hashlib.sha256(text.encode()).hexdigest()}"  # which no design can contain
    script = "".join(
        f"read_verilog -sv <<{end}\n{bare(design)}\n{end}\ndesign -stash read{number}\n"
        for number, design in enumerate(designs)
    )
    result = _sandbox().run(f"import resident\nresident.main({kind!r}, {request!r})\n", script, limits=limits)
    if result.verdict == Verdict.SANDBOX_ERROR:
        raise SandboxFailed(
            f"the sandbox failed twice ({result.detail}); expected a verdict on a design. See the log."
        )
    return result


def _verdict(result: ProgramResult) -> Proved:
    stages = result.stdout.decode("utf-8", "replace").splitlines()
    stage = stages[-1] if stages else ""
    if result.verdict == Verdict.FINISHED:
        return Proved(EQUAL) if stage == "true" else Proved(NOT_PROVED)
    if stage == DIFFERENT:
        return Proved(DIFFERENT if result.exit_code == 1 else NOT_PROVED)
    return Proved(REFUSED, stage if result.exit_code == 1 and stage else ENDINGS[result.verdict])


@cache
def _sandbox() -> Sandbox:
    slots = min(MOST_SLOTS, num_cores())
    return Sandbox(imports=("pyosys",), resident=_RESIDENT.read_text(encoding="utf-8"), num_slots=slots)
