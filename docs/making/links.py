"""Links between files of the repository, as links between pages of the site.

Pages are written to be read in the repository, too: `[router.py](../pettingllms_trl/engines/router.py)` is a file
there. The site has such files below `source/`, Markdown as it is, everything else as a page that quotes it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator


FENCE = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1`*$", re.M | re.S)
LINK = re.compile(r"(?<=\]\()([^)\s#]+)((?:#[^)\s]*)?)(?=\))")
PICTURES = (".png", ".svg", ".gif")


def targets(text: str, place: str) -> Iterator[str]:
    """Files of the repository that a text links to, by their path from its root.

    Args:
        text: Markdown.
        place: Path of its file from the root, such as `"docs/generation.md"`.
    """
    for part, quoted in _parts(text):
        if not quoted:
            for found in LINK.finditer(part):
                if not _elsewhere(found[1]):
                    yield _from_root(found[1], place)


def rewritten(text: str, place: str) -> str:
    """The text with its links as they are on the site."""
    here = posixpath.dirname(on_site(place))

    def moved(found: re.Match[str]) -> str:
        if _elsewhere(found[1]):
            return found[0]
        return posixpath.relpath(on_site(_from_root(found[1], place)), here or ".") + found[2]

    return "".join(part if quoted else LINK.sub(moved, part) for part, quoted in _parts(text))


def on_site(path: str) -> str:
    """Where a file of the repository is among the site's sources: `docs/` is its root."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}" if path.endswith((".md", *PICTURES)) else f"source/{path}.md"


def quoting(path: str, text: str) -> str:
    """The page that quotes a file which is no Markdown. The search of the site leaves it out."""
    language = {"py": "python", "yaml": "yaml", "toml": "toml"}.get(path.rpartition(".")[2], "text")
    fence = "`" * (max((len(run) for run in re.findall(r"`{3,}", text)), default=2) + 1)
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def folder(path: str, names: list[str]) -> str:
    """The page that lists a folder's files."""
    return f"# {path}\n\n" + "".join(f"* `{name}`\n" for name in names)


def closure(pages: dict[str, str], read: Callable[[str], str | None]) -> dict[str, str]:
    """Files outside of `docs/` that pages link to, directly or through Markdown among them, with their texts.

    Args:
        pages: Texts by their paths from the root.
        read: The text of a path, or None for a file that is to be copied as it is, such as a picture.
    """
    found: dict[str, str] = {}
    waiting = list(pages.items())
    while waiting:
        place, text = waiting.pop()
        for target in targets(text, place):
            if not target.startswith("docs/") and target not in found and (said := read(target)) is not None:
                found[target] = said
                if target.endswith(".md"):
                    waiting.append((target, said))
    return found


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """The text in pieces, and whether each is a fenced block, in which nothing is a link."""
    end = 0
    for block in FENCE.finditer(text):
        yield text[end : block.start()], False
        yield block[0], True
        end = block.end()
    yield text[end:], False


def _elsewhere(link: str) -> bool:
    return bool(re.match(r"[a-z]+:", link))


def _from_root(link: str, place: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(place), link))
