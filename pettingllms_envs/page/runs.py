"""Writes the page of `pettingllms runs`: a table of runs, which environment, model and date filter.

One HTML file; its only script hides the rows that do not match.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources


STYLE = """
body { padding: 1rem 1.5rem; } td { white-space: nowrap; }
td:last-child { white-space: normal; overflow-wrap: anywhere; min-width: 12rem; } .wide { overflow-x: auto; }
form { display: flex; flex-wrap: wrap; gap: .5rem 1rem; margin: 1rem 0; }
"""

FILTERS = (
    ("env", "Environment", "text"),
    ("player", "Model or team", "text"),
    ("since", "Since", "date"),
    ("until", "Until", "date"),
)

SCRIPT = """
const form = document.querySelector("form"), rows = [...document.querySelectorAll("tbody tr")];
const show = () => {
  const asked = Object.fromEntries(new FormData(form));
  const has = (cell, text) => cell.textContent.toLowerCase().includes(text.toLowerCase());
  let shown = 0;
  for (const row of rows) {
    const [env, player, day] = row.cells, date = day.textContent;
    const hidden = !has(env, asked.env) || !has(player, asked.player)
      || (asked.since && !(date >= asked.since)) || (asked.until && !(date && date <= asked.until));
    row.hidden = hidden; shown += !hidden;
  }
  document.querySelector("output").textContent = `${shown} of ${rows.length} runs`;
};
form.addEventListener("input", show); form.addEventListener("submit", event => event.preventDefault()); show();
"""


def page(
    heads: Sequence[str], rows: Sequence[Sequence[str]], faults: Sequence[str], links: Sequence[str] | None = None
) -> str:
    """The page as text.

    Args:
        heads: Of the columns, the first three of which are environment, player and date.
        links: The address of each run's page, for its last column; empty where it has none.
    """
    style = (resources.files(__package__) / "static" / "page.css").read_text("utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    inputs = "".join(f'<label>{label} <input name="{name}" type="{kind}"></label>' for name, label, kind in FILTERS)
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    body = "\n".join(map(_row, rows, [""] * len(rows) if links is None else links))
    broken = "".join(f"<li>{escape(fault)}</li>" for fault in faults)
    below = f"<h2>Cannot be read</h2>\n<ul>{broken}</ul>\n" if faults else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>Runs</title>\n<style>{style}{STYLE}</style>\n</head>\n<body>\n<h1>Runs</h1>\n"
        f"<form>{inputs}<output>{len(rows)} runs</output></form>\n"
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>\n{below}"
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _row(cells: Sequence[str], link: str) -> str:
    texts = [escape(cell) for cell in cells]
    if link:
        texts[-1] = f'<a href="{escape(link)}">{texts[-1]}</a>'
    return f"<tr>{''.join(f'<td>{text}</td>' for text in texts)}</tr>"
