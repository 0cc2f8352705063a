"""Writes the page: a run's summary, an index of its episodes, and the episodes in chunks that are unpacked on demand.

Each is gzipped JSON in base64, so that nothing that a model wrote is part of the page's source. The images of prompts
are blocks of their own, each once, which are shown when an episode with them is looked at.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.media import read_image
from pettingllms_envs.episodes.outputs import write_output
from pettingllms_envs.episodes.prompts import digests_of
from pettingllms_envs.evaluation import data_label
from pettingllms_envs.page.boards import Boards
from pettingllms_envs.page.learning import FILE, learned, read_log
from pettingllms_envs.page.read import INDEX, episode_of, index_of
from pettingllms_envs.page.summary import summary


PIECE = 20  # episodes that are unpacked together
LIBRARIES = ("vendor/htm-preact.js", "vendor/d3.js", "vendor/plot.js", "vendor/diff.js")
SCRIPTS = (*LIBRARIES, "data.js", "filters.js", "summary.js", "tree.js", "design.js", "episode.js", "app.js")
_MARK = re.compile("@(?:title|style|data|scripts)@")


def build(run: Path, output: Path | None = None) -> Path:
    """Write the page of a run.

    Args:
        output: The file to write; None is `page.html` in the run's folder.
    """
    output = run / "page.html" if output is None else output
    write_output(output, page(run))
    return output


def page(run: Path) -> str:
    """The page of a run, as text; see `build`."""
    header = data_label.labelled(files.read_header(run))
    boards = Boards(header)
    systems: dict[str, int] = {}
    columns: list[list[Any]] = [[] for _ in INDEX]
    blocks: list[str] = []
    piece: list[dict[str, Any]] = []
    num_candidates = 0
    digests: dict[str, None] = {}
    for row in files.read(run):
        for column, value in zip(columns, index_of(row), strict=True):
            column.append(value)
        episode = episode_of(row, boards.of(row), systems, boards.limits(row))
        digests |= dict.fromkeys(digest for step in row["steps"] for digest in digests_of(step))
        num_candidates = max(num_candidates, *(len(step["candidates"]) for step in episode["steps"]), 0)
        piece.append(episode)
        if len(piece) == PIECE:
            blocks.append(_block(f"piece-{len(blocks)}", piece))
            piece = []
    if piece:
        blocks.append(_block(f"piece-{len(blocks)}", piece))
    if not blocks:
        raise ValueError(f"{run} has no episode yet; expected at least one. Wait for it, or name another run.")
    table = dict(zip(INDEX, columns, strict=True))
    of_run, has_candidates = summary(header, table, num_candidates), num_candidates > 1
    about = {
        **of_run,
        "learned": learned(read_log(run.parent / FILE), table, of_run["agents"], is_tree=has_candidates)
        if header["kind"] == "rollouts"
        else None,
        "piece_size": PIECE,
        "palette": boards.palette,
        "systems": list(systems),
        "has_candidates": has_candidates,
    }
    blocks += [_block("run", about), _block("index", {"names": INDEX, "columns": columns})]
    blocks += [_png_block(digest, read_image(run, digest)) for digest in digests]
    return _filled(about["title"], blocks)


def _block(name: str, value: Any) -> str:
    packed = gzip.compress(json.dumps(value, separators=(",", ":")).encode("ascii"), mtime=0)
    return f'<script type="text/plain" id="{name}">{base64.b64encode(packed).decode("ascii")}</script>'


def _png_block(digest: str, png: bytes) -> str:
    return f'<script type="text/plain" id="image-{digest}">{base64.b64encode(png).decode("ascii")}</script>'


def _filled(title: str, blocks: list[str]) -> str:
    static = resources.files(__package__) / "static"
    scripts = [f"<script>{(static / name).read_text('utf-8')}</script>" for name in SCRIPTS]
    parts = {
        "@title@": title.replace("&", "&amp;").replace("<", "&lt;"),
        "@style@": (static / "page.css").read_text("utf-8"),
        "@data@": "\n".join(blocks),
        "@scripts@": "\n".join(scripts),
    }
    text = (static / "template.html").read_text("utf-8")
    return _MARK.sub(lambda mark: parts[mark[0]], text)  # at once: marks within a part are text of it
