"""The import graph of both packages as a rule: an import in the other direction fails here."""

import ast
import functools
import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection
from pathlib import Path

import pytest

import pettingllms_envs
import pettingllms_trl
from pettingllms_envs import registry, tools
from pettingllms_envs.datasets import LAYOUTS


ROOT = Path(__file__).parents[1]
MODEL_LIBRARIES = {
    "accelerate",
    "datasets",
    "peft",
    "safetensors",
    "tokenizers",
    "torch",
    "transformers",
    "trl",
    "vllm",
}
CORE = "pettingllms_envs.core"
FEATURES = "pettingllms_envs.features"
BOARDS = "pettingllms_envs.boards"
INSIDE = "pettingllms_envs.sandbox.inside"
QUOTING = "pettingllms_envs.quoting"
RESEARCH = "research"
PROMPTS = "pettingllms_envs.prompts"

# What tasks and workflows on problems of data sets are judged by.
JUDGING = {"pettingllms_envs.datasets", "pettingllms_envs.graders", "pettingllms_envs.sandbox"}

# What the files of a pattern may import of pettingllms_envs and of other libraries, beyond numpy and the standard
# library. A file that no pattern matches may import whatever no other rule forbids.
ALLOWED_IMPORTS = {
    "core.py": {"pettingllms_envs.features", "pettingllms_envs.observations", "pettingllms_envs.suggestions"},
    "features.py": set(),
    "boards.py": set(),
    "doors.py": {"gymnasium", "pettingzoo"},
    "bounds.py": set(),
    "published.py": {"pettingllms_envs.doors"},
    "prompts.py": {"pettingllms_envs.observations"},
    "spaces.py": {"gymnasium", "pettingllms_envs.observations", "pettingllms_envs.prompts"},
    "state_digest.py": set(),
    "array_digest.py": {"pettingllms_envs.state_digest"},
    "caching.py": set(),
    # The sandbox and other tools are loaded by name; the SDK of MCP is an extra.
    "tools/*.py": {CORE, "pettingllms_envs.replies", "pettingllms_envs.tools", "pettingllms_envs.observations"}
    | {"pettingllms_envs.graders"}  # imported when a query is run
    | {"anyio", "mcp", "pettingllms_envs.installing"},
    "installing.py": set(),
    "suggestions.py": set(),
    "agent_names.py": set(),
    "server_errors.py": set(),
    "printable.py": set(),
    "failures.py": set(),
    "copying.py": {"gymnasium", "pettingzoo"},
    "branching/*.py": {"gymnasium", "pettingzoo", "pettingllms_envs.branching", "pettingllms_envs.copying"}
    | {"pettingllms_envs.failures"},
    # Programs are run without the trainer. A user's own is imported by its file.
    "programs/*.py": {"gymnasium", "pettingzoo", CORE, FEATURES, "pettingllms_envs.programs"}
    | {"pettingllms_envs.branching", "pettingllms_envs.failures", "pettingllms_envs.observations", PROMPTS}
    | {"pettingllms_envs.replies", "pettingllms_envs.spaces", "pettingllms_envs.tools.calls"},
    "instances.py": {CORE},
    "settings.py": set(),
    "replies/*.py": {CORE, "pettingllms_envs.replies"},
    "quoting.py": {"pettingllms_envs.replies"},
    # The libraries are an extra, imported when needed. Corpora are read as data sets are; one client asks all servers.
    "retrieval/*.py": {"bm25s", "httpx2", "sentence_transformers", "pettingllms_envs.retrieval"}
    | {"pettingllms_envs.agents.server", "pettingllms_envs.datasets", "pettingllms_envs.failures"}
    | {"pettingllms_envs.caching", "pettingllms_envs.installing"},
    "rendering.py": {"PIL", "rich", CORE, BOARDS, "pettingllms_envs.observations"},
    "aec.py": {"gymnasium", "pettingzoo", CORE, FEATURES, "pettingllms_envs.spaces", "pettingllms_envs"}
    | {"pettingllms_envs.doors", "pettingllms_envs.array_digest"}
    | {"pettingllms_envs.observations", "pettingllms_envs.state_digest", "pettingllms_envs.views"}
    | {"pettingllms_envs.replies"},
    # Pillow is imported when a picture is drawn.
    "views.py": {CORE, BOARDS, "pettingllms_envs.observations", "pettingllms_envs.rendering"},
    "tasks/*.py": {CORE, FEATURES, "pettingllms_envs.instances", "pettingllms_envs.replies", "pettingllms_envs.tasks"}
    | {"pettingllms_envs.datasets", "pettingllms_envs.observations", PROMPTS, QUOTING}
    | {"pettingllms_envs.pictures"},  # imported where a row has some
    # The sandbox is imported when a program is run.
    "teams/*.py": {
        CORE,
        FEATURES,
        BOARDS,
        "pettingllms_envs.observations",
        "pettingllms_envs.tools",
        "pettingllms_envs.views",
    }
    | {"pettingllms_envs.state_digest", "pettingllms_envs.replies", "pettingllms_envs.tasks"}
    | {"pettingllms_envs.sandbox", "pettingllms_envs.teams", QUOTING},
    "environments/__init__.py": set(),
    "environments/*/*.py": {
        CORE,
        FEATURES,
        BOARDS,
        QUOTING,
        PROMPTS,
        "pettingllms_envs.bounds",
        "pettingllms_envs.instances",
    }
    | {"pettingllms_envs.observations", "pettingllms_envs.caching", "pettingllms_envs.installing"}
    | {"pettingllms_envs.replies", "pettingllms_envs.tasks", "pettingllms_envs.teams", "pettingllms_envs.tools"}
    | {"pettingllms_envs.retrieval", "pettingllms_envs.views", "pettingllms_envs.state_digest"}
    | {"pettingllms_envs.environments"}  # its own folder, and no other: see below
    | {"mujoco", "pettingllms_envs.failures", "pettingllms_envs.installing"}  # an extra, imported for a simulation
    | JUDGING,
    "observations.py": set(),
    # A server's tool calls are written as replies that environments parse.
    "agents/*.py": {"httpx2", "pettingllms_envs.agents", "pettingllms_envs.observations", PROMPTS}
    | {"pettingllms_envs.server_errors", "pettingllms_envs.suggestions", "pettingllms_envs.tools.calls"},
    "episodes/*.py": {
        "pettingllms_envs.agents",
        "pettingllms_envs.episodes",
        "pettingllms_envs.observations",
        "pettingllms_envs.registry",
        FEATURES,
        PROMPTS,
    }
    | {"pettingllms_envs.replies"}  # with the number of their tokens
    | {"pettingllms_envs.branching", "pettingllms_envs.failures"},  # whether and when an episode is played again
    # PyYAML is an extra, imported when a suite is read; pandas none at all, imported for a frame.
    "evaluation/*.py": {"rich", "huggingface_hub", "yaml", "pandas", "pettingllms_envs", "pettingllms_envs.evaluation"}
    | {"pettingzoo"}
    | {"pettingllms_envs.agents", "pettingllms_envs.episodes", "pettingllms_envs.branching"}
    | {PROMPTS, "pettingllms_envs.observations", "pettingllms_envs.bounds", "pettingllms_envs.failures", FEATURES}
    | {
        "pettingllms_envs.published",
        "pettingllms_envs.installing",
        "pettingllms_envs.settings",
        "pettingllms_envs.suggestions",
    }
    | {"pettingllms_envs.replies", "pettingllms_envs.agent_names", "pettingllms_envs.printable"}
    | {"pettingllms_envs.remote"},  # imported when a run has its environments elsewhere
    # Ray and websockets are extras, imported when they are needed.
    # OpenEnv's package serves, and its environments are played without it.
    "remote/*.py": {"pettingzoo", "ray", "pettingllms_envs.branching", "pettingllms_envs.failures", CORE, QUOTING}
    | {"httpx2", "openenv", "pydantic", "uvicorn", "websockets", "pettingllms_envs.observations", PROMPTS}
    | {"pettingllms_envs.installing", "pettingllms_envs.remote", "pettingllms_envs.replies"}
    | {"pettingllms_envs.settings", "pettingllms_envs.spaces", "pettingllms_envs.tools.calls"}
    | {"pettingllms_envs.registry", "pettingllms_envs.pictures"},
    "reports/*.py": {"pettingllms_envs.reports"},
    "page/*.py": {
        CORE,
        FEATURES,
        BOARDS,
        "pettingllms_envs",
        "pettingllms_envs.aec",
        "pettingllms_envs.episodes",
        "pettingllms_envs.evaluation",
        "pettingllms_envs.page",
        "pettingllms_envs.tools",
        "pettingllms_envs.teams",  # how a designer's reply is read
        "PIL",
        "pettingllms_envs.printable",
        "pettingllms_envs.rendering",
        "pettingllms_envs.replies",
    },
    # Plain rows in, findings out: the trainer runs these checks, too. Parquet's library is an extra.
    "audit/*.py": {"pyarrow", "pettingllms_envs.audit", "pettingllms_envs.installing"}
    | {"pettingllms_envs.episodes.files", "pettingllms_envs.agent_names"},
    # The Hub's library and parquet's are imported when they are needed, and are an extra.
    "datasets/*.py": {CORE, "huggingface_hub", "pyarrow", "pettingllms_envs.instances", "pettingllms_envs.datasets"}
    | {
        "pettingllms_envs.installing",
        "pettingllms_envs.replies",
        "pettingllms_envs.suggestions",
        "pettingllms_envs.sandbox.values",
    },
    "graders/*.py": {
        CORE,
        QUOTING,
        "pettingllms_envs.caching",
        "pettingllms_envs.failures",
        "pettingllms_envs.replies",
        "pettingllms_envs.datasets.normalization",
        "pettingllms_envs.datasets.code_problems",
        "pettingllms_envs.graders",
        "pettingllms_envs.sandbox",
    },
    # Runs in the sandbox's processes, where this package cannot be imported.
    "graders/inside/*.py": {"latex2sympy2_extended", "math_verify", "pyosys", "sympy"},
    # What is in sandbox/inside runs where this package cannot be imported: see tests/sandbox/test_sandbox.py.
    "sandbox/*.py": {
        CORE,
        QUOTING,
        "pettingllms_envs.sandbox",
        *(f"{INSIDE}.{name}" for name in ("confine", "job", "kernel")),
    }
    | {INSIDE, f"{INSIDE}.server", f"{INSIDE}.wire", "pettingllms_envs.failures", "pettingllms_envs.installing"},
}


