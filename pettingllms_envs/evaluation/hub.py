"""Uploads a run to the Hub as a data set: its episodes, numbers and page, with a card that describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.media import images_of_run
from pettingllms_envs.episodes.origin import without_paths
from pettingllms_envs.evaluation import data_label
from pettingllms_envs.evaluation.metrics import report
from pettingllms_envs.installing import needs_extra


PAGE = "page.html"
PUSHED = (files.RUN, files.EPISODES, files.REPORT, PAGE)
"""Files that are uploaded if they exist; besides them only the images of the episodes are."""


def push(run: Path, repo: str, *, private: bool = True, api: Any = None) -> str:
    """Upload a run in one commit, and return its address; the repository is created if it does not exist.

    Args:
        repo: Id of a data set on the Hub, `"name/of-it"`.
        private: Whether a new repository is private; an existing one is not changed.
        api: A `huggingface_hub.HfApi`; None is that of the user who is logged in.
    """
    with needs_extra("data", "huggingface_hub", "pushing"):
        from huggingface_hub import CommitOperationAdd, HfApi
        from huggingface_hub.errors import HfHubHTTPError
    header, rows = data_label.labelled(files.read_header(run)), files.read(run)
    if not rows:
        raise ValueError(f"{run} has no episode yet; expected at least one. Wait for it, or name another run.")
    api = HfApi() if api is None else api
    # Which HTTP client it is that raises depends on the version of huggingface_hub.
    unreachable: type[BaseException] = HfHubHTTPError.__mro__[1]
    uploaded = [*pushed_files(run), *images_of_run(run, rows)]
    header = without_paths(header)
    shown = {files.RUN: files.read_header(run), files.REPORT: files.read_report(run)}
    texts = {name: f"{json.dumps(without_paths(value), indent=2)}\n".encode() for name, value in shown.items()}
    added = [
        CommitOperationAdd(path_in_repo=file.relative_to(run).as_posix(), path_or_fileobj=texts.get(file.name, file))
        for file in uploaded
    ]
    text = card(repo, header, report(header, rows))
    added.append(CommitOperationAdd(path_in_repo="README.md", path_or_fileobj=text.encode("utf-8")))
    message = f"{header['config'].get('env')}: {len(rows)} episodes"
    try:
        api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True)
        done = api.create_commit(repo, added, commit_message=message, repo_type="dataset")
    except unreachable as error:
        if isinstance(error, OSError):
            raise
        raise ConnectionError(f"{type(error).__name__}: {error}") from error
    return str(done.commit_url)


def pushed_files(run: Path) -> list[Path]:
    """The regular files of a run, no links, that are uploaded besides the card and the images.

    Where `run.json` names paths of this machine, the page, which shows them, is left out.
    """
    has_paths = bool(paths_named(files.read_header(run)))
    found = [run / name for name in PUSHED if (run / name).is_file() and not (has_paths and name == PAGE)]
    for file in found:
        files.opened(file).close()
    return found


def paths_named(header: Mapping[str, Any]) -> list[str]:
    """Values in a `run.json` that look like absolute paths, which may contain a user name."""
    found: dict[str, None] = {}

    def look(value: Any) -> None:
        if isinstance(value, Mapping):
            for each in value.values():
                look(each)
        elif isinstance(value, list | tuple):
            for each in value:
                look(each)
        elif isinstance(value, str) and without_paths(value) != value:
            found[value] = None

    look([header["config"], header.get("command")])
    return list(found)


def card(repo: str, header: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    """The repository's README, with the Hub's metadata, of a run's `run.json` and `metrics.report`."""
    config = header["config"]
    success, episodes = figures["success"], figures["episodes"]
    lines = [
        "---",
        "pretty_name: " + repo.rpartition("/")[2],
        "tags: [pettingllms, multi-agent, evaluation]",
        "configs:",
        "- config_name: default",
        f"  data_files: {files.EPISODES}",
        "---",
        "",
        f"# {repo}",
        "",
        f"{episodes['ended']} episodes of `{config.get('env')}`, recorded by PettingLLMs"
        f" ({header['kind']}, version {header['versions']['pettingllms']}).",
        "",
    ]
    if note := data_label.note_of(header):
        lines += [f"**The data are {note}.**", ""]
    if success is not None:
        low, high = 100 * success["low"], 100 * success["high"]
        lines += [
            "| | |",
            "|---|---|",
            f"| success | {100 * success['mean']:.1f}%, 95% interval [{low:.1f}, {high:.1f}] ({success['method']}) |",
            f"| problems, episodes | {success['problems']}, {success['episodes']} |",
            f"| without a verdict | {sum(episodes['errors'].values())} errors, {episodes['missing']} missing |",
            "",
        ]
    lines += ["| agent | played by | calls | tokens written |", "|---|---|---|---|"]
    for agent, numbers in figures["agents"].items():
        written = numbers["completion_tokens"]
        lines.append(
            f"| `{agent}` | {_played_by(config, agent)} | {numbers['calls']} | {'' if written is None else written} |"
        )
    lines += ["", "| setting | |", "|---|---|"]
    lines += [f"| {name} | `{value}` |" for name, value in _settings(header).items()]
    return "\n".join(
        [
            *lines,
            "",
            "`run.json` says how it was run, `episodes.jsonl` has every prompt, reply, reward and state digest, a line"
            " an episode, `report.json` the numbers. To look at it, or to play it again without a model:",
            "",
            "```bash",
            f"hf download {repo} --repo-type dataset --local-dir run",
            "pettingllms view run",
            "pettingllms replay run/episodes.jsonl",
            "```",
            "",
        ]
    )


def _played_by(config: Mapping[str, Any], agent: str) -> str:
    about = (config.get("agents") or {}).get(agent) or {}
    kind = about.get("kind") or about.get("policy") or "unknown"
    return f"`{about['model']}` ({kind})" if about.get("model") else kind


def _settings(header: Mapping[str, Any]) -> dict[str, Any]:
    config = header["config"]
    named = {f"env {name}": value for name, value in (config.get("settings") or {}).items()}
    plain = {name: value for name, value in config.items() if isinstance(value, str | int | float)}
    sandbox = header.get("sandbox")
    data = header.get("data")
    told = {"data": data["name"]} if data else {}
    return {**plain, **named, **told, "sandbox": sandbox["level"] if sandbox else "no program was run"}
