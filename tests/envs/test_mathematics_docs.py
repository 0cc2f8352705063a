"""docs/mathematics.md says the parts of the rewards and their ranges."""

import re
from pathlib import Path

import pettingllms_envs


DOC = (Path(__file__).parents[2] / "docs" / "mathematics.md").read_text(encoding="utf-8")


def test_the_parts_of_the_rewards_and_their_ranges_are_those_of_the_environment() -> None:
    said: dict[str, set[tuple[float, float]]] = {}
    for part, value in re.findall(r"^\| `(\w+)` \| (?:team|reasoner|tool|either) \|[^|]*\|([^|]*)\|", DOC, re.M):
        span = re.search(r"(-[\d.]+) to ([\d.]+)", value)
        low, high = span.groups() if span else (("-0.2", "0") if part == "format" else ("0", "1"))
        said.setdefault(part, set()).add((float(low), float(high)))
    ranges = pettingllms_envs.make("math").metadata["reward_ranges"]
    assert said == {part: {span} for part, span in ranges.items()}
