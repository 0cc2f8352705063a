"""Draws docs/tree.svg: an episode's decisions from left to right, at each the group of its candidates.

    PYTHONPATH=.:docs/making python docs/making/drawn_tree.py

The episode is the one that the Python of docs/concepts.md plays, so that text and drawing have the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from running import run_page


DOCS = Path(__file__).parents[1]

WIDTH, GAP, TOP, HEIGHT, STEP, EDGE = 176, 40, 62, 46, 56, 12  # of a group, between two, and of a candidate in it
STYLE = """
  svg { font-family: system-ui, sans-serif; font-size: 13px; --ink: #24292f; --soft: #6e7781; --line: #afb8c1;
        --box: #f6f8fa; --best: #dafbe1; --mark: #1a7f37; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e6edf3; --soft: #8d96a0; --line: #484f58; --box: #21262d; --best: #12361f; --mark: #3fb950; }
  }
  text { fill: var(--ink); } .soft { fill: var(--soft); font-size: 12px; } .title { font-weight: 600; }
  .reply { font-family: ui-monospace, monospace; font-size: 12px; }
  .group { fill: none; stroke: var(--line); stroke-dasharray: 5 4; }
  .one { fill: var(--box); stroke: var(--line); } .best { fill: var(--best); stroke: var(--mark); stroke-width: 2; }
  .way { fill: none; stroke: var(--mark); stroke-width: 2; } .tip { fill: var(--mark); }
""".strip("\n")


def drawing(episode: Any, advantages: Sequence[Sequence[float]]) -> str:
    """The drawing, as SVG that follows the reader's choice of a dark or a light page.

    Args:
        episode: A `pettingllms_trl.Episode` of a tree.
        advantages: Of its decisions, one for each candidate.
    """
    columns = [
        column(number, decision, row)
        for number, (decision, row) in enumerate(zip(episode.decisions, advantages, strict=True))
    ]
    chosen = [decision.chosen for decision in episode.decisions]
    ways = [way(number, place) for number, place in enumerate(chosen[:-1])]
    num = max(len(decision.candidates) for decision in episode.decisions)
    width, height = EDGE + len(columns) * (WIDTH + GAP) - GAP + EDGE, TOP + num * STEP + 2 * EDGE
    title = "A tree: at each decision a group of candidates of one prompt; the best goes on."
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">',
            f"<style>\n{STYLE}\n</style>",
            *columns,
            *ways,
            "</svg>\n",
        ]
    )


def column(number: int, decision: Any, advantages: Sequence[float]) -> str:
    """A group: its agent and turn, and a box for each candidate."""
    left = EDGE + number * (WIDTH + GAP)
    height = len(decision.candidates) * STEP + EDGE
    lines = [
        f'<text class="title" x="{left}" y="20">{decision.agent}, turn {decision.turn + 1}</text>',
        f'<text class="soft" x="{left}" y="38">one prompt, {len(decision.candidates)} candidates</text>',
        f'<rect class="group" x="{left}" y="{TOP - EDGE}" width="{WIDTH}" height="{height}" rx="8"/>',
    ]
    for k, (candidate, advantage) in enumerate(zip(decision.candidates, advantages, strict=True)):
        x, y = left + 8, TOP + k * STEP
        best = "best" if k == decision.chosen else "one"
        numbers = f"reward {candidate.reward:+.2f} ({advantage:+.2f})"
        lines += [
            f'<rect class="{best}" x="{x}" y="{y}" width="{WIDTH - 16}" height="{HEIGHT}" rx="5"/>',
            f'<text class="reply" x="{x + 8}" y="{y + 19}">{escape(candidate.completion.text)}</text>',
            f'<text class="soft" x="{x + 8}" y="{y + 36}">{numbers}</text>',
        ]
    return "\n".join(lines)


def way(number: int, chosen: int) -> str:
    """From the candidate that was played on to the next group."""
    start, end = EDGE + number * (WIDTH + GAP) + WIDTH - 8, EDGE + (number + 1) * (WIDTH + GAP)
    y, middle = TOP + chosen * STEP + HEIGHT // 2, (start + end) // 2
    to = TOP + HEIGHT // 2
    return (
        f'<path class="way" d="M{start} {y} C{middle} {y} {middle} {to} {end - 7} {to}"/>'
        f'<path class="tip" d="M{end} {to} l-8 -5 v10 z"/>'
    )


def main() -> None:
    """Write the file."""
    page = (DOCS / "concepts.md").read_text(encoding="utf-8")
    with ExitStack() as closing:
        namespace = run_page("docs/concepts.md", page, closing=closing)
    text = drawing(namespace["episode"], namespace["advantages"])
    (DOCS / "tree.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
