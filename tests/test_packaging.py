import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import release
from pettingllms_envs import installing
from pettingllms_envs.installing import install_command


ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODEL_LIBRARIES = {"accelerate", "datasets", "peft", "tokenizers", "torch", "transformers", "trl", "vllm"}


def requirements(extra: str) -> list[Requirement]:
    """What pyproject.toml names for an extra ("" for the bare install), with `pettingllms[other]` left out."""
    lines = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    return [requirement for requirement in map(Requirement, lines) if requirement.name != PROJECT["name"]]


def included_extras(extra: str) -> set[str]:
    """The other extras of ours that an extra brings."""
    lines = map(Requirement, PROJECT["optional-dependencies"][extra])
    return set().union(*(requirement.extras for requirement in lines if requirement.name == PROJECT["name"]))


def installed_closure(names: set[str]) -> set[str]:
    """Every distribution that installing `names` without extras brings to this machine."""
    closure: set[str] = set()
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in closure:
            continue
        closure.add(name)
        needed = map(Requirement, metadata.requires(name) or [])
        waiting += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return closure


def pins() -> dict[str, str]:
    lines = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines if line)}


def make(*arguments: str, **variables: str) -> str:
    """What `make` prints, in an environment with these variables and none of a `make` that runs the tests."""
    ours = ("MAKEFLAGS", "MAKELEVEL", "OMP_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in ours} | variables
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_a_bare_install_brings_no_model_library():
    closure = installed_closure({requirement.name for requirement in requirements("")})
    assert {"pettingzoo", "gymnasium", "numpy"} <= closure
    assert not closure & MODEL_LIBRARIES


def test_each_extra_brings_what_its_name_says():
    assert {"trl", "transformers", "peft", "torch"} <= {requirement.name for requirement in requirements("trl")}
    assert {"vllm"} == {requirement.name for requirement in requirements("vllm")}
    assert {"pytest", "ruff", "mypy"} <= {requirement.name for requirement in requirements("dev")}
    assert {"huggingface-hub", "pyarrow"} == {requirement.name for requirement in requirements("data")}
    assert included_extras("vllm") == {"trl"}
    assert {"gguf"} == {requirement.name for requirement in requirements("gguf")}
    assert included_extras("gguf") == {"trl"}
    assert {"mcp"} == {requirement.name for requirement in requirements("mcp")}
    assert {"websockets"} == {requirement.name for requirement in requirements("openenv")}
    assert {"ray"} == {requirement.name for requirement in requirements("ray")}
    assert {"tensorboard", "trackio", "wandb"} == {requirement.name for requirement in requirements("trackers")}
    assert {"mujoco-core"} == {requirement.name for requirement in requirements("robots")}
    assert {"bm25s", "sentence-transformers"} == {requirement.name for requirement in requirements("search")}
    assert {"pyosys"} == {requirement.name for requirement in requirements("verilog")}
    of_dev = "data gguf mcp openenv ray robots search suites trl verilog"
    assert included_extras("dev") == {*of_dev.split()}


def test_trl_is_held_to_the_minor_version_whose_private_methods_we_override():
    (trl,) = [requirement for requirement in requirements("trl") if requirement.name == "trl"]
    assert trl.specifier.contains("1.16.3")
    assert not trl.specifier.contains("1.15.0")
    assert not trl.specifier.contains("1.17.0")


@pytest.mark.parametrize("extra", ["", "data", "gguf", "openenv", "ray", "search", "trl", "docs", "dev"])
def test_constraints_pin_every_named_requirement_within_its_range(extra):
    pinned = pins()
    wrong = [
        f"{requirement} (pinned: {pinned.get(requirement.name)})"
        for requirement in requirements(extra)
        if not requirement.specifier.contains(pinned.get(requirement.name, "0"))
    ]
    assert not wrong


def test_both_packages_tell_type_checkers_that_they_are_typed():
    for package in ("pettingllms_envs", "pettingllms_trl"):
        assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("quickstart", ".venv/bin/python examples/quickstart/quickstart.py"),
        ("test", ".venv/bin/python -m pytest"),
        ("lint", ".venv/bin/python -m mypy"),
        ("docs", ".venv/bin/python -m mkdocs build --strict"),
    ],
)
def test_make_runs_the_command_in_the_virtual_environment_of_the_repository(target, command):
    assert command in make("--dry-run", target)


@pytest.mark.parametrize(
    ("target", "variables", "threads"),
    [
        ("test", {}, "1"),
        ("test", {"OMP_NUM_THREADS": "4"}, "4"),
        ("quickstart", {}, "as many as torch likes"),
        ("quickstart", {"OMP_NUM_THREADS": "4"}, "4"),
    ],
)
def test_only_the_tests_are_held_to_one_thread_and_only_by_default(tmp_path, target, variables, threads):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "${OMP_NUM_THREADS:-as many as torch likes}: $*"\n')
    python.chmod(0o755)
    (tmp_path / ".installed").touch()
    said = make(target, f"VENV={tmp_path}", "ARGS=-k one", **variables)
    assert said.startswith(f"{threads}: ")
    assert said.endswith(" -k one\n")


