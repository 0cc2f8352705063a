"""The entropy of the policies over a training, from the log that a checkpoint holds (`trainer_state.json`)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pettingllms_envs.audit.findings import Finding, Status
from pettingllms_envs.episodes.files import MOST_LINE, read_json_text


NAME = "falling entropy"
FEW = 6
LEAST = 0.2
"""Of the entropy in the first third."""
_ENTROPY = re.compile(r"(policy/(?P<policy>.+)/)?entropy")


def history_of(folder: Path) -> list[Mapping[str, Any]] | None:
    """The log of the newest checkpoint of an output folder, or of the folder itself; `None` where there is none."""
    found = [folder / "trainer_state.json", *folder.glob("checkpoint-*/trainer_state.json")]
    files = [file for file in found if file.is_file()]
    if not files:
        return None
    newest = max(files, key=lambda file: (file.parent == folder, _number(file.parent.name)))
    try:
        text = read_json_text(newest, "utf-8", MOST_LINE)
        history: list[Mapping[str, Any]] = json.loads(text)["log_history"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{newest} has no log_history ({type(error).__name__}); expected the state of a trainer. Remove the file."
        ) from None
    return history


def falling_entropy(history: Sequence[Mapping[str, Any]] | None) -> Finding:
    """Whether the entropy of a policy has fallen to next to nothing, without a gain in reward."""
    if history is None:
        return Finding(NAME, "not recorded", "there is no checkpoint with a trainer_state.json.")
    logged: dict[str, list[float]] = {}
    for entry in history:
        for name, value in entry.items():
            if (match := _ENTROPY.fullmatch(name)) and _is_number(value):
                logged.setdefault(match["policy"] or "", []).append(value)
    if len(logged) > 1:
        logged.pop("", None)  # of all policies together
    if not logged:
        return Finding(NAME, "not recorded", "the trainer's log has no entropy.")
    if min(map(len, logged.values())) < FEW:
        return Finding(NAME, "not applicable", f"fewer than {FEW} logged steps: no trend to see.")
    rewards = [entry["reward"] for entry in history if _is_number(entry.get("reward"))]
    gain = _thirds(rewards) if len(rewards) >= FEW else None
    words, bad = [], False
    for policy, values in logged.items():
        first, last = _thirds(values)
        words.append(f"{f'{policy} ' if policy else ''}{first:.3g} -> {last:.3g}")
        bad |= last < LEAST * first and (gain is None or gain[1] <= gain[0])
    told = "" if gain is None else f"; mean reward {gain[0]:.3g} -> {gain[1]:.3g}"
    status: Status = "warning" if bad else "passed"
    remedy = "Raise entropy_coef or temperature, set beta above 0, lower learning_rate, or resume from before."
    text = f"nats per token, first to last third: {', '.join(words)}{told}."
    return Finding(NAME, status, text, remedy=remedy if bad else "")


def _thirds(values: Sequence[float]) -> tuple[float, float]:
    third = len(values) // 3
    return sum(values[:third]) / third, sum(values[-third:]) / third


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(name: str) -> int:
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else -1
