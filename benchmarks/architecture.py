"""How hard is `pettingllms_trl` to read? One optimizer step, traced, and counts over its source.

    python benchmarks/architecture.py [--json FILE]

The step is that of a two-agent LoRA team on Plan-Path: two rows, two candidates, two turns, a checkpoint at its end. A
profiler hook records every call into this package and into TRL's `grpo_trainer.py`, and every return from one: the
files entered, and the moves from one file to another. The source is only parsed, except for the trainer's class, which
says what it inherits.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import sys
import tempfile
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any


ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("pettingllms_trl", "pettingllms_envs")
MOST_LINES = 300
"""Of a file that one reads in a sitting."""


class Trace:
    """The files that functions of this package and of TRL's trainer are entered in, in order; returns count."""

    def __init__(self) -> None:
        self._visits: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)  # in each thread
        self._stacks: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
        self._package = str(Path(find_spec(PACKAGES[0]).origin).parent) + "/"  # type: ignore[union-attr, arg-type]

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        """A hook of `sys.setprofile`."""
        path = frame.f_code.co_filename
        if path.startswith(self._package):
            file = path.removeprefix(self._package)
        elif path.endswith("/trl/trainer/grpo_trainer.py"):
            file = "TRL"
        else:
            return
        thread = threading.get_ident()
        visits, stack = self._visits[thread], self._stacks[thread]
        if event == "call":
            stack.append((file, frame.f_code.co_qualname))
            visits.append(stack[-1])
        elif event == "return" and stack:
            stack.pop()
            visits += stack[-1:]

    def of(self, run: Callable[[], Any]) -> Any:
        """What a function returns, traced, with the threads that it starts."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            return run()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def figures(self) -> dict[str, Any]:
        """Files of ours, functions of ours, moves between files, and the files by visits."""
        all_visits = [visit for own in self._visits.values() for visit in own]
        files = [file for file, _ in all_visits]
        moves = [file for file, previous in zip(files, [None, *files], strict=False) if file != previous]
        return {
            "files entered": len(set(files) - {"TRL"}),
            "functions": len({visit for visit in all_visits if visit[0] != "TRL"}),
            "moves between files": len(moves),
            "visits": dict(Counter(moves).most_common()),
            "in the order of their first call": list(dict.fromkeys(files)),
        }


def one_step() -> dict[str, Any]:
    """Traces of the constructor, and of an optimizer step with its checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        save_tiny_model(folder)
        construction, step = Trace(), Trace()
        trainer = construction.of(lambda: tiny_trainer(folder, max_steps=1))
        step.of(trainer.train)
    return {"constructor": construction.figures(), "step": step.figures()}


def tiny_trainer(folder: str, *, max_steps: int) -> Any:
    """A trainer of two LoRA adapters of the model in a folder, which saves at its last step."""
    import torch
    from datasets import Dataset

    import pettingllms_envs  # noqa: F401 (registers its environments)
    from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer

    torch.set_num_threads(1)
    return MultiAgentGRPOTrainer(
        folder,
        "pettingllms/plan_path-v0",
        MultiAgentGRPOConfig(
            folder + "/out",
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=6,
            max_turns=2,
            max_steps=max_steps,
            save_steps=max_steps,
            logging_steps=1,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
        ),
        Dataset.from_dict({"seed": range(8)}),
        policies="lora",
    )


def save_tiny_model(folder: str) -> None:
    """The tokenizer and the model of the quickstart."""
    sys.path[:0] = [str(ROOT / "examples" / "quickstart")]
    from tiny import make_model, make_tokenizer

    tokenizer = make_tokenizer(["Moves: U R D L."])
    make_model(tokenizer, seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def lines(package: str) -> dict[str, int]:
    """Lines of code and of prose (docstrings and comments) in a package, its files, and those that are long."""
    code = prose = 0
    long = []
    for file in sorted((ROOT / package).rglob("*.py")):
        of_code, of_prose = lines_of(file)
        code, prose = code + of_code, prose + of_prose
        if len(file.read_text().splitlines()) > MOST_LINES:
            long.append(str(file.relative_to(ROOT)))
    files = len(list((ROOT / package).rglob("*.py")))
    return {"files": files, "code": code, "prose": prose, f"files of more than {MOST_LINES} lines": len(long)}


def lines_of(file: Path) -> tuple[int, int]:
    """Lines of code and of prose in a file; blank lines are neither."""
    of_prose = set(_docstring_lines(ast.parse(file.read_text())))
    of_code: set[int] = set()
    with tokenize.open(file) as stream:
        for token in tokenize.generate_tokens(stream.readline):
            if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
                of_prose.add(token.start[0])
            elif token.string.strip() and token.type != tokenize.COMMENT:
                of_code.update(range(token.start[0], token.end[0] + 1))
    return len(of_code - of_prose), len(of_prose)


def _docstring_lines(tree: ast.AST) -> Iterator[int]:
    """Of strings that stand as statements: docstrings, and what follows a field."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def imports(package: str) -> dict[str, int]:
    """Modules of a package, and how many imports there are among them, of any place in a file."""
    known = {".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): f for f in _files(package)}
    edges = {
        (module, imported)
        for module, file in known.items()
        for imported in _imported(ast.parse(file.read_text()), known)
        if imported != module
    }
    return {"modules": len(known), "imports among them": len(edges)}


def _imported(tree: ast.AST, known: Iterable[str]) -> Iterator[str]:
    names = set(known)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield from [name for name in (f"{node.module}.{alias.name}", node.module) if name in names][:1]


def classes_of_the_trainer() -> dict[str, Any]:
    """Its classes of ours, attributes that one writes and another reads, and TRL's methods that they override."""
    from trl import GRPOTrainer

    trainer = importlib.import_module("pettingllms_trl").MultiAgentGRPOTrainer
    ours = [c for c in trainer.__mro__ if c.__module__.startswith("pettingllms_trl")]
    written: dict[str, set[str]] = {}
    read: dict[str, set[str]] = {}
    hooks: Counter[str] = Counter()
    for cls in ours:
        (tree,) = ast.parse(inspect.getsource(cls)).body
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                attributes = read if isinstance(node.ctx, ast.Load) else written
                attributes.setdefault(node.attr, set()).add(cls.__name__)
        file = str(Path(inspect.getfile(cls)).relative_to(ROOT / PACKAGES[0]))
        hooks[file] += sum(inspect.isfunction(v) and hasattr(GRPOTrainer, name) for name, v in vars(cls).items())
    shared = sorted(name for name, classes in written.items() if read.get(name, set()) - classes)
    return {
        "classes": len(ours),
        "attributes that one class writes and another reads": len(shared),
        "shared attributes": shared,
        "overridden methods of TRL": sum(hooks.values()),
        "by file": {file: number for file, number in hooks.items() if number},
    }


def private_uses(folder: Path, seams: str = "seams") -> dict[str, int]:
    """How often tests reach into another object's private attributes, but for the tests of TRL's own names."""
    counted: Counter[str] = Counter()
    for file in sorted(folder.rglob("*.py")):
        if seams in file.name:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and node.attr.startswith("_")
                and not node.attr.startswith("__")
                and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
            ):
                counted[str(file.relative_to(ROOT))] += 1
    return {"uses": sum(counted.values()), "files": len(counted)}


def _files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def main() -> None:
    """Print the figures, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {package: {**lines(package), **imports(package)} for package in PACKAGES}
    figures["trainer"] = classes_of_the_trainer()
    figures["tests/trl, private attributes"] = private_uses(ROOT / "tests" / "trl")
    figures |= one_step()
    print(json.dumps(figures, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
