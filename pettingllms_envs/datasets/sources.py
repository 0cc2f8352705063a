"""Resolves the data that a user names: this package's rows, a file, a prepared folder, or a data set of the Hub.

Splits never share a statement. A set's own train, validation and test splits are kept. Missing splits are taken from
its train rows, by the words of the statement (80/10/10): APPS, with a test split, gives a tenth of its train rows to
validation; a set with only train rows gives a tenth to each. All rows of a benchmark are test rows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pettingllms_envs.core import SPLITS
from pettingllms_envs.datasets import hub, prepared
from pettingllms_envs.datasets.columns import LAYOUTS, Layout, find_layout
from pettingllms_envs.datasets.files import ENDINGS, stem
from pettingllms_envs.datasets.hub import HubFile
from pettingllms_envs.datasets.hub_datasets import KNOWN, KnownSet, by_file_name, known_sets, split_in
from pettingllms_envs.datasets.rows import DataRow


ENVIRONMENTS = Path(__file__).parents[1] / "environments"
"""Each has, in `data`, the rows that this package ships, in files named as in `hub_datasets.KnownSet.stem`."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?::[\w.-]+)?(?:@[\w./-]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Rows of one layout, by split.

    Args:
        name: The user's name of the data, without a revision.
        files: The files of each split that the set itself has; a file without a split in its name is train.
        shares: For each available split, the split of `files` from which it is taken, and which shares (by statement)
            of that split it gets; an empty set is all of them.
        revision: The Hub's commit, 40 hex digits; `""` for other sources.
        digests: SHA-256 of local files that were published or prepared.
    """

    name: str
    layout: Layout
    files: Mapping[str, tuple[Path | HubFile, ...]]
    shares: Mapping[str, tuple[str, frozenset[str]]]
    revision: str = ""
    gaps: DataRow = field(default_factory=dict)
    digests: Mapping[Path, str] = field(default_factory=dict)


def find_source(data: str | Path, *, layout: str | Layout | None = None, revision: str | None = None) -> Source:
    """The source of the data that a user names; the arguments are those of `load`."""
    text = str(data)
    if text.startswith("own:"):
        return _own(text, layout)
    path = Path(data).expanduser()
    if isinstance(data, Path) or path.exists():
        if revision is not None:
            raise ValueError(
                f"{path} is a file, and revision is {revision!r}; expected one for a set of the Hub only."
            )
        return _folder(path, layout) if path.is_dir() else _file(path, layout)
    if not is_on_hub(text):
        raise ValueError(
            f"no data {text!r}; expected a file ({', '.join(ENDINGS)}), a folder of `pettingllms data prepare`,"
            " 'own:LAYOUT' or the id of a set of the Hub. `pettingllms data list` shows what is known."
        )
    return _hub(text, layout, revision)


def shares(there: Sequence[str], of_set: Sequence[str], *, benchmark: bool) -> dict[str, tuple[str, frozenset[str]]]:
    """The available splits, and the rows from which each is taken.

    Args:
        of_set: The splits of the whole set, some of which may not be available.
    """
    if benchmark and len(there) == 1:
        return {"test": (there[0], frozenset())}
    offer = {split: (split, frozenset[str]()) for split in there}
    if "train" in there:
        lacking = frozenset(SPLITS) - set(of_set) - set(there)
        offer.update({split: ("train", frozenset({split})) for split in lacking})
        offer["train"] = ("train", frozenset(SPLITS) - lacking if lacking else frozenset())
    return {split: offer[split] for split in SPLITS if split in offer}


def own_sets() -> list[KnownSet]:
    """The known sets for which this package ships its own rows, in their columns."""
    return [known for known in KNOWN if _own_files(known)]


def is_on_hub(data: str) -> bool:
    """Whether a name is that of a data set of the Hub, and not of a file on this machine."""
    local = data.startswith("own:") or data.endswith(ENDINGS) or Path(data).expanduser().exists()
    return not local and _HUB_ID.fullmatch(data) is not None


def _own(text: str, layout: str | Layout | None) -> Source:
    name = text.removeprefix("own:")
    kind = find_layout(layout).name if layout is not None else ""
    sets = [known for known in KNOWN if name in (known.layout, known.id, f"{known.id}:{known.config}", known.stem)]
    there = [known for known in sets if kind in ("", known.layout) and _own_files(known)]
    if not there:
        have = sorted({known.layout for known in own_sets()})
        raise ValueError(
            f"no rows of our own for {text!r}; expected one of {', '.join(f'own:{each}' for each in have) or 'none'}."
        )
    known = there[0]
    files = _own_files(known)
    chosen = find_layout(known.layout)
    offer = shares(tuple(files), tuple(files), benchmark=chosen.benchmark)
    return Source(
        name=f"own:{known.stem}",
        layout=chosen,
        files=files,
        shares=offer,
        gaps=known.gaps,
        digests={file: found for each in files.values() for file in each if (found := _published_digest(file))},
    )


def _own_files(known: KnownSet) -> dict[str, tuple[Path, ...]]:
    found: dict[str, tuple[Path, ...]] = {}
    for path in sorted(ENVIRONMENTS.glob(f"*/data/{known.stem}__*.jsonl")):
        ending = stem(path).removeprefix(f"{known.stem}__")
        if split := split_in(ending):
            found[split] = (path,)
    return found


def _published_digest(file: Path) -> str:
    """What SHA256SUMS beside a file says of it; empty if nothing."""
    sums = file.with_name("SHA256SUMS")
    lines = [line.split() for line in sums.read_text("ascii").splitlines()] if sums.is_file() else []
    return next((digest for digest, name in lines if name == file.name), "")


def _file(path: Path, layout: str | Layout | None) -> Source:
    if not path.name.endswith(ENDINGS):
        raise ValueError(f"{path} ends otherwise; expected {', '.join(ENDINGS)}. Convert it, or name another file.")
    named = by_file_name(stem(path))
    if layout is None and named is None:
        raise ValueError(
            f"{path} does not say whose columns it has; expected a name such as codeparrot__apps__train.jsonl, or a"
            f" layout. Give layout=, one of {', '.join(map(repr, LAYOUTS))}."
        )
    known, split = named if named else (None, split_in(stem(path)))
    kind = find_layout(layout or (known.layout if known else ""))
    here = split or "train"
    of_set = tuple(known.files) if known else ((split,) if split else ())
    offer = shares((here,), of_set, benchmark=kind.benchmark)
    return Source(name=str(path), layout=kind, files={here: (path,)}, shares=offer, gaps=known.gaps if known else {})


def _folder(path: Path, layout: str | Layout | None) -> Source:
    manifest = prepared.read_manifest(path)
    kind = find_layout(layout if layout is not None else manifest.layout)
    files = {split: (path / part.file,) for split, part in manifest.splits.items()}
    offer = {split: (split, frozenset[str]()) for split in files}
    return Source(
        name=str(path),
        layout=kind,
        files=files,
        shares=offer,
        revision=manifest.revision,
        digests={path / part.file: part.sha256 for part in manifest.splits.values()},
    )


def _hub(text: str, layout: str | Layout | None, revision: str | None) -> Source:
    name, at, tail = text.partition("@")
    id, _, config = name.partition(":")
    if at and revision is not None and revision != tail:
        raise ValueError(f"{text} and revision={revision!r}; expected one revision. Leave one of them out.")
    pinned = hub.pinned(id, tail if at else revision)
    sets = known_sets(name)
    if not sets and layout is None:
        raise ValueError(
            f"the columns of {name} are unknown; expected a set of `pettingllms data list`, or a layout."
            f" Give layout=, one of {', '.join(map(repr, LAYOUTS))}."
        )
    kind = find_layout(layout if layout is not None else sets[0].layout)
    patterns: dict[str, list[tuple[str, ...]]] = {}
    for known in sets:
        for split, wanted in known.files.items():
            patterns.setdefault(split, []).append(wanted)
    within = config if not any(known.config for known in sets) else ""
    files = hub.files(id, pinned, patterns, within=within)
    offer = shares(tuple(files), tuple(files), benchmark=kind.benchmark)
    gaps = sets[0].gaps if sets else {}
    return Source(name=name, layout=kind, files=files, shares=offer, revision=pinned, gaps=gaps)


def verify(source: Source, path: Path) -> None:
    """Raise `ValueError` if a file has another digest than it was published or prepared with."""
    expected = source.digests.get(path)
    if expected is not None and digest(path) != expected:
        raise ValueError(f"{path} was changed; expected the SHA-256 {expected}. Prepare or install it again.")


def digest(path: Path) -> str:
    """The SHA-256 of a file, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
