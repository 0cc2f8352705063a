"""Writes the page of `pettingllms cooperation`: the arms with intervals beside the bound, and what they say.

One HTML file without scripts, drawn from `cooperation.json` alone. The episodes of an arm have a page of their own, by
`pettingllms view` of its folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from pettingllms_envs.episodes.files import read_json_text
from pettingllms_envs.episodes.outputs import write_output
from pettingllms_envs.evaluation.tables import percent


NUMBERS, PAGE = "cooperation.json", "cooperation.html"
FORMAT = 1
"""Of the numbers."""

WIDTH, LEFT, RIGHT, ROW, TOP = 640, 170, 20, 28, 16
"""Of the drawing, in pixels: its width, margins at the sides, the height of an arm and of the margin above."""


def build(folder: Path, output: Path | None = None) -> Path:
    """Write the page from the folder's `cooperation.json`.

    Args:
        output: The file to write; None is `cooperation.html` in the folder.
    """
    file = folder / NUMBERS
    again = "Give the command of the benchmark again, with this version."
    try:
        numbers = json.loads(read_json_text(file, "utf-8"))
        if numbers["format"] != FORMAT:
            raise ValueError(f"{file} has the format {numbers['format']!r}; expected {FORMAT}. {again}")
        text = page(numbers)
    except (json.JSONDecodeError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is damaged ({error!r}); expected what docs/records.md says. {again}") from error
    output = folder / PAGE if output is None else output
    write_output(output, text)
    return output


def page(numbers: Mapping[str, Any]) -> str:
    """The page as text, from the content of `cooperation.json`."""
    style = (resources.files(__package__) / "static" / "page.css").read_text("utf-8")
    title = escape(f"{numbers['env']}: what cooperation is worth")
    said = "".join(f"<p>{escape(line)}</p>" for line in numbers["sentences"])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{title}</title>\n<style>{style}\nbody {{ padding: 1rem 1.5rem; max-width: 60rem; }}</style>\n"
        f"</head>\n<body>\n<h1>{title}</h1>\n{said}\n<h2>Success, with 95% intervals</h2>\n{_drawing(numbers)}\n"
        f"<h2>Arms</h2>\n{_arms(numbers)}\n<h2>Differences, paired by problem</h2>\n{_differences(numbers)}\n"
        "</body>\n</html>\n"
    )


def _drawing(numbers: Mapping[str, Any]) -> str:
    """A dot with its interval for each arm, and the bound as a dashed line."""
    arms = numbers["arms"]
    bottom = TOP + ROW * len(arms)
    marks = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        marks.append(_line(_x(share), TOP, _x(share), bottom, "var(--line)"))
        marks.append(_text(_x(share), bottom + 18, f"{100 * share:.0f}%", "middle"))
    for number, arm in enumerate(arms):
        y = TOP + ROW * number + ROW // 2
        marks.append(_text(LEFT - 12, y + 4, arm["name"], "end"))
        marks.append(_line(_x(arm["low"]), y, _x(arm["high"]), y, "var(--ink)"))
        marks.append(f'<circle cx="{_x(arm["mean"])}" cy="{y}" r="4.5" fill="var(--accent)"/>')
    if bound := _shown_bound(numbers):
        marks.append(_line(_x(bound), 4, _x(bound), bottom, "var(--bad)", ' stroke-dasharray="5 4"'))
        side, anchor = (5, "start") if bound < 0.5 else (-5, "end")
        marks.append(_text(_x(bound) + side, 12, f"bound of an agent alone, {100 * bound:.1f}%", anchor))
    size = f'width="{WIDTH}" height="{bottom + 24}" viewBox="0 0 {WIDTH} {bottom + 24}"'
    label = "; ".join(f"{arm['name']} {percent(arm)}" for arm in arms)
    return f'<svg {size} role="img" aria-label="{escape(label)}" font-size="13">{"".join(marks)}</svg>'


def _arms(numbers: Mapping[str, Any]) -> str:
    heads = ("arm", "success", "best guesser", "tokens generated", "most", "out of tokens", "agents")
    rows = [
        (
            arm["name"],
            percent(arm),
            f"{percent(guesser)}, {guesser['name']}" if (guesser := arm.get("guesser")) else "",
            "not counted" if arm["tokens"] is None else f"{arm['tokens']:,.0f}",
            "" if arm["most_tokens"] is None else f"{arm['most_tokens']:,}",
            str(arm["num_out_of_tokens"]),
            ", ".join(f"{agent}: {_agent(each)}" for agent, each in arm["agents"].items()),
        )
        for arm in numbers["arms"]
    ]
    return _table(heads, rows)


def _differences(numbers: Mapping[str, Any]) -> str:
    rows = [
        (
            each["name"],
            each["of"],
            f"{100 * each['mean']:+.1f} [{100 * each['low']:+.1f}, {100 * each['high']:+.1f}]",
            each["verdict"],
        )
        for each in numbers["differences"]
    ]
    return _table(("", "left - right", "points", "verdict"), rows)


def _shown_bound(numbers: Mapping[str, Any]) -> float | None:
    bound = numbers["bound"]
    return None if bound is None or bound["recomputed"] is None else float(bound["declared"])


def _agent(identity: Mapping[str, Any]) -> str:
    """`"api:model"`, and the adapter if there is one."""
    name = identity["kind"] if identity["target"] is None else f"{identity['kind']}:{identity['target']}"
    return f"{name}, adapter {identity['adapter']}" if identity.get("adapter") else name


def _x(share: float) -> float:
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _line(x1: float, y1: float, x2: float, y2: float, color: str, more: str = "") -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{color}" stroke-width="1.5"{more}/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="var(--ink)">{escape(text)}</text>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
