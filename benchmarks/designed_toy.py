"""A designer and its members learn together, where the worth of every design is known.

    python benchmarks/designed_toy.py                    # the signs, the cost of M x N, and three trainings
    python benchmarks/designed_toy.py --only signs
    python benchmarks/designed_toy.py --only learning --seeds 0 --steps 5

The designer names one of six teams; its members act in turn, each told its job and what the one before it said. A job
has one right word. Where all words are right, everybody is paid the worth of the team, at the end; the designer pays
for each member at once. So the value of a design is its worth times the probability that its members are right, less
its cost, and both the value and its gradient can be enumerated.

`signs`: with policies that are tables, the mean of the gradients that M x N executions give, `counterfactual` for the
designer and `continuation_advantages` for the members, beside the enumerated gradient of each agent's own return.
`cost`: generated tokens of M x N and of as many separate episodes, and the time of a simulated engine.
`learning`: tiny language models with an adapter for each role, which know the form of a reply and nothing else. They
learn in turns, members first; `--every 0` trains both at once.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple


sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples/quickstart"))

import torch
from datasets import Dataset
from peft import LoraConfig
from pettingzoo import AECEnv
from tiny import make_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, PrinterCallback

from pettingllms_envs.spaces import ChatText
from pettingllms_trl import Alternate, MultiAgentGRPOConfig, MultiAgentGRPOTrainer, Policy
from pettingllms_trl.credit import continuation_advantages, counterfactual
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.records import Completion, Request, RolloutOptions, Sampled
from pettingllms_trl.rollout.play import play


class Team(NamedTuple):
    """The jobs of a team's members, and what it earns if all are done right."""

    jobs: tuple[str, ...]
    worth: float


TEAMS = {
    "solo": Team(("x",), 0.3),
    "other": Team(("y",), 0.2),
    "pair": Team(("x", "y"), 1.0),
    "swap": Team(("y", "x"), 0.5),
    "echo": Team(("x", "x"), 0.4),
    "trio": Team(("x", "y", "x"), 1.0),
}
BEST = "pair"
RIGHT = {"x": "a", "y": "b"}
COST, UNREADABLE = 0.05, -0.2
SLOTS = 64
WORDS = ("<pad>", "<unk>", "<end>", "<user>", "<assistant>", "design", "job", "after", *TEAMS, *RIGHT, *"abcd")
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)

Tables = Mapping[str, Mapping[str, float]]
"""The probability of each reply, by the prompt."""


class DesignedToy(AECEnv):
    """The designer names a team, whose members act in turn; see above."""

    metadata: ClassVar[dict[str, Any]] = {
        "name": "designed_toy_v0",
        "render_modes": [],
        "delayed_roles": ["designer", "member"],
    }

    def __init__(self) -> None:
        self.possible_agents = ["designer_0", "member_0", "member_1", "member_2"]
        self.text = ChatText()

    def observation_space(self, agent: str) -> ChatText:
        return self.text

    def action_space(self, agent: str) -> ChatText:
        return self.text

    def observe(self, agent: str) -> str:
        """What the agent whose turn it is is asked."""
        if agent == "designer_0" or agent != self.agent_selection:
            return "design"
        return prompt_of(TEAMS[self.design].jobs, self.said)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """All instances are the same."""
        self.agents = self.possible_agents[:]
        self.agent_selection, self.design = "designer_0", ""
        self.said: tuple[str, ...] = ()
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}

    def step(self, action: str | None) -> None:
        """The first word of a reply counts."""
        if action is None:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[self.agent_selection] = 0.0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        word = (action.split() or [""])[0]
        if self.agent_selection == "designer_0":
            self.design = word if word in TEAMS else ""
            self.rewards["designer_0"] = -COST * len(TEAMS[word].jobs) if self.design else UNREADABLE
        else:
            self.said += (word,)
        jobs = TEAMS[self.design].jobs if self.design else ()
        if len(self.said) == len(jobs):
            if jobs and all_right(jobs, self.said):
                self.rewards = {agent: paid + TEAMS[self.design].worth for agent, paid in self.rewards.items()}
            self.terminations = dict.fromkeys(self.agents, True)
        else:
            self.agent_selection = f"member_{len(self.said)}"
        self._accumulate_rewards()