def test_make_installs_under_the_constraints_only():
    rules = (ROOT / "Makefile").read_text()
    # Environments of their own hold a part of the constraints: torch alone, or what pyproject.toml names.
    others = [
        rules[rules.index(begin) : rules.index(f"\n{end}: ")]
        for begin, end in (("VLLM :=", "test-bench"), ("TRL_NEXT :=", "bench"))
    ]
    own = ("$(VLLM)/torch.txt", "$(TRL_NEXT)/torch.txt", ".bench/named.txt", ".bench/openenv.txt")
    for other in others:
        named = [f"-c {file}" for file in ("constraints.txt", *own)] + ["--no-deps"]  # which brings no torch
        assert other.count("pip install") == sum(other.count(each) for each in named)
        rules = rules.replace(other, "")
    definition, *uses = re.findall(r"(?:\$\(PIP_INSTALL\)|pip install).*", rules)
    assert "-c constraints.txt" in definition
    assert [use.split()[-1] for use in uses] == ["build", "torch", "'.[dev]'", "'.[docs]'"]
    assert all(use.startswith("$(PIP_INSTALL)") for use in uses)


def test_make_shows_what_pip_does():
    assert not re.search(r"pip install.* (-q+|--quiet|--progress-bar)\b", (ROOT / "Makefile").read_text())


TEXTS = [
    *sorted(ROOT.glob("*.md")),
    *(ROOT / "CITATION.cff", ROOT / "Makefile"),
    *(
        path
        for folder in ("docs", "examples", "pettingllms_envs", "pettingllms_trl", "benchmarks", "tools")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".md", ".py", ".txt", ".yaml", ".sh", ".html", ".js", ".svg", ".ipynb")
    ),
]
FROM_AN_INDEX = re.compile(r"""\binstall(\s|-c \S+|--?[\w-]+|["'])+pettingllms\b|pypi\.org/project/pettingllms""")
"""Words that install this package from an index, perhaps over two lines of a string."""


def test_no_text_installs_this_package_from_an_index_for_none_has_it():
    found = [path.relative_to(ROOT).as_posix() for path in TEXTS if FROM_AN_INDEX.search(path.read_text("utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("pip install pettingllms", True),
        ("`pip install 'pettingllms[data]'`", True),
        ("pip install -U pettingllms", True),
        ("Install it: pip install \"\n            \"'pettingllms[data]'", True),
        ("pip install -c constraints.txt --quiet 'pettingllms[mcp]'", True),
        ("[PettingLLMs](https://pypi.org/project/pettingllms/)", True),
        (install_command("data"), False),
        ("pip install -e '.[vllm]' deepspeed", False),
        ("Once it is installed, `pettingllms list` shows it.", False),
    ],
)
def test_every_way_to_install_from_an_index_is_found(text, is_found):
    assert bool(FROM_AN_INDEX.search(text)) is is_found


def test_messages_and_pages_name_extras_that_exist_and_messages_by_the_one_function():
    folders = ("pettingllms_envs", "pettingllms_trl")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    code = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in files}
    assert [name for name, text in code.items() if "install -e '.[" in text] == ["pettingllms_envs/installing.py"]
    pages = "".join(path.read_text("utf-8") for path in TEXTS if path.suffix == ".md")
    named = re.findall(r"""(?:install_command|needs_extra)\(['"](\w+)""", "".join(code.values()))
    named += re.findall(r"""install -e '\.\[(\w+)\]'""", pages)
    own = {"test"}  # an extra of the packages that `pettingllms new` makes
    assert {"data", "gguf", "mcp", "report", "search", "trl", "vllm"} <= set(named) - own
    assert set(named) - own <= set(PROJECT["optional-dependencies"])


def test_the_quickstart_that_make_runs_exists():
    assert (ROOT / "examples" / "quickstart" / "quickstart.py").is_file()


def test_ci_runs_lint_the_tests_and_the_site():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = set(script.read_text().splitlines())
    both = "--jobs 2 --keep-going --output-sync=target lint docs"
    assert {f"make {target} || status=1" for target in (both, "test")} | {'exit "$status"'} <= lines


def test_the_workflow_runs_the_script_that_any_machine_runs():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert [step["run"] for step in workflow["jobs"]["run"]["steps"] if "run" in step] == [".ci/run"]
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert {each["type"] for form in forms for each in yaml.safe_load(form.read_text()).get("body", [])} == {
        "dropdown",
        "input",
        "textarea",
    }


