"""Downloads data files from the Hub at a pinned commit. No loading script is read, and no code is run.

`HF_ENDPOINT`, `HF_HOME`, `HF_HUB_OFFLINE` and `HF_TOKEN` have the same meaning as for `huggingface_hub`, which is
used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

from pettingllms_envs.datasets.files import ENDINGS, stem
from pettingllms_envs.datasets.hub_datasets import SPLIT_NAMES
from pettingllms_envs.installing import needs_extra


_COMMIT = re.compile(r"[0-9a-f]{40}")
_WORD = re.compile("[a-z]+")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a data set at a commit."""

    id: str
    revision: str
    path: str

    @property
    def name(self) -> str:
        return self.path


def local(file: Path | HubFile) -> Path:
    """The path of a file on this machine; one of the Hub is downloaded to `huggingface_hub`'s cache if necessary."""
    if isinstance(file, Path):
        return file
    hub = _library()
    try:
        return Path(hub.hf_hub_download(file.id, file.path, repo_type="dataset", revision=file.revision))
    except _failures(hub) as error:
        raise ValueError(
            f"{file.path} of {file.id} cannot be had ({_short(error)}). {_advice(hub, error, file.id)}"
        ) from error


def pinned(id: str, revision: str | None) -> str:
    """The revision, if it is a commit; else `ValueError`, with what to give instead."""
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    given = "no revision" if revision is None else f"the revision {revision!r}"
    raise ValueError(
        f"{id} has {given}; expected a commit of 40 hex digits, for what is on the Hub may change. Prepare a copy once"
        f" (pettingllms data prepare {id}) and load its folder, or give '{id}@<commit>'."
    )


def commit(id: str, revision: str | None) -> str:
    """The current commit of a branch or tag; without one, of `main`."""
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    hub = _library()
    try:
        found = hub.HfApi().dataset_info(id, revision=revision).sha
    except _failures(hub) as error:
        at = f" at {revision!r}" if revision else ""
        raise ValueError(
            f"{id}{at} cannot be had ({_short(error)}); expected a set of the Hub. {_advice(hub, error, id)}"
        ) from error
    return str(found)


def files(
    id: str, revision: str, patterns: Mapping[str, Sequence[Sequence[str]]], *, within: str = ""
) -> dict[str, tuple[Path | HubFile, ...]]:
    """The data files of a set by split.

    Args:
        patterns: For each split, groups of patterns, of which the first that matches is used; else names decide.
        within: Only files of this name, without the ending, or in a folder of this name; `""` is no limit.
    """
    hub = _library()
    try:
        there = sorted(hub.HfApi().list_repo_files(id, repo_type="dataset", revision=revision))
    except _failures(hub) as error:
        raise ValueError(
            f"the files of {id}@{revision} cannot be listed ({_short(error)}). {_advice(hub, error, id)}"
        ) from error
    data = [path for path in there if path.endswith(ENDINGS) and not path.endswith(("_infos.json", "info.json"))]
    data = [path for path in data if not within or within.lower() in _names(path)]
    grouped = {split: _fitting(data, groups) for split, groups in patterns.items()}
    found = grouped if patterns else _told_apart(data)
    lacking = [split for split, paths in found.items() if not paths]
    if lacking or not found:
        raise ValueError(
            f"{id}@{revision} has no data files{f' {within}' if within else ''} for"
            f" {', '.join(lacking) or 'any split'}; it has {', '.join(there[:20])}. Download the right one,"
            " and give its path and the layout."
        )
    return {split: tuple(HubFile(id, revision, path) for path in paths) for split, paths in found.items()}


def _fitting(paths: Sequence[str], groups: Sequence[Sequence[str]]) -> list[str]:
    found: list[str] = []
    for group in groups:
        fitting = ([path for path in paths if fnmatch(path, pattern)] for pattern in group)
        found += next((some for some in fitting if some), [])
    return found


def _names(path: str) -> list[str]:
    """The folders that a file is in, and its name without the ending, in lower case."""
    *folders, name = path.lower().split("/")
    return [*folders, stem(Path(name))]


def _told_apart(paths: Sequence[str]) -> dict[str, list[str]]:
    """Files by the split in their name; files without one are in train."""
    found: dict[str, list[str]] = {}
    for path in paths:
        words = _WORD.findall(path.rpartition("/")[2].lower())
        split = next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), "train")
        found.setdefault(split, []).append(path)
    return found


def _failures(hub: ModuleType) -> tuple[type[Exception], ...]:
    """Errors that the library raises for a failed request: no connection, no such set or file, an invalid name.

    A lost connection raises an error of the HTTP library that it uses, which is the base of its own errors.
    """
    http = [each for each in hub.errors.HfHubHTTPError.__mro__ if each.__name__ == "HTTPError"]
    return OSError, hub.errors.HfHubHTTPError, hub.errors.HFValidationError, *http


def _advice(hub: ModuleType, error: Exception, id: str) -> str:
    """What to do: another id where the Hub answered, else another machine."""
    if isinstance(error, (hub.errors.HfHubHTTPError, hub.errors.HFValidationError)):
        return "Check the id, or try again later."
    return (
        f"The network failed, not the id. Where there is one, run `pettingllms data prepare {id}`; copy the folder "
        "here, and give it as data."
    )


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _library() -> ModuleType:
    with needs_extra("data", "huggingface_hub", "sets of the Hub"):
        import huggingface_hub
        import huggingface_hub.errors
    return huggingface_hub
