"""Verilog: a sentence or a table says what a circuit does, and a module does it, which is judged by proof.

Rules: the module is called `TopModule` and has the ports that are given. It is right if it is proved to give the
golden design's outputs for all inputs; one with a clock in all cycles after a reset. See `graders/designs.py`.
Replies: exactly one block of Verilog. The agents are those of the workflows, see `designers`.
Rewards: team `progress`, 0 or 1, the change of whether the design is proved equal; `success`, 1 at the end if it is.
Limits: what no design needs (system tasks, directives, attributes, `initial`, strings), latches, loops, clocks of its
own and other ports are refused, and so is what takes too long to read. A design whose proof does not end within its
seconds is not proved, and not right. Only a failure of the sandbox itself is an error.
Outcome: `success`; `refused`; `not_proved`; and what is known of a tester's vectors.
Instances: a seed draws one of seven families, see `families`, in levels 1 to 4 by size. No structure of a design is in
two splits. Each has two golden forms, which are proved equal before it is played. With `data` VerilogEval and RTLLM,
for tests only: see `folders`.
Oracle: the golden design.
Source: our own. That test benches are read and imitated: docs/verilog.md.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from pettingllms_envs.boards import Tile
from pettingllms_envs.core import SPLITS, Unreadable, check_choice
from pettingllms_envs.environments.verilog.designs import Design, header
from pettingllms_envs.environments.verilog.families import FAMILIES, LEVELS, draw
from pettingllms_envs.environments.verilog.folders import problems
from pettingllms_envs.environments.verilog.mutants import wrong_designs
from pettingllms_envs.environments.verilog.vectors import Lines, Review, Values, Vector, inputs_of, reviewed, vector_of
from pettingllms_envs.graders.designs import (
    DIFFERENT,
    GOLDEN_LIMITS,
    MOST_DESIGN,
    NOT_PROVED,
    REFUSED,
    TOP,
    Proved,
    counterexample,
    modules,
    prove,
    simulate,
)
from pettingllms_envs.installing import install_command
from pettingllms_envs.instances import seeded
from pettingllms_envs.quoting import quote_headings
from pettingllms_envs.replies.fences import fence, fenced_blocks
from pettingllms_envs.tasks.base import OpenTask


VERILOG = {"verilog": "Verilog", "systemverilog": "Verilog", "sv": "Verilog", "v": "Verilog"}
BEST_LINES = 16

_NO_TEXT = re.compile("[\0\ud800-\udfff]")


class VerilogState(NamedTuple):
    """A design that is asked for, and the one so far."""

    problem: Design
    design: str = ""
    proved: Proved = Proved()
    review: Review = Review()


@dataclass(frozen=True, slots=True)
class Verilog(OpenTask[VerilogState]):
    """The task. Its state is a `VerilogState`, its move a module.

    Args:
        data: A folder with the files of VerilogEval v2 or of RTLLM; None for designs of our own, which a seed draws.
    """

    data: str | None = None

    name: ClassVar[str] = "verilog"
    single_agent: ClassVar[str] = "single"
    instance_fields: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "split": SPLITS,
        "level": (None, *LEVELS),
        "family": (None, *FAMILIES),
    }
    blind_replies: ClassVar[tuple[str, ...]] = (
        *(
            fence(f"module {TOP}{body} endmodule", "verilog")
            for body in ("(output y); assign y = 0;", "(output y); assign y = 1;", "();")
        ),
        fence("a=0 -> y=0", "vectors"),
    )

    def __post_init__(self) -> None:
        if importlib.util.find_spec("pyosys") is None:
            words = "pyosys is not installed; expected it for designs in Verilog."
            raise ImportError(f"{words} Run {install_command('verilog')}.")
        if self.data is not None and not Path(self.data).expanduser().is_dir():
            raise ValueError(
                f"data is {self.data!r}; expected a folder with the files of VerilogEval or RTLLM. Unpack them there."
            )

    def generate(
        self, seed: int, *, split: str = SPLITS[0], level: int | None = None, family: str | None = None
    ) -> VerilogState:
        """The design of a seed in a split, and none yet that was written.

        Args:
            level: The size, 1 to 4; None for any.
            family: One of the families of designs; None for any.
        """
        for name, value in (("split", split), ("level", level), ("family", family)):
            check_choice(name, value, self.instance_fields[name])
        if self.data is None:
            problem = draw(seed, split, level, family)
            if not prove(problem.golden, problem.other, clocked=problem.clocked, limits=GOLDEN_LIMITS).equal:
                raise AssertionError(f"the golden forms of {problem} are not equal")
            return VerilogState(problem)
        if (split, level, family) != (SPLITS[2], None, None):
            raise ValueError(
                f"split is {split!r}, level {level!r} and family {family!r}; expected the split 'test' and neither of "
                "the others, since the designs of a folder are for tests. Leave them out."
            )
        found = problems(str(Path(self.data).expanduser().resolve()))
        return VerilogState(found[seed % len(found)])

    def parse(self, reply: str) -> str | Unreadable:
        """The text of the one block of Verilog, with a module `TopModule`."""
        return read_design(reply, TOP)

    def apply(self, state: VerilogState, move: str) -> VerilogState:
        """The design in place of the one before, judged; `SandboxFailed` if the sandbox failed, twice."""
        asked = state.problem
        return state._replace(design=move, proved=prove(asked.golden, move, clocked=asked.clocked))

    def try_vectors(self, state: VerilogState, lines: Lines) -> VerilogState:
        asked = state.problem
        golden, *wrong = simulate([asked.golden, *wrong_designs(asked)], inputs_of(lines), clocked=asked.clocked)
        return state._replace(review=reviewed(lines, golden, wrong))

    def outputs(self, state: VerilogState, lines: Lines) -> Sequence[Values] | None:
        """What the design gives in the cycles of vectors; None if there is none that can be read."""
        if not state.design or state.proved.verdict == REFUSED:
            return None
        found: Sequence[Values] = simulate([state.design], inputs_of(lines), clocked=state.problem.clocked)[0]
        return found

    def best_vectors(self, state: VerilogState) -> tuple[Vector, ...]:
        """Lines that tell all wrong designs if those do in which each first differs, with random ones in between."""
        asked, rng = state.problem, seeded("verilog vectors", state.problem.golden)
        wrong = wrong_designs(asked)
        chosen: list[dict[str, int]] = []
        for each in wrong:
            found = counterexample(asked.golden, each, clocked=asked.clocked)
            if len(chosen) + len(found) <= BEST_LINES:
                chosen += found
        names = [(port.name, port.width) for port in asked.ports if port.is_input and port.name not in ("clk", "rst")]
        chosen += [{name: rng.randrange(1 << width) for name, width in names} for _ in range(BEST_LINES - len(chosen))]
        (golden,) = simulate([asked.golden], chosen, clocked=asked.clocked)
        return tuple(vector_of(given, due, asked.ports) for given, due in zip(chosen, golden, strict=True))

    def solved(self, state: VerilogState) -> bool:
        """Whether the design is proved equal."""
        return state.proved.equal

    def rules(self) -> str:
        """What counts, in about 100 words."""
        return (
            f"A circuit is described, and a module {TOP} in Verilog that can be synthesized is to be it. It has the "
            "ports that are given and is right if it is proved to give the right outputs for all inputs. Numbers are "
            "unsigned. A circuit with a clock, clk, changes its registers at rising edges only; these start at any "
            "value, and a first cycle with rst = 1 precedes all others. No output may be x or z. There are no latches,"
            " loops, initial blocks, system tasks, directives, attributes or strings; it uses all other modules that"
            " are written beside it."
        )

    def reply_format(self) -> str:
        return (
            f"Write the design as exactly one block of Verilog, like this:\n{fence(f'module {TOP}(...);', 'verilog')}"
        )

    def question(self, state: VerilogState) -> str:
        """The specification and the header, and nothing of what was written."""
        asked = state.problem
        begins = f"\nIts header:\n{fence(header(asked.ports), 'verilog')}" if asked.family else ""
        return f"The circuit:\n{quote_headings(asked.text)}{begins}"

    def show(self, state: VerilogState) -> str:
        """The specification, and the verdict on the design so far, which agents are not shown."""
        verdict = f"\nThe design so far is {state.proved.verdict}." if state.design else ""
        return f"{self.question(state)}{verdict}"

    def oracle(self, state: VerilogState) -> str:
        return state.problem.golden

    def write(self, move: str) -> str:
        """A block of Verilog."""
        return fence(move, "verilog")

    def outcome(self, state: VerilogState) -> Mapping[str, bool | int | float]:
        """The verdict, and what is known of vectors."""
        verdict, review = state.proved.verdict, state.review
        return {
            "success": state.proved.equal,
            "refused": verdict == REFUSED,
            "not_proved": verdict == NOT_PROVED,
            **review._asdict(),
        }

    def tiles(self, state: VerilogState) -> list[list[Tile]]:
        """A waveform: the inputs of each cycle in which the design first differs, the golden outputs, and its own."""
        asked, cycles = state.problem, list[dict[str, int]]()
        if state.proved.verdict == DIFFERENT:
            cycles = counterexample(asked.golden, state.design, clocked=asked.clocked)[-BEST_LINES:]
        both = simulate([asked.golden, state.design], cycles, clocked=asked.clocked) if cycles else [[], []]
        rows = []
        for port in asked.ports:
            name = Tile(port.name[:2], "#e8e8e8")
            if port.is_input:
                rows.append([name, *(Tile(f"{each.get(port.name, 0):x}"[-2:], "#ffffff") for each in cycles)])
                continue
            for found in both:
                same = [one[port.name] == two[port.name] for one, two in zip(*both, strict=True)]
                papers = ["#cfe6d6" if each or found is both[0] else "#f2c4c4" for each in same]
                cells = [each[port.name] for each in found]
                rows.append(
                    [
                        name,
                        *(
                            Tile("x" if n is None else f"{n:x}"[-2:], paper)
                            for n, paper in zip(cells, papers, strict=True)
                        ),
                    ]
                )
        return rows


def read_design(reply: str, name: str) -> str | Unreadable:
    """The text of the one block of Verilog in a reply, if one module of it, and only one, has this name."""
    blocks = fenced_blocks(reply, VERILOG)
    if isinstance(blocks, Unreadable):
        return blocks
    if len(blocks) != 1:
        return Unreadable(f"it has {len(blocks) or 'no'} blocks of Verilog, and one is expected")
    source = blocks[0][1]
    if len(source) > MOST_DESIGN:
        return Unreadable(f"its design is longer than {MOST_DESIGN} characters")
    if _NO_TEXT.search(source):
        return Unreadable("its design has a character that no design has")
    found = modules(source)
    if name not in found:
        return Unreadable("it has no module of the name that is asked for")
    return Unreadable("it has two modules of one name") if len(set(found)) < len(found) else source
