"""Prints sampled trees: an episode, its decisions, and the candidates of each with their rewards and advantages.

They are made from the table that TRL writes with `log_completions=True` (`completions/completions_<step>.parquet`), so
those of earlier steps can be shown, too:

    for tree in trees(pandas.read_parquet("outputs/run/completions/completions_00010.parquet")):
        rich.print(tree)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pandas
from rich.console import Console
from rich.text import Text
from rich.tree import Tree
from transformers import TrainerCallback

from pettingllms_envs.printable import printable


WIDTH = 100  # characters of a reply


def trees(table: pandas.DataFrame) -> Iterator[Tree]:
    """A tree for each episode of a completions table, in the order of the instances.

    Agents that decide in the same turn are ordered as in the table. Decisions that filters dropped are not in the
    table; if they dropped all, there is no tree. Decisions inside continuations are left out.
    """
    if "continuation" in table:
        table = table[table["continuation"].isna()]
    if table.empty:
        return
    order = {agent: i for i, agent in enumerate(dict.fromkeys(table["agent"]))}
    for (instance, episode), rows in table.groupby(["instance", "episode"]):
        tree = Tree(Text(f"step {rows['step'].iloc[0]}, instance {instance}, episode {episode}", style="bold"))
        decisions = rows.groupby(["turn", rows["agent"].map(order)])
        for (turn, _), candidates in decisions:
            branch = tree.add(Text(f"turn {turn}, {candidates['agent'].iloc[0]}"))
            for candidate in candidates.to_dict("records"):
                branch.add(_line(candidate))
        yield tree


class PrintTrees(TrainerCallback):
    """Prints the first trees of each new completions table of a training, by default to the standard output."""

    def __init__(self, number: int, console: Console | None = None) -> None:
        self._number = number
        self._console = console or Console()
        self._printed: Path | None = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Print the table of the previous step, which TRL writes after its callbacks were called."""
        self._print(args, state)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._print(args, state)

    def _print(self, args: Any, state: Any) -> None:
        path = Path(args.output_dir) / "completions" / f"completions_{state.global_step:05d}.parquet"
        if not state.is_world_process_zero or path == self._printed or not path.is_file():
            return
        self._printed = path
        for tree in islice(trees(pandas.read_parquet(path)), self._number):
            self._console.print(tree)


def _line(candidate: dict[str, Any]) -> Text:
    """`> -0.20 (+0.00) Moves: R U`: played on or not, reward, advantage, the end of the reply, where its answer is."""
    said = " ".join(" ".join(message["content"] for message in candidate["completion"]).split())
    shown = printable(said)
    shown = shown if len(shown) <= WIDTH else f"... {shown[-WIDTH:]}"
    mark = ">" if candidate["chosen"] else " "
    text = f"{mark} {candidate['environment']:+.2f} ({candidate['advantage']:+.2f}) {shown}"
    return Text(text, style="bold" if candidate["chosen"] else "", overflow="ellipsis", no_wrap=True)