def prompt_of(jobs: Sequence[str], said: Sequence[str]) -> str:
    """What the next member is asked."""
    return " ".join(["job", jobs[len(said)], *(["after", said[-1]] if said else [])])


def all_right(jobs: Sequence[str], said: Sequence[str]) -> bool:
    """Whether every member said the word of its job."""
    return all(RIGHT[job] == word for job, word in zip(jobs, said, strict=True))


# ---- Enumeration ----------------------------------------------------------------------------------------------------


def executions(jobs: Sequence[str], tables: Tables, said: tuple[str, ...] = ()) -> Iterator[tuple[float, Any]]:
    """Every course of a team's work: its probability and its prompts and replies."""
    if len(said) == len(jobs):
        yield 1.0, ()
        return
    prompt = prompt_of(jobs, said)
    for word, probability in tables[prompt].items():
        for rest, course in executions(jobs, tables, (*said, word)):
            yield probability * rest, ((prompt, word), *course)


def values(tables: Tables) -> dict[str, float]:
    """The value of each design to the designer."""
    found = {}
    for name, team in TEAMS.items():
        courses = executions(team.jobs, tables)
        success = sum(p for p, course in courses if all_right(team.jobs, [word for _, word in course]))
        found[name] = success * team.worth - COST * len(team.jobs)
    return found


def gradient(tables: Tables) -> dict[tuple[str, str], float]:
    """The gradient of the own expected return with respect to the logit of each reply to each prompt."""
    found: dict[tuple[str, str], float] = defaultdict(float)

    def add(prompt: str, word: str, weight: float) -> None:
        for other, probability in tables[prompt].items():  # the score of a softmax: 1 - p of the reply, -p of others
            found[prompt, other] += weight * ((other == word) - probability)

    of_design = values(tables)
    for name, team in TEAMS.items():
        chosen = tables["design"][name]
        add("design", name, chosen * of_design[name])
        for probability, course in executions(team.jobs, tables):
            if all_right(team.jobs, [word for _, word in course]):
                for prompt, word in course:
                    add(prompt, word, chosen * probability * team.worth)
    return dict(found)


# ---- What M x N executions give ----------------------------------------------------------------------------------


def engine_of(tables: Tables, seed: int) -> BatchedEngine:
    """Replies by the tables."""
    rng = random.Random(seed)

    def sample(requests: Sequence[Request]) -> list[Sampled]:
        answers = []
        for request in requests:
            text = request.prompt.messages[0]["content"]
            ids = tuple(WORDS.index(word) for word in text.split())
            replies = rng.choices(list(tables[text]), list(tables[text].values()), k=request.num_candidates)
            completions = tuple(Completion(ids=(WORDS.index(word),), text=word) for word in replies)
            answers.append(Sampled(replace(request.prompt, ids=ids), completions))
        return answers

    return BatchedEngine(sample)


def uneven(seed: int) -> dict[str, dict[str, float]]:
    """Tables of all prompts, drawn at random."""
    rng = random.Random(seed)
    found = {}
    for prompt, replies in prompts().items():
        logits = [math.exp(rng.gauss(0.0, 0.5)) for _ in replies]
        found[prompt] = {word: each / sum(logits) for word, each in zip(replies, logits, strict=True)}
    return found


