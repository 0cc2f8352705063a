"""Draws success over generated tokens: a line for each method, and a band for what its seeds leave open."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pettingllms_envs.installing import needs_extra
from pettingllms_envs.research.studies.analysis import StudyResults
from pettingllms_envs.research.studies.paired import student
from pettingllms_envs.research.studies.results import CellResult


Floats = NDArray[np.float64]
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933", "#882255")
"""Distinct for readers who do not see all colors (Okabe and Ito, extended)."""
NUM_POINTS = 60
CAPTION = "Lines: means over seeds. Bands: 95% intervals of the means (Student's). Dashed: not trained."


def band(results: Sequence[CellResult]) -> tuple[Floats, Floats, Floats, Floats]:
    """Tokens, and the mean success of a method's seeds with the ends of its interval, which need two seeds.

    Curves are interpolated between their points, up to the tokens that every seed has reached.
    """
    last = min(result.curve["tokens"][-1] for result in results)
    tokens = np.linspace(0.0, last, NUM_POINTS)
    success = np.array([np.interp(tokens, result.curve["tokens"], result.curve["success"]) for result in results])
    means = success.mean(axis=0)  # (P,)
    if len(results) < 2:
        return tokens, means, means, means
    ends = np.array([student(tuple(column), 0.95) for column in success.T])  # (P, 2)
    return tokens, means, ends[:, 0].clip(0.0, 1.0), ends[:, 1].clip(0.0, 1.0)


def draw(results: StudyResults, environment: str) -> Mapping[str, bytes]:
    """The curves of an environment as a picture, by the endings of files: `png`, `svg`."""
    with needs_extra("report", "matplotlib", "--out, which draws curves"):
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    with rc_context({"svg.hashsalt": "pettingllms", "svg.fonttype": "none"}):
        figure = Figure(figsize=(7.5, 4.5), layout="constrained")
        axes = figure.subplots()
        _plot(axes, results, environment)
        pictures = {}
        for ending, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            stream = io.BytesIO()
            figure.savefig(stream, format=ending, dpi=150, metadata=metadata)
            pictures[ending] = stream.getvalue()
    return pictures


def _plot(axes: Any, results: StudyResults, environment: str) -> None:
    for i, method in enumerate(results.outline.methods[environment]):
        own = results.evaluation.get((environment, method), ())
        color = COLORS[i % len(COLORS)]
        if drawn := [result for result in own if result.curve]:
            tokens, means, low, high = band(drawn)
            axes.plot(tokens / 1000, 100 * means, color=color, label=method)
            axes.fill_between(tokens / 1000, 100 * low, 100 * high, color=color, alpha=0.15, linewidth=0)
        elif own and not any(result.steps for result in own):
            level = 100 * sum(result.rate for result in own) / len(own)
            axes.axhline(level, color=color, linestyle="--", label=method)
    axes.set_xlabel("tokens generated in training (thousands)")
    axes.set_ylabel("success on held-out instances (%)")
    axes.set_title(environment)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
