"""Writes and reads the files of a run; docs/records.md explains every field.

    run.json         what was run, with which versions, on which machine (`header`)
    episodes.jsonl   one line per episode: each prompt, reply, reward and state (`pettingllms_envs.episodes.episode`)
    report.json      the numbers (`pettingllms_envs.evaluation.metrics`)

A row is plain JSON data. Everything that would differ in a second run (clocks, retries) is under a key `timing`, on
the row and on its steps, and nowhere else: `digest` covers all the rest.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, BinaryIO

from pettingllms_envs.episodes.origin import origin
from pettingllms_envs.registry import recorded_settings


FORMAT = 1
"""Increased when a field changes its meaning or is removed, but not when one is added."""

RUN, EPISODES, REPORT = "run.json", "episodes.jsonl", "report.json"

JsonObject = Mapping[str, Any]

NOT_REPLAYED = ("timing", "reading")
"""Fields of a step that are no part of what a replay must reproduce."""

STARTED = ("mcp",)
"""Tools whose settings name a program that they start, or a server that they ask."""

MOST_JSON, MOST_LINE = 16 * 2**20, 64 * 2**20
"""Bytes of a JSON file, and of a line of rows, that are read. A run may be somebody else's."""
MOST_NUMBER, MOST_DIGITS = 1e100, 100
"""What numbers of a record are below, for squares of them are summed, and digits of which all are."""

MOST_SHOWN = 200
"""Characters of an unreadable reply that a report shows."""

MOST_NAMED = 20
"""Most runs that an error message lists."""

ANY_INSTANCE = frozenset(
    {
        *("workflow", "num_turns", "max_cycles", "alpha", "executor", "render_mode"),
        *("role_tools", "tool_calls", "max_tool_calls", "view", "strict_format"),
    }
)
"""Settings that do not change the problems: a seed is the same problem with any of them."""


def digest(row: JsonObject) -> str:
    """SHA-256, 64 hex digits, of all that a replay must reproduce: the row without `digest` and `NOT_REPLAYED`."""
    plain = {key: value for key, value in row.items() if key not in ("digest", "timing")}
    of_steps = [{key: value for key, value in step.items() if key not in NOT_REPLAYED} for step in row["steps"]]
    plain["steps"] = of_steps
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def place(row: JsonObject) -> tuple[int, int]:
    """Index of the row's instance in its run, and number of the sample: they identify the row in its run."""
    return row["instance"]["index"], row["sample"]