def estimate(
    tables: Tables, *, rows: int, designs: int, repeats: int, group: Any, seed: int
) -> dict[tuple[str, str], tuple[float, float]]:
    """Mean and standard error over rows of the gradient that M x N executions of each give."""
    options = RolloutOptions(
        sampling="tree", num_candidates=designs, num_continuations=repeats, keep_continuations=True
    )
    members = DesignedToy().possible_agents[1:]
    rollout = play(
        [{"seed": i} for i in range(rows)],
        engine_of(tables, seed),
        options,
        make_env=DesignedToy,
        seed="0",
        partners=members,
    )
    own = [d for episode in rollout.episodes for d in episode.decisions if d.agent == "designer_0"]
    inside = [d for episode in rollout.episodes for d in episode.continuations]
    found: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * rows)
    advantages = [*counterfactual(own, scale="none"), *continuation_advantages(inside, scale="none", group=group)]
    for decision, row in zip([*own, *inside], advantages, strict=True):
        prompt = decision.prompt.messages[0]["content"]
        for candidate, advantage in zip(decision.candidates, row, strict=True):
            for word, probability in tables[prompt].items():
                score = (word == candidate.completion.text) - probability
                found[prompt, word][decision.instance] += advantage * score
    result = {}
    for place, of_row in found.items():
        mean = sum(of_row) / rows
        variance = sum((each - mean) ** 2 for each in of_row) / (rows - 1)
        result[place] = mean, math.sqrt(variance / rows)
    return result


def signs(rows: int, group: Any, seed: int) -> list[tuple[str, str, float, float, float]]:
    """For each prompt and reply: the enumerated gradient, and mean and standard error of the estimates."""
    tables = uneven(seed)
    exact = gradient(tables)
    found = estimate(tables, rows=rows, designs=4, repeats=4, group=group, seed=seed)
    return [(*place, exact[place], *found[place]) for place in exact]


