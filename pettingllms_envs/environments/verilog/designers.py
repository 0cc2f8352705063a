"""Workflows of verilog: `designer_tester`, `architect_implementer` and `single`.

* `designer_tester`: in each turn a designer writes the design and a tester up to 16 vectors for it. At the end of the
  turn the design is simulated on them, and both are shown which it fails. The episode ends when it gives what all
  vectors of the turn say (they agree, right or wrong), or when the turns are used up.
* `architect_implementer`: in each turn an architect writes `TopModule`, and for each block that it uses one line
  `block NAME(ports): purpose`. An implementer is shown this line and nothing else, and writes the module. All modules
  together are the design. The episode ends with the first one that is not refused.
* `single`: a designer alone, until a design is not refused.

In all of them a refused design is told why; whether another one is proved is shown to nobody.

Rewards: team, on the step that completes a design, `progress`, the change of whether it is proved equal, and at the
end `success`, see `rules`. To the designer, or the implementer, `equal`, the same change, -1 to 1. To the tester the
change of `valid`, the share of its vectors whose outputs are the golden design's, and of `telling`, the share of up to
six wrong designs, each proved to be wrong, that a valid one tells from the golden design; each -1 to 1. The architect
is paid later. To each `format`, -0.2, for an unreadable reply.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from pettingllms_envs.core import UNREADABLE_PENALTY, Role, Unreadable
from pettingllms_envs.environments.verilog.designs import header
from pettingllms_envs.environments.verilog.rules import read_design
from pettingllms_envs.environments.verilog.vectors import (
    MOST_LINES,
    Lines,
    Values,
    Vector,
    read_vectors,
)
from pettingllms_envs.graders.designs import REFUSED, TOP, renamed
from pettingllms_envs.quoting import quote_block
from pettingllms_envs.replies.fences import fence
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow


DESIGNER, TESTER, ARCHITECT, IMPLEMENTER = "designer", "tester", "architect", "implementer"
DESIGNS = Role(
    DESIGNER,
    "You are the designer. You write the design. A tester writes vectors for it, and you see which your design fails;"
    " a vector may be wrong. The work is done when the design gives what all vectors of the turn say.",
)
ALONE = Role(DESIGNER, "You are the designer. You write the design. If it is refused, you are told why.")
TESTS = Role(
    TESTER,
    "You are the tester. A designer writes the design, you write vectors: inputs, and the outputs that a right design"
    " gives, such that wrong designs fail.",
    reply_format=f"End your reply with one block of 1 to {MOST_LINES} vectors, one on a line, with a number for each"
    " input but clk and for each output. If there is a clock, the lines are the cycles after the reset, in order, and"
    " the outputs are those before the edge that ends the cycle; rst may be left out, and is 0 then. Like this:\n"
    f"{fence('in=3 other=0x1f -> out=10', 'vectors')}",
)
IMPLEMENTS = Role(
    IMPLEMENTER,
    "You are the implementer. An architect has divided the circuit into blocks; you see the line about one block and"
    " nothing else, and write a module of that name with those ports.",
    reply_format="Write the module as exactly one block of Verilog, like this:\n"
    f"{fence('module NAME(...);', 'verilog')}",
)
CHANGE = (-1.0, 1.0)

_BLOCK = re.compile(r"block[ \t]+([A-Za-z_]\w*)[ \t]*(\([^()\n]*\))[ \t]*:(.*)", re.A)


def _job(most: int) -> str:
    return (
        f"You are the architect. You write {TOP}, which uses 1 to {most} blocks. Implementers write these; of the"
        " circuit they see nothing but your line about their block. What is then refused, you are told."
    )


def _format(most: int, capacity: int) -> str:
    return (
        f"Write 1 to {most} lines, each about a block in at most {capacity} characters, and after them {TOP} as"
        " exactly one block of Verilog, like this:\n"
        f"block NAME(ports as in its header): what it does\n{fence(f'module {TOP}(...);', 'verilog')}"
    )


def judged(game: Game, role: str, design: str) -> None:
    """Put a design in the place of the one before, and pay for what is proved."""
    game.pay(role, "equal", game.advance(game.once(game.task.apply, game.state, design)))
    game.feedback = f"The last design was refused: {game.state.proved.reason}." if _refused(game) else ""


def _refused(game: Game) -> bool:
    return bool(game.state.proved.verdict in ("", REFUSED))


def unread(game: Game, role: str, found: Unreadable) -> None:
    """Charge for an unreadable reply, and say so."""
    game.pay(role, "format", UNREADABLE_PENALTY)
    game.feedback = f"The {role}'s last reply was unreadable: {found.reason}."


def prompt(game: Game, *notes: str) -> str:
    """The turn, the circuit, the design so far, what was refused or unreadable, and the notes."""
    design = game.state.design
    so_far = f"The design so far:\n{quote_block(design, 'verilog')}" if design else ""
    lines = (f"Turn {game.turn} of {game.num_turns}.", game.task.question(game.state), so_far, game.feedback, *notes)
    return "\n".join(filter(None, lines))


@function_workflow(ALONE, name="single", ranges={"equal": CHANGE}, bonuses=(), channel=None, cyclic=True)
def SingleDesigner(game: Game) -> Questions:
    """The designer alone; see the module."""
    for _ in game.turns():
        reply = yield Ask(DESIGNER, partial(prompt, game), None, ())
        design = game.task.parse(reply)
        if isinstance(design, Unreadable):
            unread(game, DESIGNER, design)
        else:
            judged(game, DESIGNER, design)
        if game.closes(not isinstance(design, Unreadable) and not _refused(game)):
            break
    return True


@function_workflow(
    DESIGNS,
    TESTS,
    name="designer_tester",
    ranges={"equal": CHANGE, "valid": CHANGE, "telling": CHANGE},
    bonuses=(),
    channel=None,
    cyclic=True,
)
def DesignerTester(game: Game) -> Questions:
    """A designer and a tester; see the module."""
    vectors, report = tuple[Vector | None, ...](), ""

    def best() -> str:
        return fence("\n".join(map(str, game.task.best_vectors(game.state))), "vectors")

    for _ in game.turns():
        reply = yield Ask(DESIGNER, partial(prompt, game, report), None, (vectors, report))
        design = game.task.parse(reply)
        if isinstance(design, Unreadable):
            unread(game, DESIGNER, design)
        else:
            judged(game, DESIGNER, design)
        reply = yield Ask(TESTER, partial(prompt, game, report), best, (vectors, report))
        read, agrees = read_vectors(reply, game.state.problem.ports), False
        if isinstance(read, Unreadable):
            unread(game, TESTER, read)
        else:
            vectors, earlier = read, game.state.review
            game.state = game.once(game.task.try_vectors, game.state, vectors)
            game.pay(TESTER, "valid", game.state.review.valid - earlier.valid)
            game.pay(TESTER, "telling", game.state.review.telling - earlier.telling)
        outputs = game.once(game.task.outputs, game.state, vectors) if vectors else None
        if outputs is not None:
            report = _report(vectors, outputs)
            agrees = not isinstance(read, Unreadable) and all(
                vector is not None and vector.agrees(own) for vector, own in zip(vectors, outputs, strict=False)
            )
        if game.closes(agrees):
            break
    return True


def _report(lines: Lines, outputs: Sequence[Values]) -> str:
    """Which vectors a design fails."""
    told = []
    for vector, found in zip(lines, outputs, strict=True):
        if vector is None:
            told.append("a line that does not give each input and output a number that fits it")
            continue
        gives = " ".join(f"{name}={'x' if found.get(name) is None else found[name]}" for name, _ in vector.outputs)
        told.append(f"{vector}: {'as it is' if vector.agrees(found) else f'the design gives {gives}'}")
    return f"The tester's last vectors, and the last design that could be read:\n{fence(chr(10).join(told))}"


@function_workflow(
    lambda team: (
        Role(ARCHITECT, _job(team.max_blocks), delayed=True, reply_format=_format(team.max_blocks, team.capacity)),
        IMPLEMENTS,
    ),
    name="architect_implementer",
    num_turns=2,
    ranges={"equal": CHANGE},
    bonuses=(),
    legal={"max_blocks": range(1, 9)},
)
def ArchitectImplementer(game: Game, max_blocks: int = 3, capacity: int = 800) -> Questions:
    """An architect and an implementer; see the module.

    Args:
        max_blocks: Blocks into which the architect may divide the circuit, 1 to 8.
    """
    for _ in game.turns():
        reply = yield Ask(ARCHITECT, partial(prompt, game), partial(_plan, game), ())
        plan = read_plan(reply, max_blocks)
        if isinstance(plan, Unreadable):
            unread(game, ARCHITECT, plan)
            game.closes(False)
            continue
        top, blocks = plan
        parts = [top]
        for name, line in blocks:
            shown = f"The architect's line about your block:\n{game.quote(ARCHITECT, line)}"
            best = partial(_block, game, name)
            reply = yield Ask(IMPLEMENTER, f"Your block is called {name}.\n{shown}", best, (tuple(parts), blocks))
            read = read_design(reply, name)
            if isinstance(read, Unreadable):
                game.pay(IMPLEMENTER, "format", UNREADABLE_PENALTY)
            else:
                parts.append(read)
        if len(parts) > len(blocks):
            judged(game, IMPLEMENTER, "\n".join(parts))
        else:
            game.feedback = "An implementer's last reply was unreadable."
        if game.closes(len(parts) > len(blocks) and not _refused(game)):
            break
    return True


def read_plan(reply: str, most: int) -> tuple[str, tuple[tuple[str, str], ...]] | Unreadable:
    """The text of `TopModule` in an architect's reply, and the name and line of each block."""
    top = read_design(reply, TOP)
    if isinstance(top, Unreadable):
        return top
    found = [match for line in reply.splitlines() if (match := _BLOCK.fullmatch(line.strip()))]
    names = [match[1] for match in found]
    if not 0 < len(names) <= most:
        return Unreadable(f"it has {len(names) or 'no'} lines about blocks, and 1 to {most} are expected")
    if len(set(names)) < len(names) or TOP in names:
        return Unreadable("two of its blocks have one name")
    return top, tuple((match[1], match[0]) for match in found)


def _plan(game: Game) -> str:
    """An architect's reply that leaves everything to one block."""
    ports = game.state.problem.ports
    connected = ", ".join(f".{port.name}({port.name})" for port in ports)
    line = (
        header(ports, "core").replace("module", "block").replace(";", f": {' '.join(game.state.problem.text.split())}")
    )
    return f"{line}\n{fence(f'{header(ports)} core core_1({connected}); endmodule', 'verilog')}"


def _block(game: Game, name: str) -> str:
    return str(game.task.write(renamed(game.state.problem.golden, TOP, name)))


WORKFLOWS = (DesignerTester, ArchitectImplementer, SingleDesigner)
"""The workflows of the environment, the default one first."""