def test_a_release_is_refused_while_the_address_is_a_placeholder_and_the_version_has_no_date():
    assert not installing.is_published()
    assert release.obstacles() == [
        f"REPOSITORY in pettingllms_envs/installing.py is the placeholder {installing.REPOSITORY}",
        f"CHANGELOG.md has no heading of {PROJECT['version']} with its date; "
        f"expected '## {PROJECT['version']} (2030-12-31)'",
    ]
    done = subprocess.run(["make", "-n", "release"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.index("tools/release.py") < done.stdout.index("-m build")


ADDRESS = "https://host.org/team/pettingllms"
PYPROJECT = f'[project]\nversion = "2.1.0"\nurls = {{Repository = "{ADDRESS}"}}\n'
CITATION = f"version: 2.1.0\nrepository-code: {ADDRESS}\nlicense: Apache-2.0\n"
CHANGELOG = "# Changelog\n\n## 2.1.0 (2027-03-04)\n"


@pytest.mark.parametrize(
    ("pyproject", "citation", "changelog", "words"),
    [
        (PYPROJECT, CITATION, CHANGELOG, None),
        (PYPROJECT.replace("host", "other"), CITATION, CHANGELOG, "has the repository https://other.org/"),
        (PYPROJECT, CITATION.replace("2.1.0", "2.0.0"), CHANGELOG, "CITATION.cff has another version; expected 2.1.0"),
        (PYPROJECT, CITATION.replace("host", "other"), CHANGELOG, "CITATION.cff has another repository-code"),
        (PYPROJECT, CITATION, "## 2.1.0 (unreleased)\n", "CHANGELOG.md has no heading of 2.1.0 with its date"),
    ],
)
def test_a_release_needs_one_version_and_one_address_everywhere(
    pyproject, citation, changelog, words, monkeypatch, tmp_path
):
    monkeypatch.setattr(installing, "REPOSITORY", ADDRESS)
    for name, text in (("pyproject.toml", pyproject), ("CITATION.cff", f"\n{citation}"), ("CHANGELOG.md", changelog)):
        (tmp_path / name).write_text(text)
    found = release.obstacles(tmp_path)
    assert [words in sentence for sentence in found] == ([True] if words else [])


BUILD = "from setuptools import build_meta as b; import sys; print(b.build_{0}(sys.argv[1]))"


def built(kind: str, source: Path, to: Path) -> Path:
    """A wheel or sdist of a folder, made by the build backend that pyproject.toml names."""
    command = [sys.executable, "-c", BUILD.format(kind), str(to)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True)
    return to / done.stdout.splitlines()[-1]


def empty_environment(folder: Path) -> Path:
    """A virtual environment with pip, setuptools, and what the bare package needs, linked from here. Its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    for name in installed_closure({each.name for each in requirements("")} | {"pip", "setuptools"}):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}:
            if not (site / top).exists():
                (site / top).symlink_to(distribution.locate_file(top))
    return folder / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_built_package_works_in_an_empty_environment_and_so_does_a_new_game_in_it(kind, tmp_path):
    source, dist = tmp_path / "source", tmp_path / "dist"
    source.mkdir()
    dist.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("pettingllms_envs", "pettingllms_trl"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    archive = built(kind, source, dist)
    python = empty_environment(tmp_path / "empty")

    def run(*command: str, cwd: Path = tmp_path) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    install = [str(python), "-m", "pip", "install", "--no-index", "--no-build-isolation"]
    run(*install, str(archive))
    command = str(python.with_name("pettingllms"))
    assert run(command, "--version") == f"pettingllms {PROJECT['version']}\n"
    missing = "import importlib.util as u; print([n for n in ('torch', 'trl', 'yaml') if u.find_spec(n)])"
    assert run(str(python), "-c", missing) == "[]\n"
    run(command, "bench", "plan_path", "--agents", "oracle", "--limit", "3", "--output", "run")
    run(command, "bench", "apps", "--agents", "oracle", "--limit", "1", "--output", "rows")  # rows of our own
    run(command, "view", "run")
    assert "<title>plan_path_v0" in (tmp_path / "run" / "page.html").read_text()
    run(command, "new", "my_game")
    assert "no package index.\npettingllms\n" in (tmp_path / "my_game" / "requirements.txt").read_text()
    run(*install, "-r", "requirements.txt", "-e", ".", cwd=tmp_path / "my_game")
    assert "Solved" in run(command, "play", "my_game", "--auto", "oracle")


def test_no_test_folder_is_a_package_that_could_shadow_an_installed_one():
    # With an __init__.py in it, tests/trl could be imported as `trl`.
    assert list((ROOT / "tests").rglob("__init__.py")) == []