@functools.cache
def imports_in(source: str, *, when_loaded: bool = False) -> tuple[ast.AST, ...]:
    """The imports of a source; with `when_loaded`, without those of functions."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if when_loaded and isinstance(node, ast.FunctionDef)]
    later = {id(inner) for function in functions for inner in ast.walk(function)}
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return tuple(node for node in imports if id(node) not in later)


def imported(source: str) -> set[str]:
    """Every module that a source imports anywhere in it; a relative one keeps its dots."""
    names: set[str] = set()
    for node in imports_in(source):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return names


def top(name: str) -> str:
    return name.partition(".")[0]


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("pattern", ALLOWED_IMPORTS)
def test_a_package_of_the_environments_imports_only_what_is_allowed(pattern: str) -> None:
    files = sorted((ROOT / "pettingllms_envs").glob(pattern))
    assert files, f"no file matches {pattern}"
    for file in files:
        for name in imported(file.read_text(encoding="utf-8")):
            ours = name if top(name) == "pettingllms_envs" else top(name)
            here = ".".join(ours.split(".")[:2])  # files of one package may import each other
            assert {ours, here} & (ALLOWED_IMPORTS[pattern] | sys.stdlib_module_names | {"numpy"}), (
                f"{file} imports {name}"
            )


@pytest.mark.parametrize(
    ("folder", "when_loaded"),
    [("pettingllms_envs", False), ("benchmarks", False), ("pettingllms_trl", True)],
)
def test_no_modules_import_each_other_in_a_circle(folder: str, when_loaded: bool) -> None:
    modules = modules_of(folder)
    if folder == "benchmarks":
        modules = {name.removeprefix("benchmarks."): file for name, file in modules.items()}
    imports = {name: imported_of(modules, file, when_loaded=when_loaded) - {name} for name, file in modules.items()}
    assert in_circles(imports) == []


def in_circles(imports: dict[str, set[str]]) -> list[str]:
    """The names whose imports lead into a circle."""
    while ready := {name for name, found in imports.items() if not found}:
        imports = {name: found - ready for name, found in imports.items() if name not in ready}
    return sorted(imports)


def imported_of(modules: Collection[str], file: Path, *, when_loaded: bool = False) -> set[str]:
    """Those of the modules that a file imports: `from a import b` is of `a.b` where that is a module, else of `a`.

    With `when_loaded` those of functions, which are imported when they are called, are left out.
    """
    found: set[str] = set()
    for node in imports_in(file.read_text(encoding="utf-8"), when_loaded=when_loaded):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner if inner <= set(modules) else {str(node.module)} | inner
    return found & set(modules)


@pytest.mark.parametrize("package", ["pettingllms_envs", "pettingllms_trl"])
def test_nothing_imports_research_but_research_itself(package: str) -> None:
    # What others need of it is found by an entry point: `commands.of_research`.
    modules, outside = modules_of(package), [file for file in sources(package) if RESEARCH not in file.parts]
    assert len(outside) < len(sources(package))
    for file in outside:
        assert not [name for name in imported_of(modules, file) if RESEARCH in name.split(".")], file
        assert not [name for name in imported(file.read_text("utf-8")) if RESEARCH in name.split(".")], file


def test_every_entry_point_leads_somewhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    targets = [target for group in project["entry-points"].values() for target in group.values()]
    assert len(targets) > 8
    for target in targets:
        module, _, name = target.partition(":")
        file = ROOT / f"{module.replace('.', '/')}.py"
        assert f"\ndef {name or 'run'}(" in file.read_text("utf-8"), target


@pytest.mark.parametrize("package", ["pettingllms_envs", "pettingllms_trl"])
def test_no_folders_import_each_other_in_a_circle(package: str) -> None:
    """Each module of a package itself is a folder here, and each environment."""
    modules = modules_of(package)
    arrows = {
        (folder_of(name), folder_of(other))
        for name, file in modules.items()
        for other in imported_of(modules, file, when_loaded=True)
    }
    assert in_circles({one: {b for a, b in arrows if a == one != b} for pair in arrows for one in pair}) == []


def folder_of(module: str) -> str:
    _, *parts = module.split(".")
    return ".".join(parts[: 2 if parts[:1] == ["environments"] else 1])


def modules_of(package: str) -> dict[str, Path]:
    """The file of each module."""
    paths = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in sources(package)}
    return {name.removesuffix(".__init__"): file for name, file in paths.items()}


DOOR = re.compile(r"[a-z]\w*_v\d+\.py")
ENVIRONMENTS = ROOT / "pettingllms_envs" / "environments"
FOLDERS = sorted(path.parent.name for path in ENVIRONMENTS.glob("*/__init__.py"))
NAMED = re.compile(rf"\b({'|'.join(FOLDERS)})\.[a-z_]+:|\bpettingllms_envs\.environments\.(\w+)")
NAMED_OUTSIDE = {
    "datasets/columns.py": "the table of layouts, whose readers lie in the folders, by name",
    "from_rows.py": "`conversation` makes that environment, and its docstring says where its settings are",
}
"""Modules that name an environment's folder and are not one of its doors, with the reason."""


