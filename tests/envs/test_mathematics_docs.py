"""docs/mathematics.md says what is so: ranges of rewards, and the episode in it."""

import re
from pathlib import Path

import pettingllms_envs


DOC = (Path(__file__).parents[2] / "docs" / "mathematics.md").read_text(encoding="utf-8")
EPISODE = DOC.partition("````text\n")[2].partition("\n````")[0]


def test_the_parts_of_the_rewards_and_their_ranges_are_those_of_the_environment() -> None:
    said: dict[str, set[tuple[float, float]]] = {}
    for part, value in re.findall(r"^\| `(\w+)` \| (?:team|reasoner|tool|either) \|[^|]*\|([^|]*)\|", DOC, re.M):
        span = re.search(r"(-[\d.]+) to ([\d.]+)", value)
        low, high = span.groups() if span else (("-0.2", "0") if part == "format" else ("0", "1"))
        said.setdefault(part, set()).add((float(low), float(high)))
    ranges = pettingllms_envs.make("math").metadata["reward_ranges"]
    assert said == {part: {span} for part, span in ranges.items()}


def test_the_episode_is_played_again_word_for_word() -> None:
    env = pettingllms_envs.make("math", num_turns=3)
    env.reset(seed=0, options={"split": "test", "problem": "c3c53d78289b"})
    replies = iter(re.findall(r"^--- \w+ replies\n(.*?)\n--- rewards", EPISODE, re.M | re.S))
    seen = []
    while not env.standing():
        agent, reply = env.agent_selection, next(replies)
        seen.append(f"--- {agent} reads\n{env.observe(agent)['text']}\n--- {agent} replies\n{reply}")
        env.step(reply)
        paid = {a: {name: round(v, 2) for name, v in env.infos[a]["rewards"].items()} for a in env.agents}
        seen.append(f"--- rewards {paid}")
    seen.append(f"--- {env.standing()} {env.infos['tool_0']['outcome']}")
    assert "\n".join(seen) == EPISODE
