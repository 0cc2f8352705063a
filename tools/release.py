"""Say what stands in the way of a release. `make release` builds nothing until this finds nothing.

The version is that of pyproject.toml, the address that of `pettingllms_envs.installing`; whatever repeats them agrees.
"""

import re
import sys
import tomllib
from pathlib import Path

from pettingllms_envs import installing


ROOT = Path(__file__).parents[1]


def obstacles(root: Path = ROOT) -> list[str]:
    """A sentence for everything that has to change before a release.

    Args:
        root: A checkout.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    citation = (root / "CITATION.cff").read_text("utf-8")
    version, named = project["version"], project["urls"].get("Repository")
    found = []
    if not installing.is_published():
        found.append(f"REPOSITORY in pettingllms_envs/installing.py is the placeholder {installing.REPOSITORY}")
    if named != installing.REPOSITORY:
        found.append(f"[project.urls] of pyproject.toml has the repository {named}; expected {installing.REPOSITORY}")
    for field, value in (("version", version), ("repository-code", installing.REPOSITORY)):
        if f"\n{field}: {value}\n" not in citation:
            found.append(f"CITATION.cff has another {field}; expected {value}")
    heading = rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$"
    if not re.search(heading, (root / "CHANGELOG.md").read_text("utf-8"), re.M):
        found.append(f"CHANGELOG.md has no heading of {version} with its date; expected '## {version} (2030-12-31)'")
    return found


if __name__ == "__main__":
    for obstacle in (found := obstacles()):
        print(f"not ready: {obstacle}.", file=sys.stderr)
    sys.exit(bool(found))
