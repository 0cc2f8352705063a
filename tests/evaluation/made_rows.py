"""Rows by hand, and runs made of them."""

from __future__ import annotations

from typing import Any

from pettingllms_envs.evaluation.compare import RunRows


def row(index: int, success: bool | None, *, sample: int = 0, **more: Any) -> dict[str, Any]:
    """A row of one step. `tokens`: of its prompt; `error`: of which kind; `level`, `answer`, `reward`, `problem`, and
    `reply`, `tool_calls`."""
    error = more.get("error")
    step = {
        "agent": "planner_0",
        "turn": 1,
        "state": more.get("state", f"state {index}"),
        "prompt": {"system": "", "text": "?"},
        "reply": more.get("reply", "!"),
        "reasoning": None,
        "tokens": {"prompt": more.get("tokens"), "completion": None if more.get("tokens") is None else 0},
        "finish": more.get("finish"),
        "model": None,
        "seed": 0,
        "rewards": {"planner_0": more.get("reward", 0.0)},
        "parts": more.get("parts", {"team": {"progress": more.get("reward", 0.0)}}),
        "timing": {"seconds": 0.5, "tries": more.get("tries", 1)},
        **({"tool_calls": more["tool_calls"]} if "tool_calls" in more else {}),
    }
    outcome = {"success": bool(success), "regret": 0.0 if success else 1.0}
    return {
        "format": 1,
        "instance": {
            "index": index,
            "env": "game_v0",
            "seed": index,
            "options": {"level": more["level"]} if "level" in more else {},
            "problem": more.get("problem"),
        },
        "sample": sample,
        "steps": [step],
        "end": "error" if error else "terminated",
        "turns": 1,
        "success": None if error else success,
        "outcome": outcome,
        "answer": more.get("answer"),
        "returns": {"planner_0": more.get("reward", 0.0)},
        "state": None,
        "error": {"kind": error, "message": "no", "agent": "planner_0", "step": 0, "reply": None} if error else None,
        "digest": "",
    }


def header(**config: Any) -> dict[str, Any]:
    return {"format": 1, "kind": "bench", "config": {"env": "game_v0", "settings": {}, **config}, "versions": {}}


def run_of(name: str, successes: str, **more: Any) -> RunRows:
    """A run of problems 0, 1, ...: `"1"` solved, `"0"` not, `"e"` an error; several letters, comma-joined: samples."""
    rows = []
    for index, letters in enumerate(successes.split(",") if "," in successes else successes):
        for sample, letter in enumerate(letters):
            rows.append(
                row(index, letter == "1", sample=sample, error="unreachable" if letter == "e" else None, **more)
            )
    return RunRows(name, header(), rows)
