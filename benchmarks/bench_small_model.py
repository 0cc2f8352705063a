"""What reinforcement learning taught a pretrained model of 135M parameters, after its warm-up: docs/small_model.md.

    PYTHONPATH=. python benchmarks/bench_small_model.py models/smollm2-135m --warm outputs/warm \
        --trained outputs/archives_L2_135M --json benchmarks/results/smollm2_135m_archives.json

Success on the first instances of a split, greedily, by arms that differ in the adapter of a role or in the
workflow:

| | |
|---|---|
| `untrained` | the model without adapters |
| `warm` | the adapters of `pettingllms sft`: before |
| `trained` | those of `pettingllms train`: after |
| `supervised` | those of `pettingllms sft --adapters`, from the warm ones: after as many instances, without rewards |
| `trained NAME` | of NAME the trained adapter, of the others the warm one |
| `swapped` | each role has the adapter of another |
| `cut` | the trained team, and no message arrives (where the environment has this form) |

Arms of the same instances are compared in pairs with the arms `warm` and `supervised`. What is chosen (the learning
rate, say) is chosen by `--split validation`.

All episodes are played in step, and the prompts of an agent, which begin alike, have that beginning read once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from figures import table
from machine import machine
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

import pettingllms_envs
from pettingllms_envs.evaluation.statistics import paired_interval, wilson
from pettingllms_trl.config_files import read
from pettingllms_trl.records import role_of


MAX_NEW_TOKENS = 16
LOGGED = ("step", "reward", "frac_reward_zero_std", "step_time")
WARM, TRAINED, SUPERVISED, BARE = "warm", "trained", "supervised", ""

Reply = Callable[[str, Sequence[Any]], list[str]]
"""Replies of a role to the observations of one of its agents."""


class Arm(NamedTuple):
    """Who plays, in what form.

    Args:
        adapters: Of each role, the folder (`"warm"`, `"trained"`, `"supervised"`) and the name; of `""`, the bare
            model.
        workflow: Of the environment; None for that of the configuration.
    """

    adapters: Mapping[str, tuple[str, str]]
    workflow: str | None = None

    @property
    def folders(self) -> set[str]:
        return {folder for folder, _ in self.adapters.values()}


def arms(roles: Sequence[str], *, cut: bool) -> dict[str, Arm]:
    """Which adapter each role plays with in each arm; `swapped` gives each role the adapter of the next one."""
    following = dict(zip(roles, (*roles[1:], roles[0]), strict=True))
    found = {
        "untrained": Arm({role: (BARE, role) for role in roles}),
        WARM: Arm({role: (WARM, role) for role in roles}),
        TRAINED: Arm({role: (TRAINED, role) for role in roles}),
        SUPERVISED: Arm({role: (SUPERVISED, role) for role in roles}),
        "swapped": Arm({role: (TRAINED, following[role]) for role in roles}),
    }
    for one in roles:
        found[f"trained {one}"] = Arm({role: (TRAINED if role == one else WARM, role) for role in roles})
    if cut:
        found["cut"] = found[TRAINED]._replace(workflow="cut")
    return found


class Player:
    """The model with the adapters of all folders; see `reply`."""

    def __init__(self, model: str, folders: Mapping[str, Path], roles: Sequence[str], dtype: str) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(model)
        loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
        for name, folder in folders.items():
            for role in roles:
                if isinstance(loaded, PeftModel):
                    loaded.load_adapter(str(folder / role), f"{name}_{role}")
                else:
                    loaded = PeftModel.from_pretrained(loaded, str(folder / role), f"{name}_{role}")
        self._model = loaded.eval()

    @torch.no_grad()
    def reply(self, adapter: tuple[str, str], observations: Sequence[Mapping[str, str]]) -> list[str]:
        """Greedy replies of an adapter to observations of one agent."""
        prompts = [self._ids(observation) for observation in observations]
        shared = shared_length(prompts)
        longest = max(map(len, prompts))
        pad = self._tokenizer.pad_token_id
        # Padded between the shared beginning and the rest: positions are counted by the mask.
        rows = [[*ids[:shared], *[pad] * (longest - len(ids)), *ids[shared:]] for ids in prompts]
        mask = [[*[1] * shared, *[0] * (longest - len(ids)), *[1] * (len(ids) - shared)] for ids in prompts]
        folder, role = adapter
        if folder != BARE:
            self._model.set_adapter(f"{folder}_{role}")
            return self._generate(rows, mask, shared)
        with self._model.disable_adapter():
            return self._generate(rows, mask, shared)

    def _generate(self, rows: list[list[int]], mask: list[list[int]], shared: int) -> list[str]:
        ids, cache = torch.tensor(rows), DynamicCache()  # (B, P)
        self._model(input_ids=ids[:1, :shared], past_key_values=cache, logits_to_keep=1)
        cache.batch_repeat_interleave(len(rows))
        sampled = self._model.generate(
            input_ids=ids,
            attention_mask=torch.tensor(mask),
            past_key_values=cache,
            max_new_tokens=MAX_NEW_TOKENS,
            do_sample=False,
            pad_token_id=self._tokenizer.pad_token_id,
        )
        return list(self._tokenizer.batch_decode(sampled[:, ids.shape[1] :], skip_special_tokens=True))

    def _ids(self, observation: Mapping[str, str]) -> list[int]:
        messages = [
            {"role": "system", "content": observation["system"]},
            {"role": "user", "content": observation["text"]},
        ]
        return list(self._tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"])


def shared_length(prompts: Sequence[Sequence[int]]) -> int:
    """How many tokens all prompts begin with, and each has at least one more."""
    alike = itertools.takewhile(lambda tokens: len(set(tokens)) == 1, zip(*prompts, strict=False))
    return min(sum(1 for _ in alike), min(map(len, prompts)) - 1)


def play(
    make_env: Callable[[], Any], seeds: Sequence[int], reply: Reply, *, split: str = "test"
) -> list[dict[str, Any]]:
    """The outcomes of the episodes of a split, played in step; `reply` gets the prompts of one agent."""
    envs = [make_env() for _ in seeds]
    for env, seed in zip(envs, seeds, strict=True):
        env.reset(seed=seed, options={"split": split})
    outcomes: list[dict[str, Any]] = [{} for _ in seeds]
    while waiting := [i for i, env in enumerate(envs) if _is_waiting(env)]:
        agent = envs[waiting[0]].agent_selection  # only the prompts of one agent begin with the same rules
        now = [i for i in waiting if envs[i].agent_selection == agent]
        replies = reply(role_of(agent), [envs[i].observe(agent) for i in now])
        for i, text in zip(now, replies, strict=True):
            envs[i].step(text)
            outcomes[i] = dict(envs[i].unwrapped.infos[agent]["outcome"])
    return outcomes


def _is_waiting(env: Any) -> bool:
    return bool(env.agents) and not any((*env.terminations.values(), *env.truncations.values()))


def figures(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Success with its 95% interval (Wilson), and the means of what else outcomes say."""
    successes = sum(bool(outcome["success"]) for outcome in outcomes)
    names = [name for name, value in outcomes[0].items() if isinstance(value, float | int)]
    return {
        "episodes": len(outcomes),
        "success": successes / len(outcomes),
        "solved": "".join("1" if outcome["success"] else "0" for outcome in outcomes),
        "interval": [round(end, 4) for end in wilson(successes, len(outcomes))],
        "means": {name: sum(float(outcome[name]) for outcome in outcomes) / len(outcomes) for name in names},
    }


