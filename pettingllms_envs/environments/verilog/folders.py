"""VerilogEval v2 and RTLLM, from a folder of their files, for tests: only designs that are equal to themselves.

* VerilogEval v2 (NVlabs/verilog-eval, `dataset_spec-to-rtl`, MIT): `NAME_prompt.txt` and `NAME_ref.sv`, whose module
  is `RefModule`.
* RTLLM (hkust-zhiyao/RTLLM, MIT): in each folder `design_description.txt` and `verified_*.v`.

A golden design is read as any other, and proved equal to itself: one whose registers no reset sets, whose outputs may
be x, or that has a second clock, is not. `left_out` says which are not played, and why.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from pathlib import Path

from pettingllms_envs.environments.verilog.designs import Design
from pettingllms_envs.graders.designs import TOP, ports, prove, renamed, tops


logger = logging.getLogger(__name__)
_SETTINGS = re.compile(r"^`(?:timescale|default_nettype)\b.*$", re.M)


@lru_cache(maxsize=8)
def problems(folder: str) -> tuple[Design, ...]:
    """The designs of a folder that can be played, by name.

    Raises:
        ValueError: There is none.
    """
    found = [design for design, why in _all(folder) if not why]
    if left := len(_all(folder)) - len(found):
        logger.warning("%s: %d of %d designs are not played.", folder, left, len(_all(folder)))
    if not found:
        raise ValueError(f"{folder!r} has no designs that can be played; expected the files of VerilogEval or RTLLM.")
    return tuple(found)


def left_out(folder: str) -> dict[str, str]:
    """The designs of a folder that cannot be played, and why."""
    return {design.structure: why for design, why in _all(folder) if why}


@lru_cache(maxsize=8)
def _all(folder: str) -> tuple[tuple[Design, str], ...]:
    pairs = [
        (each, each.with_name(each.name.replace("_prompt.txt", "_ref.sv")))
        for each in Path(folder).rglob("*_prompt.txt")
    ]
    for each in Path(folder).rglob("design_description.txt"):
        pairs += [(each, golden) for golden in sorted(each.parent.glob("verified_*.v"))[:1]]
    return tuple(_read(text, golden) for text, golden in sorted(pairs) if golden.is_file())


def _read(text: Path, golden: Path) -> tuple[Design, str]:
    """A design, and why it cannot be played."""
    name = text.name.removesuffix("_prompt.txt") if text.name != "design_description.txt" else text.parent.name
    asked, source = (each.read_text(encoding="utf-8", errors="replace") for each in (text, golden))
    source = _SETTINGS.sub("", source)
    found = tops(source)
    if len(found) != 1:
        return Design("", asked, (), source, "", name), "it has no top module, or several"
    asked, source = renamed(asked, found[0].removeprefix("verified_"), TOP), renamed(source, found[0], TOP)
    design = Design("", asked, ports(source), source, "", name)
    proved = prove(source, source + "\n", clocked=design.clocked)
    return design, "" if proved.equal else proved.reason or f"it is {proved.verdict} from itself"