def folders_named(file: Path) -> set[str]:
    """The environments whose folders a module names, in imports, strings and docstrings."""
    return {"".join(found) for found in NAMED.findall(file.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_environment_names_no_other(folder: str) -> None:
    files = sorted((ENVIRONMENTS / folder).rglob("*.py"))
    assert {name for file in files for name in folders_named(file)} <= {folder}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_names_all_its_modules_in_the_order_of_reading(folder: str) -> None:
    doc = ast.get_docstring(ast.parse((ENVIRONMENTS / folder / "__init__.py").read_text("utf-8"))) or ""
    names = {path.stem for path in (ENVIRONMENTS / folder).glob("*.py")} - {"__init__"}
    told = {name for name in names if f"`{name}`" in doc or (name.endswith("_rows") and "`*_rows`" in doc)}
    assert told == names


def test_an_environment_is_named_by_its_doors_alone() -> None:
    package = ROOT / "pettingllms_envs"
    files = [file for file in sources("pettingllms_envs") if ENVIRONMENTS not in file.parents]
    found = {file.relative_to(package).as_posix(): folders_named(file) for file in files}
    doors = {name for name in found if DOOR.fullmatch(name)}
    assert all(len(found[name]) == 1 for name in doors)
    assert {folder for name in doors for folder in found[name]} == set(FOLDERS)
    assert {name for name, folders in found.items() if folders} - doors == set(NAMED_OUTSIDE)
    assert not any(folders_named(file) for file in sources("pettingllms_trl"))


def test_every_environment_has_a_door_and_each_of_its_workflows_is_found_by_name() -> None:
    for entry in (entry for entry in registry.entries() if entry.origin == registry.BUILT_IN):
        env = pettingllms_envs.make(entry.full_name)
        workflows = [pettingllms_envs.make(entry.full_name, workflow=name) for name in env.metadata["workflows"]]
        names = [made.unwrapped.workflow.name for made in workflows]
        assert names == [*env.metadata["workflows"]]
        folders = {type(made.unwrapped.workflow).__module__.split(".")[1] for made in workflows}
        assert folders <= {"environments", "teams"}


def test_every_layout_names_a_reader() -> None:
    for layout in LAYOUTS.values():
        module, _, function = layout.read.args[0].partition(":")  # type: ignore[attr-defined]
        assert callable(getattr(importlib.import_module(f"pettingllms_envs.environments.{module}"), function))


def test_every_tool_and_every_name_of_the_package_is_found() -> None:
    assert all(callable(point.load()) for point in tools.registry._installed().values())
    assert set(pettingllms_envs.__all__) <= set(dir(pettingllms_envs))
    for name in pettingllms_envs.__all__:
        assert getattr(pettingllms_envs, name).__name__ == name
    with pytest.raises(AttributeError, match=r"no attribute 'maek'. It has: conversation, find, "):
        pettingllms_envs.maek  # type: ignore[attr-defined]  # noqa: B018


def test_the_environments_import_no_model_library_and_not_the_trainer() -> None:
    for file in sources("pettingllms_envs"):
        tops = {top(name) for name in imported(file.read_text(encoding="utf-8"))}
        assert not tops & (MODEL_LIBRARIES | {"pettingllms_trl"}), file


# Written once for two: agents (one client of servers), records of episodes, observations as prompts; checks of
# rollouts, for `pettingllms audit` and for a training; branches of an environment, for `pettingllms check` and a
# rollout; the form of tool calls, which a chat template must write; errors that no reply causes; how both are
# installed; images as pictures; names of agents, and the known name nearest to a misspelt one; the filter of what a
# terminal shows. The package itself registers environments.
SHARED = (
    *("agents", "episodes", "observations", "audit", "branching", "copying", "failures", "tools"),
    *("agent_names", "features", "installing", "pictures", "printable", "programs", "prompts", "remote", "replies"),
    *("settings", "suggestions"),
)


def test_the_trainer_imports_nothing_of_the_environments_but_what_both_packages_share() -> None:
    for file in sources("pettingllms_trl"):
        if RESEARCH in file.parts:  # which may import everything
            continue
        for name in imported(file.read_text(encoding="utf-8")):
            package, _, module = name.partition(".")
            shared = top(module) in SHARED or module in ("", "evaluation.statistics")
            assert package != "pettingllms_envs" or shared, f"{file} imports {name}"


def test_the_walk_sees_every_way_to_import() -> None:
    source = "import a.b as c\nfrom d.e import f\nfrom .i import j\ndef g():\n    if True:\n        import h\n"
    assert imported(source) == {"a.b", "d.e", ".i", "h"}


def test_the_rollout_can_be_used_without_loading_torch() -> None:
    program = (
        "import pettingllms_trl.rollout.play; from pettingllms_trl import Episode\n"
        f"import sys; print(*sorted({MODEL_LIBRARIES!r} & set(sys.modules)))"
    )
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=clean)
    assert run.stdout.split() == []


def test_the_trainers_package_offers_every_name_of_its_own_and_no_other() -> None:
    assert set(pettingllms_trl.__all__) <= set(dir(pettingllms_trl))
    for name in pettingllms_trl.__all__:
        assert getattr(pettingllms_trl, name).__name__ == name
    with pytest.raises(AttributeError, match=r"no attribute 'Polcy'. It has: Alternate, Candidate, "):
        pettingllms_trl.Polcy  # type: ignore[attr-defined]  # noqa: B018


def test_importing_and_playing_an_environment_is_quick_and_loads_no_torch() -> None:
    program = (
        "import sys, time; start = time.process_time(); import gymnasium, numpy, pettingzoo\n"
        "libraries = time.process_time() - start; import pettingllms_envs\n"
        "ours = time.process_time() - start - libraries\n"
        "packages = {'sandbox', 'graders', 'agents', 'episodes', 'evaluation', 'datasets'}\n"
        "early = {f'pettingllms_envs.{package}' for package in packages} & set(sys.modules)\n"
        "env = pettingllms_envs.make('plan_path'); env.reset(seed=0); env.step('Moves: U')\n"
        f"print(ours / libraries, *sorted(early | {MODEL_LIBRARIES!r} & set(sys.modules)))"
    )
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=clean).stdout
        for _ in range(3)
    ]
    fields = [run.split() for run in runs]
    assert all(len(run) == 1 for run in fields), runs
    assert min(float(run[0]) for run in fields) < 0.3  # CPU time beside that of PettingZoo's: 8 and 100 ms here


