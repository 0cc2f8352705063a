"""Search among a model's own designs without learning: those that did best become a suite of fixed teams.

    pettingllms bench math --set workflow=designed --split validation --limit 100 --samples 4 \
        --base-url URL --model MODEL --output outputs/designs
    python examples/search_designs.py outputs/designs --member api:MODEL --output outputs/searched
    pettingllms bench outputs/searched/suite.yaml --split validation --base-url URL

A design that succeeded once on its own question may fit no other one. So the second `bench` plays each of them on
all, and its best team is the one to play on the test split. docs/designed_teams.md has the other baselines.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import yaml

from pettingllms_envs.episodes.files import read_header, stream


def designs_of(run: Path) -> dict[str, list[bool]]:
    """The readable designs of a run, each with the successes of its episodes, the best first."""
    found: dict[str, list[bool]] = defaultdict(list)
    for row in stream(run):
        if row["error"] is None and row["outcome"].get("unreadable_design") is False:
            found[row["steps"][0]["reply"]].append(bool(row["outcome"]["success"]))
    return dict(sorted(found.items(), key=lambda item: -sum(item[1]) / len(item[1])))


def main() -> None:
    """Read a run, write the designs and the suite."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run of `pettingllms bench` with workflow=designed")
    parser.add_argument("--member", required=True, help="agent of the members, such as api:Qwen/Qwen3-1.7B")
    parser.add_argument("--most", type=int, default=10, help="number of designs")
    parser.add_argument("--output", type=Path, default=Path("outputs/searched"))
    options = parser.parse_args()

    config = read_header(options.run)["config"]
    designs = list(designs_of(options.run))[: options.most]
    if not designs:
        parser.error(
            f"{options.run} has no design that can be read; expected some. Play more, or with workflow=designed."
        )
    options.output.mkdir(parents=True, exist_ok=True)
    teams = {}
    for number, design in enumerate(designs):
        file = options.output / f"design_{number}.json"
        file.write_text(json.dumps([design]), "utf-8")
        teams[f"design_{number}"] = {"designer": f"scripted:{file.resolve()}", "member": options.member}
    suite = {"environments": [{"env": config["env"], "set": config["settings"]}], "teams": teams}
    (options.output / "suite.yaml").write_text(yaml.safe_dump(suite, sort_keys=False), "utf-8")
    print(f"{len(designs)} designs, and {options.output / 'suite.yaml'}, which plays each of them on all questions")


if __name__ == "__main__":
    main()
