"""Computes the page's numbers of a whole run, with intervals: by task, by reward part, and by training step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from pettingllms_envs.episodes.figures import AGENT_FIGURES, mean_by_problem, words
from pettingllms_envs.evaluation import data_label
from pettingllms_envs.evaluation.statistics import mean_interval, studentized_bootstrap


Table = Mapping[str, Sequence[Any]]
"""Columns of `page.read.INDEX`, by name."""

Item = dict[str, Any]
"""A number with its interval: name, value, low, high (None where there is no interval), n (episodes)."""


def summary(header: Mapping[str, Any], table: Table, num_candidates: int = 1) -> dict[str, Any]:
    """The summary of a run, as plain JSON data.

    Args:
        num_candidates: The most that a decision had. Of several, success is that of the path which was chosen.
    """
    config = header["config"]
    roles: dict[str, str] = dict(config.get("roles") or {})
    agents = list(roles) or sorted({agent for figures in table["figures"] for agent in figures})
    groups = sorted(set(table["group"]))
    counted = [at for at, success in enumerate(table["success"]) if success is not None and table["error"][at] is None]
    by_group = {name: [at for at in counted if table["group"][at] == name] for name in groups}
    rates = [_rate(name, table, of_group) for name, of_group in by_group.items() if of_group]
    if len(rates) > 1:
        rates.insert(0, _rate("all", table, counted))
    return {
        "title": _title(header, groups),
        "agents": agents,
        "roles": roles,
        "groups": groups,
        "parts": sorted({key.partition(".")[2] for parts in table["parts"] for key in parts}),
        "steps": sorted({step for step in table["step"] if step is not None}),
        "cards": list(_cards(table, counted, agents, num_candidates)),
        "groups_table": rates,
        "part_table": list(_parts(table)),
        "about": list(_about(header, table)),
        "curves": _curves(table, counted, agents),
        "facts": list(_facts(header)),
    }


def _title(header: Mapping[str, Any], groups: Sequence[str]) -> str:
    env = header["config"].get("env") or ", ".join(sorted({group.partition(",")[0] for group in groups}))
    note = data_label.note_of(header)
    on = f", {note}" if note else ""
    return f"{env}{on}: {'rollouts of a training' if header['kind'] == 'rollouts' else header['kind']}"


def _rate(name: str, table: Table, places: Sequence[int]) -> Item:
    """The success rate, with equal weight for each problem."""
    shares = _by_problem(table, {at: table["success"][at] for at in places})
    low, high = mean_interval(shares)
    return {"name": name, "value": sum(shares) / len(shares), "low": low, "high": high, "n": len(places)}


def _mean(name: str, table: Table, values: Mapping[int, float], *, is_share: bool = False) -> Item:
    """The mean of a value of episodes, given by their index in the table, with equal weight for each problem."""
    means = _by_problem(table, values)
    mean = sum(means) / len(means)
    low: float | None = None
    high: float | None = None
    if len(means) > 1:
        low, high = mean_interval(means) if is_share else studentized_bootstrap(means)
    return {"name": name, "value": mean, "low": low, "high": high, "n": len(values)}


def _by_problem(table: Table, values: Mapping[int, float]) -> list[float]:
    return mean_by_problem((table["problem"][at], value) for at, value in values.items())


def _figures(table: Table, agent: str, name: str, places: Iterable[int]) -> dict[int, float]:
    """A figure of an agent in the finished episodes in which it has one."""
    figures = {at: table["figures"][at].get(agent, {}) for at in places if table["error"][at] is None}
    return {at: own[name] for at, own in figures.items() if name in own}


def _cards(table: Table, counted: Sequence[int], agents: Sequence[str], num_candidates: int) -> Any:
    errors = sum(error is not None for error in table["error"])
    note = f"{errors} error{'s' * (errors > 1)}, no verdict" if errors else ""
    yield {"name": "episodes", "value": f"{len(table['name']):,}", "note": note}
    if counted:
        rate = _rate("", table, counted)
        note = f"95%: {100 * rate['low']:.1f} to {100 * rate['high']:.1f}"
        of_best = f", best of {num_candidates} played on" if num_candidates > 1 else ""
        yield {"name": f"success{of_best}", "value": f"{100 * rate['value']:.1f}%", "note": note}
    for agent, name in product(agents, AGENT_FIGURES):
        if values := _figures(table, agent, name, range(len(table["name"]))):
            mean = _mean(agent, table, values, is_share=name.startswith("frac_"))
            note = "" if mean["low"] is None else f"95%: {mean['low']:.3g} to {mean['high']:.3g}"
            yield {"name": f"{words(name)} of {agent}", "value": f"{mean['value']:.3g}", "note": note}
    tokens = [number for number in table["tokens"] if number is not None]
    if tokens:
        yield {
            "name": "tokens written",
            "value": f"{sum(tokens):,}",
            "note": f"{sum(tokens) / len(tokens):.0f} an episode",
        }


def _parts(table: Table) -> Any:
    keys = sorted({key for parts in table["parts"] for key in parts})
    played = {at: parts for at, parts in enumerate(table["parts"]) if table["error"][at] is None}
    for key in keys if played else ():
        yield _mean(key.replace(".", " "), table, {at: parts.get(key, 0.0) for at, parts in played.items()})


def _curves(table: Table, counted: Sequence[int], agents: Sequence[str]) -> dict[str, list[Item]]:
    """Success and the figures of agents by training step; empty if the run is not a training."""
    of_step: dict[int, list[int]] = defaultdict(list)
    for at, step in enumerate(table["step"]):
        if step is not None and table["error"][at] is None:
            of_step[step].append(at)
    if len(of_step) < 2:
        return {}
    judged = set(counted)
    solved = [
        {**_rate("success", table, [at for at in places if at in judged]), "step": step}
        for step, places in sorted(of_step.items())
        if judged & set(places)
    ]
    named = {"Success of the chosen path, by training step": solved}
    for name in AGENT_FIGURES:
        named[f"{words(name).capitalize()}, by training step"] = [
            {**_mean(agent, table, values, is_share=name.startswith("frac_")), "step": step}
            for step, places in sorted(of_step.items())
            for agent in agents
            if (values := _figures(table, agent, name, places))
        ]
    return {label: [{"series": item["name"], **item} for item in items] for label, items in named.items() if items}


def _about(header: Mapping[str, Any], table: Table) -> Iterator[tuple[str, str]]:
    """What a run is known by: model, data, date, tokens, command."""
    config, data = header["config"], header.get("data")
    agents: Mapping[str, Any] = config.get("agents") or {}
    models = [str(each.get("target") or each.get("kind") or "") for each in agents.values()]
    if model := config.get("model") or ", ".join(dict.fromkeys(filter(None, models))):
        yield "model", str(model)
    if data:
        yield "data", f"{data['name']}, {data['note']}" if data["note"] else data["name"]
    else:
        yield "data", f"{len(set(table['problem'])):,} instances of {config.get('env') or 'several environments'}"
    if started := header.get("started"):
        yield "date", started.replace("T", " ").replace("+00:00", " UTC")
    sampled, written = ([number for number in table[name] if number is not None] for name in ("sampled", "tokens"))
    if sampled:
        yield "tokens", f"{sum(sampled):,} sampled, {sum(written):,} of them played on"
    elif written:
        yield "tokens", f"{sum(written):,} written"
    if command := header.get("command"):
        yield "command", command


def _facts(header: Mapping[str, Any]) -> Any:
    for name, value in header["config"].items():
        if isinstance(value, Mapping):
            for key, inner in value.items():
                yield f"{name}.{key}", str(inner)
        elif value is not None:
            yield name, str(value)
    if header.get("data"):
        label = header["data"]
        yield "data", f"{label['name']}, {label['note']}" if label["note"] else label["name"]
    yield "versions", ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    sandbox = header.get("sandbox")
    yield "sandbox", "no program was run" if sandbox is None else sandbox.get("level", "not recorded")
    yield "machine", ", ".join(f"{name} {value}" for name, value in header["machine"].items())