def environment(config: Mapping[str, Any], workflow: str | None) -> Callable[[], Any]:
    """The environment of a configuration, perhaps in another form."""
    kwargs = {**config["env_kwargs"], **({} if workflow is None else {"workflow": workflow})}
    return lambda: pettingllms_envs.make(config["env_id"].removeprefix("pettingllms/"), **kwargs)


def steps_of(folder: Path) -> dict[str, Any]:
    """`LOGGED` of the training steps, from the `trainer_state.json` of the newest checkpoint."""
    (*_, newest) = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    log = [line for line in json.loads((newest / "trainer_state.json").read_text())["log_history"] if "loss" in line]
    return {
        "steps": len(log),
        "logged": [{name: line[name] for name in LOGGED if name in line} for line in log],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the arms, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder or name of the base model")
    parser.add_argument("--config", type=Path, default=Path("examples/configs/archives_L2_135M.yaml"))
    parser.add_argument("--env_kwargs", type=json.loads, default={}, help="instead of some of the configuration's")
    parser.add_argument("--warm", type=Path, required=True, help="folder of `pettingllms sft`")
    parser.add_argument("--trained", type=Path, help="folder of `pettingllms train`")
    parser.add_argument("--supervised", type=Path, help="folder of `pettingllms sft --adapters`")
    parser.add_argument("--arms", nargs="+", help="some of the arms; by default all whose adapters are given")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--split", default="test")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--json", type=Path, help="file to which the arms are added, of the same split")
    options = parser.parse_args(arguments)
    config = dict(read(options.config).values)
    config["env_kwargs"] = config["env_kwargs"] | options.env_kwargs
    env = environment(config, None)()
    roles = list(dict.fromkeys(map(role_of, env.possible_agents)))
    chosen = arms(roles, cut="archives" in config["env_id"])
    given = {WARM: options.warm, TRAINED: options.trained, SUPERVISED: options.supervised}
    folders = {name: folder for name, folder in given.items() if folder is not None}
    player = Player(options.model, folders, roles, options.dtype)
    for name in options.arms or [name for name, arm in chosen.items() if arm.folders <= {BARE, *folders}]:
        arm, start = chosen[name], time.process_time()
        outcomes = play(
            environment(config, arm.workflow),
            range(options.episodes),
            lambda role, seen, arm=arm: [
                text for part in _batches(seen) for text in player.reply(arm.adapters[role], part)
            ],
            split=options.split,
        )
        found = {**figures(outcomes), "cpu_seconds": round(time.process_time() - start, 1), "machine": machine()}
        print(name, json.dumps(found), flush=True)
        if options.json is not None:
            saved = json.loads(options.json.read_text()) if options.json.exists() else {"arms": {}}
            saved |= {"config": config, "split": options.split}
            if options.trained is not None:
                saved["training"] = steps_of(options.trained)
            saved["arms"][name] = found
            options.json.write_text(json.dumps(saved, indent=1) + "\n")
    if options.json is not None:
        print(table(results(saved)))
    return 0


