"""Demonstrations, what a role was shown and what it replied: from an oracle, from played episodes, from JSON lines.

A line of a file is an object with `role` (a role or an agent), `prompt` and `completion` (chat messages, or texts),
`success` (whether the episode ended so), perhaps `tools`, and perhaps `split`, which must be `"train"`:

    {"role": "planner", "prompt": "Turn 1 of 4. ...", "completion": "Moves: R U", "success": true, "split": "train"}

An image of a prompt is a PNG file in its data URL, as OpenAI's API takes it, with its description:

    {"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}, "alt": "the board"}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pettingzoo import AECEnv

from pettingllms_envs.episodes.files import write_whole
from pettingllms_envs.episodes.observing import success_of
from pettingllms_envs.observations import Image
from pettingllms_envs.prompts import images_of, read_observation
from pettingllms_trl.records import Episode, Prompt, role_of


FIRST_SEED = 10_000_000
"""Of the instances that an oracle plays: far from the seeds that anybody trains on by reinforcement learning."""
TRAIN = "train"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A decision worth imitating, or not: who took it (role or agent), what was shown and said, and its success."""

    role: str
    prompt: Prompt
    reply: str
    success: bool

    def row(self) -> dict[str, Any]:
        """TRL's conversational prompt-completion row; with a column `tools` if the prompt has any."""
        row = {"prompt": list(self.prompt.messages), "completion": [{"role": "assistant", "content": self.reply}]}
        return {**row, "tools": list(self.prompt.tools)} if self.prompt.tools else row


def by_oracle(
    env: AECEnv,
    seeds: Iterable[int],
    levels: Sequence[int] | None = None,
    bots: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Demonstration]:
    """Play each seed's instance of the train split with the environment's own oracle.

    An episode whose outcome does not say whether it succeeded counts as a success: that is what an oracle is for.

    Args:
        env: Its `unwrapped` offers `oracle()`, a reply of the agent that is to act. Where its
            `metadata["reset_options"]` have `split`, that is `"train"`.
        levels: Values of the reset option `level`, used in turn.
        bots: By role, the rule-based player of the environment that plays it in the oracle's place.
    """
    game = env.unwrapped
    if not hasattr(game, "oracle"):
        raise ValueError(
            f"{type(game).__name__} has no oracle(); expected an environment that can say a good reply of the agent "
            "that is to act. Collect successes of a model instead, and give their file (--from episodes.jsonl)."
        )
    fixed = {"split": TRAIN} if "split" in env.metadata.get("reset_options", ()) else {}
    for i, seed in enumerate(seeds):
        options = {**fixed, **({"level": levels[i % len(levels)]} if levels else {})}
        env.reset(seed=seed, options=options or None)
        decisions: list[tuple[str, Prompt, str]] = []
        outcome: Mapping[str, Any] = {}
        while env.agents:
            agent = env.agent_selection
            if env.terminations[agent] or env.truncations[agent]:
                env.step(None)
                continue
            bot = bots.get(role_of(agent))
            reply = str(game.oracle() if bot is None else game.bot(bot))
            decisions.append((role_of(agent), _shown(env.observe(agent), agent), reply))
            env.step(reply)
            outcome = env.infos.get(agent, {}).get("outcome", {})
        success = success_of(outcome) is not False
        for role, prompt, reply in decisions:
            yield Demonstration(role=role, prompt=prompt, reply=reply, success=success)


def _shown(observation: Any, agent: str) -> Prompt:
    messages, tools = read_observation(observation, agent=agent)
    return Prompt(messages, images=tuple(images_of(messages)), tools=tuple(tools))


def of_episodes(episodes: Iterable[Episode]) -> Iterator[Demonstration]:
    """The decisions that were played on; `ValueError` if an outcome does not say whether it was a success."""
    for episode in episodes:
        if (success := success_of(episode.outcome)) is None:
            raise ValueError(
                f"the outcome of an episode is {dict(episode.outcome)}; expected 'success' in it, or nobody knows "
                "which to imitate. Have the environment report it in infos[agent]['outcome']."
            )
        for decision in episode.decisions:
            yield Demonstration(
                role=role_of(decision.agent),
                prompt=replace(decision.prompt, ids=()),  # which are another tokenizer's
                reply=decision.played.completion.text,
                success=success,
            )


def write(path: Path, demonstrations: Iterable[Demonstration], *, split: str = TRAIN) -> int:
    """Write a line for each, to be read by `read`; returns their number. An error leaves the old file whole."""
    rows = [{"role": d.role, **d.row(), "success": d.success, "split": split} for d in demonstrations]
    write_whole(path, "".join(f"{json.dumps(row, default=_written)}\n" for row in rows))
    return len(rows)


def _written(image: Image) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": image.url}, "alt": image.alt}


def read(path: Path) -> Iterator[Demonstration]:
    """The demonstrations of a file, see the top of this one.

    Raises:
        ValueError: A line is not as above, or its instance is not of the train split; with its number.
    """
    for number, line in enumerate(path.read_text("utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield _read(json.loads(line))
        except (TypeError, ValueError, KeyError) as error:
            said = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(
                f"line {number} of {path}: {said}; expected role, prompt, completion and success of an instance of "
                "the train split. Fix or remove the line."
            ) from error


def _read(given: Any) -> Demonstration:
    if not isinstance(given, dict):
        raise TypeError(f"it is a {type(given).__name__}")
    if given.get("split", TRAIN) != TRAIN:
        raise ValueError(f"its split is {given['split']!r}")
    if not isinstance(given["success"], bool):
        raise TypeError(f"its success is {given['success']!r}")
    reply = _reply(given["completion"])
    prompt, role = given["prompt"], str(given["role"])
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    messages = [{**each, "content": _content(each["content"])} for each in messages]
    shown = _shown({"messages": messages, "tools": given.get("tools")}, role)
    return Demonstration(role=role, prompt=shown, reply=reply, success=given["success"])


def _content(given: Any) -> Any:
    """A message's content with its images."""
    if not isinstance(given, list):
        return given
    return [
        Image.of_url(part["image_url"]["url"], part.get("alt", "an image")) if isinstance(part, dict) else part
        for part in given
    ]


def _reply(given: Any) -> str:
    """A reply: a text, or a chat message of the assistant's with one."""
    (message,) = [{"content": given}] if isinstance(given, str) else given
    text = message["content"]
    if not isinstance(text, str) or message.get("role", "assistant") != "assistant" or message.get("tool_calls"):
        raise TypeError(f"its completion is {message!r}, not a text of the assistant's")
    return text
