"""A run as a log of Inspect (https://inspect.aisi.org.uk), which `inspect view` and `read_eval_log` read. Pure.

A run is an `EvalLog` in JSON, an episode an `EvalSample`, a sample of a problem an epoch. The messages of a sample are
those of all agents in the order of play; `metadata` of each reply has its agent and its rewards. The score `success`
is `"C"` or `"I"`, as Inspect writes right and wrong; an episode with an error, or of an environment without a verdict,
has none.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pettingllms_envs.episodes.files import JsonObject, problem
from pettingllms_envs.episodes.players import player_of
from pettingllms_envs.evaluation import metrics


VERSION = 2
"""Version of Inspect's log format."""

Json = dict[str, Any]


def inspect_log(header: JsonObject, rows: Sequence[JsonObject], name: str, image: Callable[[str], bytes]) -> Json:
    """The log of a run, as plain JSON data; one that is not whole has no score, but its samples have theirs.

    `image` reads an image of a prompt as PNG, given its digest.
    """
    config = header["config"]
    planned = (config.get("instances") or {}).get("num", 0) * config.get("samples", 1)
    report = metrics.report(header, rows, num_planned=max(planned, len(rows)))
    timing = report["timing"] or {"began": 0.0, "seconds": 0.0}
    player, env = player_of(config), str(config.get("env") or rows[0]["instance"]["env"])
    ended = max((_end(row) for row in rows), default=timing["began"])
    is_whole = report["episodes"]["ended"] == report["episodes"]["planned"]
    return {
        "version": VERSION,
        "status": "success" if is_whole else "cancelled",
        "eval": {
            "eval_id": name,
            "run_id": name,
            "created": _time(timing["began"]),
            "task": env,
            "task_id": name,
            "dataset": {"name": env, "samples": len({problem(row) for row in rows})},
            "model": player,
            "config": {"epochs": config.get("samples", 1)},
            "packages": {"pettingllms": str(header["versions"].get("pettingllms"))},
            "task_args": config.get("settings") or {},
            "metadata": {"agents": config.get("agents"), "data": header.get("data")},
        },
        "plan": {"name": "plan", "steps": []},
        "results": _results(report, is_whole=is_whole),
        "stats": {
            "started_at": _time(timing["began"]),
            "completed_at": _time(ended),
            "model_usage": _usage(player, metrics.sum_of_tokens(report)),
        },
        "samples": [_sample(row, player, image) for row in rows],
    }


def _results(report: JsonObject, *, is_whole: bool) -> Json:
    success = report["success"] if is_whole else None
    values = {} if success is None else {"accuracy": success["mean"], "low": success["low"], "high": success["high"]}
    figures = {name: {"name": name, "value": value} for name, value in values.items()}
    scores = [{"name": "success", "scorer": "success", "metrics": figures}] if figures else []
    return {
        "total_samples": report["episodes"]["planned"],
        "completed_samples": report["episodes"]["ended"],
        "scores": scores,
    }


def _sample(row: JsonObject, player: str, image: Callable[[str], bytes]) -> Json:
    messages: list[Json] = []
    systems: dict[str, str] = {}
    for step in row["steps"]:
        agent = step["agent"]
        for message in _prompt(step):
            if message["role"] == "system":
                if systems.get(agent) == message["content"]:
                    continue
                systems[agent] = message["content"]
            messages.append({**_message(message, image), "metadata": {"agent": agent}})
        messages.append(_reply(step))
    counts = [_sum(row, kind) for kind in ("prompt", "completion")]
    seconds = (row.get("timing") or {}).get("seconds")
    last = messages[-1] if row["steps"] else None
    return {
        "id": problem(row),
        "epoch": row["sample"] + 1,
        "input": messages[:1] if messages[:1] and messages[0]["role"] != "system" else messages[:2],
        "target": "",
        "messages": messages,
        "output": {
            "model": player,
            "choices": [{"message": last, "stop_reason": _stop(row["steps"][-1])}] if last else [],
        },
        "scores": _scores(row),
        "metadata": {
            **{name: row[name] for name in ("outcome", "returns", "end", "turns")},
            "instance": row["instance"],
        },
        "model_usage": _usage(player, None if counts == [None, None] else (counts[0] or 0, counts[1] or 0)),
        **({} if seconds is None else {"total_time": seconds, "started_at": _time(row["timing"]["began"])}),
        "error": None if row["error"] is None else _error(row["error"]),
    }


def _prompt(step: JsonObject) -> Sequence[JsonObject]:
    if "messages" in step:
        return list(step["messages"])
    prompt = step["prompt"]
    system = [{"role": "system", "content": prompt["system"]}] if prompt.get("system") else []
    return [*system, {"role": "user", "content": prompt["text"]}]


def _message(message: JsonObject, image: Callable[[str], bytes]) -> Json:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = [_part(part, image) for part in content]
    found: Json = {"role": message["role"], "content": content}
    if calls := message.get("tool_calls"):
        found["tool_calls"] = [
            {
                "id": str(call.get("id", place)),
                "type": "function",
                "function": call["function"]["name"],
                "arguments": call["function"]["arguments"],
            }
            for place, call in enumerate(calls)
        ]
    if message["role"] == "tool":
        found |= {"tool_call_id": message.get("tool_call_id"), "function": message.get("name")}
    return found


def _part(part: JsonObject, image: Callable[[str], bytes]) -> Json:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    return {
        "type": "image",
        "image": f"data:image/png;base64,{base64.b64encode(image(part['digest'])).decode('ascii')}",
    }


def _reply(step: JsonObject) -> Json:
    content: Any = step["reply"]
    if step.get("reasoning"):
        content = [{"type": "reasoning", "reasoning": step["reasoning"]}, {"type": "text", "text": step["reply"]}]
    metadata = {"agent": step["agent"], "rewards": step["rewards"], "parts": step.get("parts")}
    return {"role": "assistant", "content": content, "model": step.get("model"), "metadata": metadata}


def _stop(step: JsonObject) -> str:
    return {"stop": "stop", "length": "max_tokens", None: "stop"}.get(step.get("finish"), "unknown")


def _scores(row: JsonObject) -> Json | None:
    if row["success"] is None:
        return None
    answer = row.get("answer")
    return {"success": {"value": "C" if row["success"] else "I", "answer": None if answer is None else str(answer)}}


def _error(error: JsonObject) -> Json:
    message = f"{error['kind']}: {error['message']}"
    return {"message": message, "traceback": message, "traceback_ansi": message}


def _usage(model: str, counts: tuple[int, int] | None) -> Mapping[str, Any]:
    if counts is None:
        return {}
    return {model: {"input_tokens": counts[0], "output_tokens": counts[1], "total_tokens": sum(counts)}}


def _sum(row: JsonObject, kind: str) -> int | None:
    known = [step["tokens"][kind] for step in row["steps"] if step["tokens"][kind] is not None]
    return sum(known) if known else None


def _end(row: JsonObject) -> float:
    timing = row.get("timing") or {}
    return float(timing.get("began", 0.0)) + float(timing.get("seconds", 0.0))


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