def results(saved: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Rows of the table: success with its interval beside the proven bound, where the environment has one."""
    yield "", "success", *(f"more than {name}" for name in (WARM, SUPERVISED)), "found", "told", "a lone agent at most"
    for name, found in saved["arms"].items():
        low, high = found["interval"]
        means = found["means"]
        shares = (f"{means[key]:.1%}" if key in means else "" for key in ("found", "told", "lone_bound"))
        more = (
            _paired(found["solved"], saved["arms"][other]["solved"])
            if other in saved["arms"] and other != name
            else ""
            for other in (WARM, SUPERVISED)
        )
        yield name, f"{found['success']:.1%} ({low:.1%} to {high:.1%})", *more, *shares


def _paired(solved: str, before: str) -> str:
    """Points by which the first is above the second with a 95% interval, on the instances that both have played."""
    pairs = Counter(zip(solved, before, strict=False))
    low, high = paired_interval(pairs["1", "1"], pairs["1", "0"], pairs["0", "1"], pairs["0", "0"])
    difference = (pairs["1", "0"] - pairs["0", "1"]) / pairs.total()
    return f"{100 * difference:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def _batches(seen: Sequence[Any], size: int = 100) -> Iterator[Sequence[Any]]:
    for start in range(0, len(seen), size):
        yield seen[start : start + size]


if __name__ == "__main__":
    sys.exit(main())