def distinct(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last row of each episode: a file that was copied together, or edited, may have an episode twice."""
    return list({place(row): row for row in rows}.values())


def problem(row: JsonObject) -> str:
    """A key that identifies a problem in and between runs: its id in the data set, else seed and options."""
    instance = row["instance"]
    if instance["problem"] is not None:
        return f"{instance['env']} {instance['problem']}"
    return f"{instance['env']} {instance['seed']} {json.dumps(instance['options'], sort_keys=True)}"


def remade(
    header: JsonObject, row: JsonObject, other: JsonObject = MappingProxyType({}), trusted: str | None = None
) -> tuple[str, dict[str, Any]]:
    """The name and settings with which `pettingllms_envs.make` makes the environment of a row again.

    Args:
        other: Settings that replace the record's.
        trusted: An environment of a file that may be run, if the record names it.

    Raises:
        ValueError: A program would be started, see `check_starts_nothing`.
    """
    config = header["config"]
    of_name = (config.get("environments") or {}).get((row.get("training") or {}).get("environment"))
    if of_name is not None:  # a training on several environments
        name, settings = of_name["env"], {**of_name["settings"], **other}
    else:
        name = (config.get("env") if header["kind"] == "bench" else None) or row["instance"]["env"]
        settings = {**(config.get("settings") or {}), **other}
    check_starts_nothing(
        {key: value for key, value in settings.items() if key not in other}, "" if name == trusted else name
    )
    return name, recorded_settings(name, settings, trusted=name == trusted)


def check_starts_nothing(settings: Mapping[str, Any], env: str = "") -> None:
    """Raise `ValueError` if a record's environment is of a file, or its settings name a program, or a server.

    A record may be somebody else's. Reading it must not run the commands in it.
    """
    if ":" in env:
        raise ValueError(
            f"the run is one of {env!r}, which would be run or asked; expected another environment in a record, which "
            f"may be somebody else's. If you trust it, name it yourself: pettingllms replay ... --env {env}"
        )
    given = settings.get("role_tools") or ()
    tools = [each for own in given.values() for each in own] if isinstance(given, Mapping) else list(given)
    for tool in tools:
        if isinstance(tool, Mapping) and tool.get("tool") in STARTED:
            raise ValueError(
                f"the run has the tool {dict(tool)!r}, which starts a program or asks a server; expected none in a "
                "record, which may be somebody else's. If you trust it, give it yourself: --set role_tools=..."
            )


def write_line(row: JsonObject) -> str:
    """A row as a line of the file, in ASCII."""
    return json.dumps(row, allow_nan=False) + "\n"


def light(row: JsonObject) -> dict[str, Any]:
    """A row without prompts and replies, which take most of the space; of a reply it keeps whether it was empty,
    and of an unreadable one the end."""
    heavy = ("prompt", "messages", "reply", "reasoning", "candidates")
    steps = [
        {
            **{key: value for key, value in step.items() if key not in heavy},
            "is_empty": is_empty(step),
            **({"ending": ending_of(step)} if str(step.get("reading")).startswith("unreadable") else {}),
        }
        for step in row["steps"]
    ]
    return {**row, "steps": steps}


def ending_of(step: Mapping[str, Any]) -> str:
    """The end of an unreadable reply, where its move was to stand; also works for a step of a light row."""
    return str(step["ending"]) if "ending" in step else str(step.get("reply", ""))[-MOST_SHOWN:]


def is_empty(step: Mapping[str, Any]) -> bool:
    """Whether a reply had no text; also works for a step of a light row."""
    return bool(step["is_empty"]) if "is_empty" in step else not step["reply"].strip()


def find_run(path: Path) -> Path:
    """The folder of a run: that of an `episodes.jsonl`, the folder itself, or the only run one level below it.

    Where there is none, it is the path itself. A training writes its rollouts to `OUTPUT_DIR/rollouts`, so the output
    folder of a training names them as well.

    Raises:
        ValueError: There are several runs below it.
    """
    if path.suffix == ".jsonl":
        return path.parent
    if (path / RUN).exists():
        return path
    found = sorted(file.parent for file in path.glob(f"*/{RUN}"))
    if len(found) > 1:
        names = ", ".join(each.name for each in found[:MOST_NAMED])
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        raise ValueError(f"{path} has {len(found)} runs: {names}{more}; expected one. Name one, such as {found[0]}.")
    return found[0] if found else path


def read(file: Path, *, whole: bool = True) -> list[dict[str, Any]]:
    """The rows of a `.jsonl` file, or of the `episodes.jsonl` of a run's folder, which `find_run` finds.

    An incomplete last line, left by a killed run, is ignored.

    Args:
        whole: Whether to return whole rows; otherwise they are `light`.

    Raises:
        ValueError: A line is not a row, or has a format that this version does not know.
    """
    return [row if whole else light(row) for row in stream(file)]


def stream(file: Path) -> Iterator[dict[str, Any]]:
    """Iterate over the rows of a file, with only one of them in memory.

    Raises:
        ValueError, OSError: As for `read`, when the line is reached.
    """
    return (row for row, _, _ in _rows(file if file.suffix == ".jsonl" else find_run(file) / EPISODES))


def tidy(file: Path, *, keep: Callable[[JsonObject], bool] = lambda row: True) -> list[dict[str, Any]]:
    """Sort the lines of a file by instance and sample, keep only the last one of each episode, and return them, light.

    The file may be larger than the memory.
    """
    found = {place(row): (light(row), offset, size) for row, offset, size in _rows(file) if keep(row)}
    order = [found[key] for key in sorted(found)]
    with opened(file) as stream, replacing(file) as new:
        for _, offset, size in order:
            stream.seek(offset)
            new.write(stream.read(size).removesuffix(b"\n") + b"\n")  # the last may have none
    return [row for row, _, _ in order]


def _schema() -> Any:
    from pettingllms_envs.episodes import schema  # a training, which only writes, does without

    return schema


def read_header(file: Path) -> dict[str, Any]:
    """The `run.json` of a run, given its folder, its `episodes.jsonl`, or the folder above it; see `find_run`."""
    file = find_run(file) / RUN
    header: dict[str, Any] = _json(file)
    if isinstance(header, dict) and "format" in header:
        _check_format(header, str(file))
    if (fault := _schema().of_run(header)) is not None:
        raise ValueError(f"{file} is no {RUN} of a run ({fault}); expected what docs/records.md says. Name another.")
    return header


def read_report(file: Path) -> dict[str, Any] | None:
    """The `report.json` of a run, as `read_header` finds it; None where there is none: it has not come to its end."""
    file = find_run(file) / REPORT
    if not file.exists():
        return None
    report: dict[str, Any] = _json(file)
    if (fault := _schema().of_report(report)) is not None:
        raise ValueError(f"{file} is no {REPORT} of a run ({fault}); expected what docs/records.md says. Remove it.")
    return report


def opened(file: Path) -> BinaryIO:
    """Open a file of a run's folder for reading.

    Raises:
        ValueError: It is no regular file, such as a pipe, or a link out of its folder.
    """
    if file.is_symlink() and not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(file.parent)):
        raise ValueError(f"{file} is a link out of its folder; expected a file of the run. Copy what it points to.")
    more = getattr(os, "O_NONBLOCK", 0)  # which does not wait for who writes into a pipe
    stream = open(file, "rb", opener=lambda path, flags: os.open(path, flags | more))  # noqa: SIM115  # the caller closes
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise ValueError(f"{file} is no regular file; expected one of a run. Name another folder.")
    return stream


def read_json_text(file: Path, encoding: str = "ascii", most: int | None = None) -> str:
    """The text of a JSON file of a run.

    Raises:
        ValueError: It has more than `most` bytes (`MOST_JSON`), another encoding, or see `opened`.
    """
    most = MOST_JSON if most is None else most
    with opened(file) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{file} has more than {most} bytes; expected the {file.name} of a run. Name another.")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is no JSON in {encoding} ({error}); expected the {file.name} of a run.") from None


def lines(file: Path) -> Iterator[bytes]:
    """The lines of a file of a run, such as one of rows.

    Raises:
        ValueError: One has more than `MOST_LINE` bytes, or see `opened`.
    """
    with opened(file) as stream:
        for number, line in enumerate(iter(lambda: stream.readline(MOST_LINE + 1), b""), 1):
            if len(line) > MOST_LINE:
                raise ValueError(
                    f"{file}, line {number} has more than {MOST_LINE} bytes; expected less. Remove the line."
                )
            yield line


@contextmanager
def replacing(file: Path) -> Iterator[IO[bytes]]:
    """A stream for the new content of a file: a kill or an error leaves the old file whole. A link is replaced.

    It is written beside the file under a name that nobody else has, so that no other file or link is touched.
    """
    other = file.with_name(f".{file.name}.{os.urandom(8).hex()}.new")
    try:
        with open(other, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        other.replace(file)
    finally:
        other.unlink(missing_ok=True)


def write_whole(file: Path, content: str | bytes) -> None:
    """Write a file by `replacing`."""
    with replacing(file) as stream:
        stream.write(content.encode("utf-8") if isinstance(content, str) else content)


def write_rows(file: Path, rows: Iterable[JsonObject]) -> None:
    """Write rows, sorted by instance and sample, atomically."""
    write_whole(file, "".join(map(write_line, sorted(rows, key=place))))


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Write a header or a report atomically."""
    write_whole(file, json.dumps(value, indent=2, allow_nan=False) + "\n")


def header(
    kind: str,
    config: Mapping[str, Any],
    versions: Mapping[str, str],
    sandbox: Mapping[str, Any] | None = None,
    *,
    data: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The content of `run.json`.

    Args:
        kind: What made the rows: `"bench"` or another word.
        config: Everything that determines the rows, as plain JSON data.
        versions: Versions of further libraries, those of the agents.
        sandbox: How programs are isolated, as in `sandbox.describe()`, if the environment runs any.
        data: The label of the data, see `evaluation.data_label`; None without a data set.
    """
    return {
        "format": FORMAT,
        "kind": kind,
        "config": dict(config),
        "data": None if data is None else dict(data),
        "versions": {**_versions(), **versions},
        "sandbox": None if sandbox is None else dict(sandbox),
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        },
        **origin(),
    }


def _json(file: Path) -> Any:
    text = read_json_text(file)
    try:
        return _loads(text)
    except (ValueError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{file} is not JSON ({error}); expected the {file.name} of a run. Name another folder."
        ) from None


def _loads(text: str | bytes) -> Any:
    """What JSON says; `OverflowError` for a number of which no mean or date can be made."""
    return json.loads(text, parse_constant=_finite, parse_float=_finite, parse_int=_whole)


def _finite(digits: str) -> float:
    if not abs(value := float(digits)) < MOST_NUMBER:
        raise OverflowError(f"{digits:.20} is no number below {MOST_NUMBER:g}")
    return value


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        _finite(digits)
    return int(digits)


def _rows(file: Path) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Each row with the offset of its line and the line's length in bytes."""
    offset = 0
    for number, line in enumerate(lines(file), 1):
        where = f"{file}, line {number}"
        row: Any = None
        fault = None
        try:
            row = _loads(line)
        except OverflowError as error:
            fault = str(error)
        except (ValueError, RecursionError):
            if not line.endswith(b"\n"):
                return
            fault = "it is not JSON"
        if isinstance(row, dict) and "format" in row:
            _check_format(row, where)
        if (fault := fault or _schema().of_row(row)) is not None:
            raise ValueError(
                f"{where} is no episode ({fault}); expected rows as docs/records.md has them. Name a file that "
                "`pettingllms bench` wrote, or remove the line."
            )
        _check_format(row, where)
        yield row, offset, len(line)
        offset += len(line)


def _check_format(value: Mapping[str, Any], where: str) -> None:
    if value.get("format") != FORMAT:
        raise ValueError(
            f"{where} has the format {value.get('format')!r}; expected {FORMAT}. Read it with the version of "
            "pettingllms that wrote it."
        )


def _versions() -> dict[str, str]:
    named = ("pettingllms", "pettingzoo", "gymnasium", "numpy")
    return {"python": platform.python_version(), **{name: version(name) for name in named}, "source": source_digest()}


def version(name: str = "pettingllms") -> str:
    """The installed version of a package."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


@cache
def source_digest() -> str:
    """SHA-256 of this package's own Python files, 16 hex digits, which identifies the state of the code."""
    whole = hashlib.sha256()
    root = Path(str(resources.files("pettingllms_envs")))
    for file in sorted(root.rglob("*.py"), key=Path.as_posix):
        whole.update(f"{file.relative_to(root).as_posix()}\0".encode() + file.read_bytes())
    return whole.hexdigest()[:16]
