"""What MkDocs calls while it builds the site: pages of environments, pages of quoted files, and links between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import environment_page
import links
from pettingllms_envs import installing


ROOT = Path(__file__).parents[2]


def on_config(config: Any) -> Any:
    """The navigation's section "Environments" ends with a page for each, and the header leads to the repository if it
    has an address."""
    pages = [{entry.name: f"environments/{entry.full_name}.md"} for entry in environment_page.own_entries()]
    for section in config.nav:
        if "Environments" in section:
            section["Environments"].append({"Each environment": pages})
    if installing.is_published():
        config.repo_url = installing.REPOSITORY
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are made."""
    files.append(File.generated(config, "environments/index.md", content=environment_page.index()))
    for entry in environment_page.own_entries():
        picture = environment_page.board(entry)
        address = f"{entry.full_name}.png" if picture else ""
        page = environment_page.page(entry, board=address)
        files.append(File.generated(config, f"environments/{entry.full_name}.md", content=page))
        if picture:
            files.append(File.generated(config, f"environments/{address}", content=picture))
    written = {
        f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages() if not file.generated_by
    }
    for path, text in links.closure(written, _read).items():
        content = text if path.endswith(".md") else links.quoting(path, text)
        files.append(File.generated(config, links.on_site(path), content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links as they are on the site; those of generated environment pages are so already."""
    place = page.file.src_uri
    if place.startswith("environments/"):
        return markdown
    return links.rewritten(markdown, place.removeprefix("source/") if place.startswith("source/") else f"docs/{place}")


def _read(path: str) -> str | None:
    file = ROOT / path
    if file.is_dir():
        return links.folder(path, sorted(each.name for each in file.iterdir() if not each.name.startswith(("_", "."))))
    return file.read_text(encoding="utf-8") if file.suffix not in links.PICTURES and file.is_file() else None
