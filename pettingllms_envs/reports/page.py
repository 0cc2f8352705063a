"""A report as one HTML page, with the pictures in it; nothing on it loads from elsewhere."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from pettingllms_envs.reports.blocks import Block, Bold, Heading, Items, Paragraph, Table


STYLE = """
:root { color-scheme: light dark; }
body { margin: 2rem auto; max-width: 75rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0; }
th, td { padding: 3px 14px 3px 0; border-bottom: 1px solid #8884; text-align: right; white-space: nowrap; }
th:first-child, td:first-child, .left { text-align: left; }
figure { margin: 1rem 0; background: #fff; color: #222; max-width: 50rem; padding: .5rem; border-radius: 6px; }
figure svg { width: 100%; height: auto; } figcaption { font-size: 13px; padding: 0 .5rem; }
"""


def page(report: Sequence[Block], pictures: Mapping[str, str]) -> str:
    """The page of a report, with its pictures, SVG by name."""
    title = next(block.text for block in report if isinstance(block, Heading))
    body = "\n".join(_html(block, pictures) for block in report)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{STYLE}</style>\n{body}\n</html>\n'
    )


def _html(block: Block, pictures: Mapping[str, str]) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{html.escape(block.text)}</h{block.level}>"
    if isinstance(block, Paragraph):
        return f"<p>{html.escape(block.text)}</p>"
    if isinstance(block, Items):
        return f"<ul>{''.join(f'<li>{html.escape(text)}</li>' for text in block.texts)}</ul>"
    if isinstance(block, Table):
        head = _row(block.head, block.left, "th")
        rows = "\n".join(_row(row, block.left, "td") for row in block.rows)
        return f'<div class="wide" tabindex="0"><table>\n{head}\n{rows}\n</table></div>'
    svg = pictures[block.name]
    return f"<figure>{svg[svg.index('<svg') :]}<figcaption>{block.caption}</figcaption></figure>"


def _row(cells: Sequence[str], left: Sequence[int], tag: str) -> str:
    own = [f'{tag} class="left"' if i in left else tag for i in range(len(cells))]
    made = [f"<{opening}>{_cell(cell)}</{tag}>" for opening, cell in zip(own, cells, strict=True)]
    return f"<tr>{''.join(made)}</tr>"


def _cell(text: str) -> str:
    return f"<strong>{html.escape(text)}</strong>" if isinstance(text, Bold) else html.escape(text)