@pytest.mark.parametrize(
    ("name", "modules", "lines"),
    [("kuhn_poker", 28, 3_000), ("sokoban", 36, 4_300), ("archives", 36, 4_400), ("math", 65, 7_500)],
)
def test_an_environment_that_is_reset_has_loaded_its_folder_its_workflow_and_the_contract(
    name: str, modules: int, lines: int
) -> None:
    program = (
        f"import sys; from pettingllms_envs import {name}_v0; {name}_v0.env().reset(seed=0)\n"
        "files = [m.__file__ for n, m in sys.modules.items() if n.partition('.')[0] == 'pettingllms_envs']\n"
        "print(len(files), sum(open(file, encoding='utf-8').read().count('\\n') for file in files),\n"
        "    any(n.startswith('pettingllms_envs.sandbox') for n in sys.modules))"
    )
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=clean)
    num_modules, num_lines, has_sandbox = run.stdout.split()
    assert int(num_modules) <= modules
    assert int(num_lines) <= lines  # of files, as `wc -l` counts them
    assert has_sandbox == "False"


@pytest.mark.slow
def test_the_trainer_loads_what_every_training_needs_and_no_more() -> None:
    program = (
        "import sys; from pettingllms_trl import MultiAgentGRPOTrainer\n"
        "files = [m.__file__ for n, m in sys.modules.items() if n.startswith('pettingllms_')]\n"
        "print(len(files), sum(open(file, encoding='utf-8').read().count('\\n') for file in files))"
    )
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=clean)
    num_modules, num_lines = run.stdout.split()[-2:]
    assert int(num_modules) <= 130
    assert int(num_lines) <= 23_000


def test_importing_the_trainers_package_registers_the_environments() -> None:
    program = (
        "import pettingllms_trl, pettingzoo; print(pettingzoo.make('aec', 'pettingllms/sokoban-v0').metadata['name'])"
    )
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=clean)
    assert run.stdout.split() == ["sokoban_v0"]


def test_importing_the_trainers_package_takes_no_time_before_one_of_its_names_is_used() -> None:
    program = (
        "import pettingllms_envs, time; start = time.process_time(); import pettingllms_trl\n"
        "print(time.process_time() - start)"
    )
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=clean)
    assert float(run.stdout) < 0.05  # CPU seconds (0.0004 here)