# ---- Cost -----------------------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """What executions of designs took.

    Args:
        tokens: Generated.
        seconds: Of an engine that samples 20 ms a token for up to `SLOTS` sequences at once, and for more of them in
            proportion.
    """

    tokens: int
    seconds: float


def cost(designs: int, repeats: int, lengths: Callable[[str], int], rows: int = 16) -> tuple[Cost, Cost]:
    """M x N executions of a tree, and M x N separate episodes, of as many rows.

    Args:
        designs: M.
        repeats: N.
        lengths: Tokens of a reply to a prompt.
        rows: Instances.
    """
    found = []
    for sampling, width, continuations in (("tree", designs, repeats), ("parallel", designs * repeats, 0)):
        seconds = 0.0
        inner = engine_of(uneven(0), 0)

        def sample(requests: Sequence[Request], inner: BatchedEngine = inner) -> list[Sampled]:
            nonlocal seconds
            answers = inner._sample(requests)
            lasting = [lengths(request.prompt.messages[0]["content"]) for request in requests]
            number = sum(request.num_candidates for request in requests)
            seconds += max(lasting) * 0.02 * max(1.0, number / SLOTS)
            return [
                replace(each, completions=tuple(replace(c, ids=(0,) * n) for c in each.completions))
                for each, n in zip(answers, lasting, strict=True)
            ]

        rollout = play(
            [{"seed": i} for i in range(rows)],
            BatchedEngine(sample),
            RolloutOptions(
                sampling=sampling,
                num_candidates=width,
                num_continuations=continuations,
                max_envs=10_000,
                keep_continuations=True,
            ),
            make_env=DesignedToy,
            seed="0",
            partners=DesignedToy().possible_agents[1:],
        )
        found.append(Cost(rollout.num_sampled_tokens, seconds))
    return found[0], found[1]


# ---- Learning -------------------------------------------------------------------------------------------------------


def tokenizer_of_words() -> PreTrainedTokenizerFast:
    """A token for each word."""
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", pad_token="<pad>", eos_token="<end>", padding_side="left"
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def prompts() -> dict[str, tuple[str, ...]]:
    """All prompts, each with its readable replies."""
    of_members = {f"job {job}{after}": ("a", "b") for job in RIGHT for after in ("", " after a", " after b")}
    return {"design": tuple(TEAMS), **of_members}


def warm_up(model: Any, tokenizer: PreTrainedTokenizerFast, seed: int, steps: int = 100) -> Any:
    """The model after it has imitated replies that are readable and drawn at random, so that it knows the form."""
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        chats = []
        for prompt, replies in prompts().items():
            for reply in (rng.choice(replies) for _ in range(8)):
                chats.append([{"role": "user", "content": prompt}, {"role": "assistant", "content": reply}])
        batch = tokenizer.apply_chat_template(chats, padding=True, return_tensors="pt", return_dict=True)
        labels = torch.full_like(batch["input_ids"], -100)
        labels[:, -2:] = batch["input_ids"][:, -2:]  # the reply and the end of the turn
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def train(seed: int, steps: int, every: int, rest: float = 0.0) -> tuple[dict[str, float], float]:
    """Train, members first, in turns of so many steps, or with 0 both at once: how often each design is then named in
    1,000 episodes, and the CPU seconds.

    Args:
        seed: Of the weights and the training.
        steps: Of the training.
        every: Steps of a turn.
        rest: As that of `Alternate`.
    """
    began = time.process_time()
    tokenizer = tokenizer_of_words()
    rates = {"designer": 2e-3, "member": 4e-3}
    with tempfile.TemporaryDirectory() as folder:
        trainer = MultiAgentGRPOTrainer(
            model=warm_up(make_model(tokenizer, seed=seed), tokenizer, seed),
            env=DesignedToy,
            processing_class=tokenizer,
            policies={role: Policy(adapter=role, learning_rate=rate) for role, rate in rates.items()},
            schedule=Alternate(("member", "designer"), every, rest) if every else None,
            peft_config=LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"),
            args=MultiAgentGRPOConfig(
                output_dir=folder,
                branch_at=["designer"],
                num_generations=6,
                num_continuations=4,
                train_continuations=True,
                continuation_group="candidate",
                per_device_train_batch_size=24,
                steps_per_generation=1,
                max_completion_length=2,
                lr_scheduler_type="constant",
                max_steps=steps,
                seed=seed,
                save_strategy="no",
                logging_steps=1000,
                disable_tqdm=True,
                use_cpu=True,
                bf16=False,
                report_to="none",
            ),
            train_dataset=Dataset.from_dict({"seed": range(100_000)}),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        episodes = trainer.play([{"seed": i} for i in range(1000)])
    named = [(episode.decisions[0].played.completion.text.split() or [""])[0] for episode in episodes]
    return {name: named.count(name) / len(named) for name in TEAMS}, time.process_time() - began


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["signs", "cost", "learning"])
    parser.add_argument("--rows", type=int, default=2000, help="of the signs")
    parser.add_argument("--steps", type=int, default=80, help="of a training")
    parser.add_argument("--every", type=int, default=40, help="steps of a turn; 0: both roles learn at once")
    parser.add_argument("--rest", type=float, default=0.0, help="factor of the rate of those whose turn it is not")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.only in (None, "signs"):
        for group in ("candidate", "decision"):
            found = signs(given.rows, group, seed=0)
            print(f"\ncontinuation_group={group!r}\nprompt        reply   enumerated  estimated (standard error)")
            for prompt, word, exact, mean, error in found:
                print(f"{prompt:13} {word:6} {exact:11.4f} {mean:10.4f} ({error:.4f})")
            right = sum(exact * mean > 0 for *_, exact, mean, _ in found)
            print(f"{right} of {len(found)} signs are those of the enumerated gradient")
    if given.only in (None, "cost"):
        print("\nM x N   tokens of a design / of a member's reply   tokens  time, each beside separate episodes")
        for designs, repeats in ((4, 4), (8, 1), (2, 8)):
            for long, short in ((400, 200), (200, 400)):
                tree, apart = cost(designs, repeats, lambda prompt, a=long, b=short: a if prompt == "design" else b)
                print(
                    f"{designs} x {repeats}   {long:6} / {short:3} {tree.tokens / apart.tokens:38.2f} "
                    f"{tree.seconds / apart.seconds:7.2f}"
                )
    if given.only in (None, "learning"):
        print(f"\n{'seed':5}" + "".join(f"{name:>8}" for name in TEAMS) + "   CPU seconds")
        for seed in given.seeds:
            shares, seconds = train(seed, given.steps, given.every, given.rest)
            print(
                f"{seed:4} " + "".join(f"{share:8.3f}" for share in shares.values()) + f"{seconds:14.0f}", flush=True
            )


if __name__ == "__main__":
    main()
