"""Writes the configurations next to this file: the paper's tasks x {L0, L1, L2, L3} x {1.7B, 8B}, in its settings.

    python examples/configs/generate.py

The games have two teams, a drafter and a planner, and the paper's, a tool and a planner (`<game>_tool_...`). Programs
and mathematics have a file for each training: `code_...` trains on the problems that the paper's code trains on at
that size, `math_...` on Polaris, and the saved team is evaluated on three benchmarks each (docs/paper.md has the
commands). `code_math_...` is both in one run, and `gsm8k_...` is a debate in the setting of MAPoRL.

Two show more: one run on all games (`mixed_...`), and one whose roles learn in turns (`..._turns`). The tasks that
need a team have two each, 1.7B at L2: with paid messages, and unpaid with another credit (`..._counterfactual`).
`designed_...` trains a designer and the members of its teams, 1.7B at L1 and L2.
Two are of a small pretrained model, 135M at L2, which trains on a CPU as well, with settings of its own. `gpus_*` are
those of docs/gpus.md: vLLM in every process, on one GPU, eight, and two machines of eight, and on a CPU.
`plan_path_image_...` is of a model with vision, whose describer sees the board as a picture (docs/images.md).

Each file is self-contained, since it is what gets copied, changed, and sent along with a result; TRL has no base
files. They are generated, so that near-copies cannot drift apart, and a test compares
(`tests/trl/cli/test_configs.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias


FOLDER = Path(__file__).parent

Lines: TypeAlias = tuple[tuple[str, str], ...]
"""Lines of YAML, each with a comment or an empty one."""


class Game(NamedTuple):
    """An environment, with its settings as lines of YAML."""

    env_id: str
    settings: tuple[str, ...]


class Corpus(NamedTuple):
    """An environment on a data set that is prepared first.

    Args:
        env_id: The environment.
        hub: The data set's id on the Hub.
        level: The only level of its problems that is trained on; None for all.
        why: On the level, as a comment.
    """

    env_id: str
    hub: str
    level: int | None = None
    why: str = ""

    @property
    def folder(self) -> str:
        """Where `pettingllms data prepare` leaves it."""
        return self.hub.replace("/", "__")


class Layout(NamedTuple):
    """The agents, and the weights they use."""

    what: str
    workflow: str
    policies: str
    adapters: bool = False


class Size(NamedTuple):
    """A model, and how many of its sequences a forward pass holds."""

    model: str
    rows: int


class Machines(NamedTuple):
    """What a run is on: its processes, and how many instances a rollout has.

    Args:
        what: In words.
        processes: One for each GPU.
        instances: Of a rollout, all processes together.
        utilization: Share of each GPU that vLLM takes.
        accelerate: The configuration in examples/accelerate_configs; empty: one process, without `accelerate launch`.
    """

    what: str
    processes: int
    instances: int
    utilization: float
    accelerate: str = ""


GAMES = {
    "plan_path": Game("pettingllms/plan_path-v0", ("size: 10",)),
    "sokoban": Game("pettingllms/sokoban-v0", ("size: 6", "boxes: 1")),
    "sudoku": Game("pettingllms/sudoku-v0", ("size: 4",)),
}
LAYOUTS = {
    "L0": Layout("a single agent", "single", "shared"),
    "L1": Layout("a drafter and a planner share one model", "draft_plan", "shared"),
    "L2": Layout("a drafter and a planner, an adapter each on one frozen model", "draft_plan", "lora", adapters=True),
    "L3": Layout("a drafter and a planner, a whole model each", "draft_plan", "full"),
}
SEEING = Layout(
    "a describer that sees the board and a solver that does not, an adapter each on one frozen model",
    "describer_solver",
    "lora",
    adapters=True,
)
WITH_VISION = Size("Qwen/Qwen2.5-VL-3B-Instruct", 8)
DESIGNED_LAYOUTS = {
    "L1": Layout("a designer and the members of its teams share one model", "designed", "shared"),
    "L2": Layout("a designer and its members, an adapter each on one frozen model", "designed", "lora", adapters=True),
}
TOOL_LAYOUTS = {
    "L1": Layout("a tool and a planner share one model", "tool_plan", "shared"),
    "L2": Layout("a tool and a planner, an adapter each on one frozen model", "tool_plan", "lora", adapters=True),
    "L3": Layout("a tool and a planner, a whole model each", "tool_plan", "full"),
}
PAIRS = {
    "code": ("a coder and a tester", "coder_tester"),
    "math": ("a tool and a reasoner", "tool_reasoner"),
}
"""The paper's teams for programs and mathematics, and their workflows."""
POLARIS = Corpus("pettingllms/math-v0", "POLARIS-Project/Polaris-Dataset-53K")
CORPORA = {
    "code": {
        "1.7B": Corpus(
            "pettingllms/apps-v0",
            "codeparrot/apps",
            1,
            "introductory; the published script has an easier part of APPS",
        ),
        "8B": Corpus("pettingllms/code_contests-v0", "deepmind/code_contests"),
    },
    "math": dict.fromkeys(("1.7B", "8B"), POLARIS),
}
"""What is trained on at each size, as in the scripts of the paper's code."""
OR_DAPO = "; or BytedTsinghua-SIA__DAPO-Math-17k"
CODE_MATH = Layout("four roles share one model", "", "shared")
GSM8K = Corpus("pettingllms/math-v0", "openai/gsm8k")
TEAMS = {
    "note_taking": (
        Game("pettingllms/note_taking-v0", ("readings: 8", "values: 1000", "digits: 12")),
        Layout("two note takers, an adapter each on one frozen model", "team", "lora", adapters=True),
    ),
    "archives": (
        Game("pettingllms/archives-v0", ("hops: 2", "size: 40", "facts: 1", "order: question")),
        Layout("two librarians with one adapter, an answerer with another", "team", "lora", adapters=True),
    ),
}
SMALL_GAMES = {
    "plan_path": (
        Game("pettingllms/plan_path-v0", ("workflow: draft_plan", "size: 4", "num_turns: 1")),
        LAYOUTS["L2"],
    ),
    "archives": (
        Game(
            "pettingllms/archives-v0",
            ("workflow: team", "hops: 2", "size: 8", "results: 1", "facts: 1", "order: question"),
        ),
        TEAMS["archives"][1],
    ),
}
MACHINES = {
    "gpus_1x80_L2_8B": ("L2", Machines("one GPU of 80 GB", 1, 32, 0.45)),
    "gpus_8x80_L2_8B": ("L2", Machines("eight GPUs of 80 GB", 8, 64, 0.45, "ddp.yaml")),
    "gpus_8x80_L1_8B": ("L1", Machines("eight GPUs of 80 GB", 8, 64, 0.45, "zero3.yaml")),
    "gpus_2x8x80_L2_8B": ("L2", Machines("two machines of eight GPUs of 80 GB", 16, 128, 0.45, "ddp.yaml")),
}
SIZES = {"1.7B": Size("Qwen/Qwen3-1.7B", 8), "8B": Size("Qwen/Qwen3-8B", 4)}

SMALL = "135M"
SMALL_MODEL = Size("HuggingFaceTB/SmolLM2-135M-Instruct", 8)

NUM_GENERATIONS, GLOBAL_BATCH, MINI_BATCH = 4, 128, 64
NUM_ROLLOUTS = 200  # the reference's `total_training_steps`
ROWS = GLOBAL_BATCH // NUM_GENERATIONS
UPDATES = NUM_ROLLOUTS * GLOBAL_BATCH // MINI_BATCH

SAMPLING: Lines = (
    ("sampling: tree", ""),
    (f"num_generations: {NUM_GENERATIONS}", "K"),
    ("temperature: 1.0", ""),
    ("top_p: 1.0", ""),
    ("max_completion_length: 4096", "prompts, some 1,100 characters here, have no limit (the paper's: 16384)"),
    ("chat_template_kwargs:", ""),
    ("  enable_thinking: false", "as in the reference's configurations"),
)
SAMPLING_8K: Lines = tuple(
    (line, "prompts have no limit (the paper's: 8192)" if line.startswith("max_completion_length") else why)
    for line, why in SAMPLING
)
LOOKING: Lines = (
    ("logging_steps: 1", ""),
    ("report_to: none", "or wandb, tensorboard, trackio: what is installed"),
    ("log_completions: true", "completions/*.parquet: every candidate, its reward and its advantage"),
    ("num_completions_to_print: 0", "TRL's table shows rows at random; `num_trees` shows an episode"),
    ("num_trees: 1", ""),
    ("eval_strategy: steps", ""),
    ("eval_steps: 50", ""),
    ("save_steps: 50", ""),
    ("save_total_limit: 2", ""),
)

SEEDS: Lines = (
    (f"train_seeds: [0, {NUM_ROLLOUTS * ROWS}]", f"{NUM_ROLLOUTS} rollouts of {ROWS} instances, none twice"),
    ("train_split: train", ""),
    ("eval_seeds: [0, 200]", ""),
)
INSTANCES: Lines = (*SEEDS, ("eval_split: validation", "no symmetric copy of an instance that is trained on"))
CORPUS_SEEDS: Lines = (
    (
        f"train_seeds: [0, {NUM_ROLLOUTS * ROWS}]",
        f"{NUM_ROLLOUTS} rollouts of {ROWS} problems; seed s is problem s modulo n",
    ),
    ("train_split: train", ""),
    ("eval_seeds: [0, 100]", ""),
    ("eval_split: validation", "of the same data set; benchmarks are played by `pettingllms bench`"),
)
SANDBOX: Lines = (("num_threads: 16", "programs run in the sandbox, several at once"),)
EXECUTIONS: Lines = (
    ("branch_at: [designer]", ""),
    ("num_continuations: 4", "N, the executions of each of the K = M designs; 4 x 4 is MetaAgent-X's"),
    ("train_continuations: true", "members learn in them"),
    ("continuation_group: candidate", "among those of one design; MetaAgent-X's are of all designs of a question"),
    (f"max_envs: {ROWS * 17}", f"{ROWS} instances x (4 x 4 + 1) executions at once; without it, x 4"),
)
CONTINUATIONS: Lines = (("num_continuations: 1", "each candidate's branch is played to its end"),)
LONGEST = 4608
"""Tokens of the longest sequence on GPUs: a prompt of 500 and a completion of 4,096, in blocks of 16."""
CPU_RUN: Lines = (
    ("env_id: pettingllms/plan_path-v0", ""),
    ("env_kwargs:", ""),
    ("  workflow: draft_plan", ""),
    ("  size: 4", ""),
    ("  num_turns: 1", ""),
    ("train_seeds: [0, 64]", ""),
    ("train_split: train", ""),
)
CPU_TEAM: Lines = (
    ("model_name_or_path: outputs/tiny", "made by `python -m pettingllms_trl.testing outputs/tiny`"),
    ("policies: lora", ""),
    ("lora_r: 4", ""),
    ("dtype: float32", ""),
)
CPU_SAMPLING: Lines = (
    ("use_vllm: true", "in each process; --vllm_mode server for one that is shared"),
    ("num_generations: 4", "K"),
    ("max_completion_length: 12", ""),
    ("vllm_max_model_length: 2048", "the prompt has a token for every byte"),
)
CPU_UPDATE: Lines = (
    ("learning_rate: 1.0e-3", "any: the model knows nothing"),
    ("entropy_coef: 0.01", "so that there is a gradient: no reply of such a model is worth more than another"),
    ("generation_batch_size: 16", "4 instances x K, shared out over the processes"),
    ("per_device_train_batch_size: 4", ""),
    ("gradient_accumulation_steps: 2", "2 x 4 x 2 processes = 16: an update a rollout; with one process 4"),
    ("max_steps: 3", ""),
    ("use_cpu: true", ""),
    ("bf16: false", ""),
    ("seed: 0", ""),
)
CPU_LOOKING: Lines = (
    ("logging_steps: 1", ""),
    ("report_to: none", ""),
    ('save_strategy: "no"', ""),
)
SMALL_INSTANCES: Lines = (
    ("train_seeds: [0, 80]", "20 rollouts of 4 instances, none twice; on a GPU, [0, 6400]"),
    ("train_split: train", ""),
)
SEEING_SAMPLING: Lines = (
    (f"num_generations: {NUM_GENERATIONS}", "K"),
    ("temperature: 1.0", ""),
    ("top_p: 1.0", ""),
    ("max_completion_length: 256", "a board of 6 x 6 or a plan"),
)
SEEING_MORE: Lines = (
    ("shared_prefix: false", "prompts with images are read once for each candidate anyway"),
    ("image_gain_steps: 10", "agent/describer_0/image_gain: whether it looks"),
)
SMALL_SAMPLING: Lines = (
    ("sampling: tree", ""),
    ("num_generations: 8", "K"),
    ("temperature: 1.0", ""),
    ("top_p: 1.0", ""),
    ("max_completion_length: 16", "a reply is one line"),
)
SMALL_UPDATE: Lines = (
    ("credit: at_grpo", ""),
    ("learning_rate: 1.0e-4", "not tuned"),
    ("lr_scheduler_type: constant", ""),
    ("beta: 0.0", "no KL term"),
    ("epsilon: 0.2", "clip range"),
    ("generation_batch_size: 32", "4 instances x K, at each of their decisions; on a GPU: 256"),
    ("per_device_train_batch_size: 8", "the longest sequences that a forward pass has room for"),
    ("gradient_accumulation_steps: 4", "an update a rollout"),
    ("max_steps: 20", ""),
    ("gradient_checkpointing: false", "the activations of so small a model fit"),
    ("bf16: true", ""),
    ("seed: 0", ""),
)
SMALL_LOOKING: Lines = (
    ("logging_steps: 1", ""),
    ("report_to: none", "or wandb, tensorboard, trackio: what is installed"),
    ("save_steps: 10", ""),
)
PAPERS = "AT-GRPO as in arXiv:2510.11062."
AFTER_WARM_UP = "AT-GRPO after a warm-up by `pettingllms sft`: docs/small_model.md."
MAPORL = "MAPoRL's setting (arXiv:2502.18439), with AT-GRPO on returns instead of PPO."
COUNTERFACTUAL = "AT-GRPO with counterfactual credit."
METAAGENT_X = "M x N as in MetaAgent-X (arXiv:2605.14212): docs/designed_teams.md."
STAGES: Lines = (("alternate_every: 30", "MetaAgent-X's stages, of rollouts here; one model cannot take turns"),)
TURNS: Lines = (("alternate_every: 10", "rollouts that one role learns from while the other is frozen"),)

WHOLE: Lines = (("dtype: float32", "the weights that AdamW changes; the passes run in bfloat16 (bf16: true)"),)
LORA: Lines = (
    ("lora_r: 16", ""),
    ("lora_alpha: 32", ""),
    ("lora_dropout: 0.0", "dropout would be active during sampling"),
    ("lora_target_modules: all-linear", ""),
    ("dtype: bfloat16", "of the frozen model; the adapters are float32"),
)


def files() -> Iterator[tuple[str, str]]:
    """Each file's name and text."""
    for game_name, game in GAMES.items():
        for layout in LAYOUTS:
            for size in SIZES:
                name = f"{game_name}_{layout}_{size}"
                title = f"{game_name}, {layout}: {LAYOUTS[layout].what}"
                played = environment(game, LAYOUTS[layout])
                yield f"{name}.yaml", render(name, title, played, LAYOUTS[layout], SIZES[size])
    for game_name, game in GAMES.items():
        for layout_name, layout in TOOL_LAYOUTS.items():
            for size in SIZES:
                name = f"{game_name}_tool_{layout_name}_{size}"
                title = f"{game_name}, {layout_name}: {layout.what}"
                played = (*environment(game, layout), *SANDBOX)
                yield f"{name}.yaml", render(name, title, played, layout, SIZES[size])
    for domain, corpora in CORPORA.items():
        for layout_name, layout in layouts_of(domain).items():
            for size, corpus in corpora.items():
                name = f"{domain}_{layout_name}_{size}"
                title = f"{domain}, {layout_name}: {layout.what}"
                yield f"{name}.yaml", on_corpora(name, title, corpus_environment(corpus, layout), layout, size, corpus)
    for domain, corpora in CORPORA.items():
        for layout_name, layout in DESIGNED_LAYOUTS.items():
            yield designed(domain, layout_name, layout, corpora["1.7B"])
    layout, size = CODE_MATH, "1.7B"
    both = {domain: CORPORA[domain][size] for domain in PAIRS}
    name = f"code_math_L1_{size}"
    title = f"code and math in one run, L1: {layout.what}"
    yield f"{name}.yaml", on_corpora(name, title, corpus_environments(both), layout, size, *both.values())
    yield "gsm8k_L2_3.8B.yaml", debate("gsm8k_L2_3.8B")
    for task, (game, team) in TEAMS.items():
        for credit, paid in (("at_grpo", True), ("counterfactual", False)):
            name = f"{task}_L2_1.7B" + ("" if paid else f"_{credit}")
            title = f"{task}, L2: {team.what}; {'paid' if paid else 'unpaid'} messages"
            yield (
                f"{name}.yaml",
                render(
                    name,
                    title,
                    team_environment(game, team, pays_messages=paid),
                    team,
                    SIZES["1.7B"],
                    method=PAPERS if paid else COUNTERFACTUAL,
                    credit=credit,
                    sampled=SAMPLING if paid else SAMPLING + CONTINUATIONS,
                ),
            )
    for task, (game, team) in SMALL_GAMES.items():
        name = f"{task}_L2_{SMALL}"
        yield (
            f"{name}.yaml",
            render(
                name,
                f"{task}, L2: {team.what}",
                small_environment(game),
                team,
                SMALL_MODEL,
                method=AFTER_WARM_UP,
                sampled=SMALL_SAMPLING,
                updated=SMALL_UPDATE,
                logged=SMALL_LOOKING,
            ),
        )
    for name, (layout, machines) in MACHINES.items():
        yield f"{name}.yaml", on_machines(name, layout, SIZES["8B"], machines)
    yield "gpus_none.yaml", without_gpu("gpus_none")
    name = "plan_path_image_L2_3B"
    yield (
        f"{name}.yaml",
        render(
            name,
            f"plan_path, L2: {SEEING.what}",
            environment(Game("pettingllms/plan_path-v0", ("size: 6",)), SEEING),
            SEEING,
            WITH_VISION,
            method="For one GPU of 80 GB, on which it has not been run; docs/images.md.",
            sampled=SEEING_SAMPLING,
            more=SEEING_MORE,
        ),
    )
    layout, size = "L2", "1.7B"
    yield (
        f"mixed_{layout}_{size}.yaml",
        render(
            f"mixed_{layout}_{size}",
            f"{', '.join(GAMES)} in one run, {layout}: {LAYOUTS[layout].what}",
            environments(LAYOUTS[layout]),
            LAYOUTS[layout],
            SIZES[size],
        ),
    )
    yield (
        f"sokoban_{layout}_{size}_turns.yaml",
        render(
            f"sokoban_{layout}_{size}_turns",
            f"sokoban, {layout}: {LAYOUTS[layout].what}, which learn in turns",
            environment(GAMES["sokoban"], LAYOUTS[layout]),
            LAYOUTS[layout],
            SIZES[size],
            more=TURNS,
        ),
    )


def layouts_of(domain: str) -> dict[str, Layout]:
    """The layouts for programs or mathematics."""
    pair, workflow = PAIRS[domain]
    return {
        "L0": LAYOUTS["L0"],
        "L1": Layout(f"{pair} share one model", workflow, "shared"),
        "L2": Layout(f"{pair}, an adapter each on one frozen model", workflow, "lora", adapters=True),
        "L3": Layout(f"{pair}, a whole model each", workflow, "full"),
    }


def on_corpora(name: str, title: str, played: Lines, layout: Layout, size: str, *corpora: Corpus) -> str:
    """A configuration that trains on data sets."""
    prepared = "".join(f"#     pettingllms data prepare {corpus.hub}\n" for corpus in corpora)
    return render(name, title, played, layout, SIZES[size], sampled=SAMPLING_8K, prepared=prepared)


def designed(domain: str, layout_name: str, layout: Layout, corpus: Corpus) -> tuple[str, str]:
    """The name and the text of a configuration that trains a designer and its members."""
    name = f"designed_{domain}_{layout_name}_1.7B"
    played = [
        ("  num_turns: 1", "one move is played") if line.startswith("  num_turns") else (line, why)
        for line, why in corpus_environment(corpus, layout)
    ]
    text = render(
        name,
        f"{domain}, {layout_name}: {layout.what}",
        tuple(played),
        layout,
        SIZES["1.7B"],
        method=METAAGENT_X,
        credit="counterfactual",
        sampled=SAMPLING_8K + EXECUTIONS,
        more=STAGES if layout.adapters else (),
        prepared=f"#     pettingllms data prepare {corpus.hub}\n",
    )
    return f"{name}.yaml", text


def corpus_environment(corpus: Corpus, layout: Layout) -> Lines:
    """A data set's problems."""
    levels = (f"train_levels: [{corpus.level}]", f"eval_levels: [{corpus.level}]") if corpus.level else ()
    return (
        (f"env_id: {corpus.env_id}", ""),
        ("env_kwargs:", ""),
        (f"  workflow: {layout.workflow}", ""),
        (f"  data: {corpus.folder}", f"the folder that `data prepare` writes{OR_DAPO * (corpus == POLARIS)}"),
        ("  num_turns: 4", "T"),
        ("  alpha: 1.0", "of alpha * team + local"),
        *CORPUS_SEEDS,
        *((line, corpus.why) for line in levels),
        *SANDBOX,
    )


def corpus_environments(corpora: Mapping[str, Corpus]) -> Lines:
    """Problems of several data sets in one run, each played by its own team."""
    lines: list[tuple[str, str]] = []
    for domain, corpus in corpora.items():
        kwargs = f"workflow: {PAIRS[domain][1]}, data: {corpus.folder}, num_turns: 4, alpha: 1.0"
        lines += [(f"  {domain}:", ""), (f"    env_id: {corpus.env_id}", ""), (f"    env_kwargs: {{{kwargs}}}", "")]
        if corpus.level:
            lines += [(f"    {when}_levels: [{corpus.level}]", corpus.why) for when in ("train", "eval")]
    return (
        ("environments:", "they alternate over the seeds; metrics of each: env/<name>/..."),
        *lines,
        *CORPUS_SEEDS,
        *SANDBOX,
    )


def debate(name: str) -> str:
    """Two debaters on GSM8K, each with an adapter."""
    played = (
        (f"env_id: {GSM8K.env_id}", ""),
        ("env_kwargs:", ""),
        ("  workflow: debate", ""),
        (f"  data: {GSM8K.folder}", "the folder that `data prepare` writes"),
        ("  num_debaters: 2", "MAPoRL's"),
        ("  num_turns: 3", "MAPoRL's rounds"),
        ("  until_agreed: false", "MAPoRL's: all rounds are played"),
        *CORPUS_SEEDS,
    )
    team = (
        ("model_name_or_path: microsoft/Phi-3-mini-128k-instruct", "MAPoRL's"),
        ("policies: {debater_0: debater_0, debater_1: debater_1}", "MAPoRL's: an adapter for each agent"),
        ("lora_r: 8", "MAPoRL's"),
        ("lora_alpha: 16", "MAPoRL's"),
        ("lora_dropout: 0.0", "MAPoRL's is 0.05, which would be active during sampling"),
        ("lora_target_modules: all-linear", "MAPoRL's"),
        ("dtype: bfloat16", "of the frozen model; the adapters are float32"),
    )
    sampled = (
        ("sampling: parallel", "episodes with the same problem, so that later rounds count"),
        (f"num_generations: {NUM_GENERATIONS}", "K; PPO has none"),
        ("temperature: 1.0", ""),
        ("top_p: 1.0", ""),
        ("max_completion_length: 300", "MAPoRL's"),
    )
    changed = {
        "credit": (
            "credit: {at_grpo: {group: turn, value: return_to_go}}",
            "a reply's reward and that of later rounds",
        ),
        "learning_rate": ("learning_rate: 1.0e-5", "MAPoRL's"),
        "beta": ("beta: 0.002", "MAPoRL's KL coefficient"),
    }
    size = Size("microsoft/Phi-3-mini-128k-instruct", 8)
    layout = Layout("two debaters, an adapter each on one frozen model", "debate", "lora", adapters=True)
    return render(
        name,
        f"gsm8k, L2: {layout.what}",
        played,
        layout,
        size,
        method=MAPORL,
        prepared=f"#     pettingllms data prepare {GSM8K.hub}\n",
        team=team,
        sampled=sampled,
        updated=tuple(changed.get(line.partition(":")[0], (line, why)) for line, why in update(layout, size, "")),
    )


def render(
    name: str,
    title: str,
    played: Lines,
    layout: Layout,
    size: Size,
    *,
    method: str = PAPERS,
    credit: str = "at_grpo",
    sampled: Lines = SAMPLING,
    more: Lines = (),
    updated: Lines | None = None,
    logged: Lines = LOOKING,
    command: str = "pettingllms train",
    team: Lines = (),
    prepared: str = "",
) -> str:
    """A configuration, as the text of its file.

    Args:
        name: Of the file.
        title: What it is.
        played: The lines on what is played.
        layout: The agents and their weights.
        size: The model.
        method: What it trains with, in a sentence.
        credit: The credit scheme.
        sampled: The lines on sampling.
        more: Lines on how the weights change.
        updated: All of those lines, instead of the paper's and `more`.
        logged: The lines on logging and saving.
        command: What starts it.
        team: The lines on the model and its policies, instead of those of `layout` and `size`.
        prepared: What is to be done first, lines of the head.
    """
    head = f"""\
# {title}; {size.model}.
#
{prepared}#     {command} --config examples/configs/{name}.yaml
#
# {method} Every field can also be given on the command line, which takes precedence.
# Written by examples/configs/generate.py; change a copy, or the generator.
"""
    sections = {
        "The environment": played,
        "The team": team
        or (
            (f"model_name_or_path: {size.model}", ""),
            (f"policies: {layout.policies}", ""),
            *(LORA if layout.adapters else WHOLE),
        ),
        "Sampling: K candidates for each decision, the best is played on": sampled,
        "The update": (*update(layout, size, credit), *more) if updated is None else updated,
        "Logging and saving": ((f"output_dir: outputs/{name}", ""), *logged),
    }
    return head + "".join(
        f"\n# ---- {title} ----\n" + "".join(f"{line:<39} # {why}".rstrip(" #") + "\n" for line, why in lines)
        for title, lines in sections.items()
    )


def on_machines(name: str, layout_name: str, size: Size, machines: Machines) -> str:
    """A configuration for GPUs of 80 GB: Plan-Path, eight instances or more for each."""
    layout = LAYOUTS[layout_name]
    launch = f"accelerate launch --config_file examples/accelerate_configs/{machines.accelerate}"
    batch = machines.instances * NUM_GENERATIONS
    steps = batch // 2 // (size.rows * machines.processes)
    seeds = NUM_ROLLOUTS * machines.instances
    instances = (
        (f"train_seeds: [0, {seeds}]", f"{NUM_ROLLOUTS} rollouts of {machines.instances} instances, none twice"),
        *INSTANCES[1:],
    )
    changed = {
        "generation_batch_size": (
            f"generation_batch_size: {batch}",
            f"{machines.instances} instances x K, shared out over {machines.processes} processes",
        ),
        "gradient_accumulation_steps": (
            f"gradient_accumulation_steps: {steps}",
            f"{steps} x {size.rows} x {machines.processes} processes = {batch // 2}, the mini-batch",
        ),
    }
    played = (*environment(GAMES["plan_path"], layout)[: -len(INSTANCES)], *instances)
    return render(
        name,
        f"plan_path, {layout_name}: {layout.what}, on {machines.what}",
        played,
        layout,
        size,
        method="AT-GRPO as in arXiv:2510.11062, with a batch for these machines and vLLM in every process.",
        sampled=(*SAMPLING, *vllm(machines.utilization)),
        updated=tuple(
            changed.get(line.partition(":")[0], (line, why)) for line, why in update(layout, size, "at_grpo")
        ),
        command=f"{launch} -m pettingllms_trl.cli train" if machines.accelerate else "pettingllms train",
    )


def vllm(utilization: float) -> Lines:
    """How vLLM samples in each process."""
    return (
        ("use_vllm: true", ""),
        ("vllm_mode: colocate", "an engine in each process"),
        (f"vllm_gpu_memory_utilization: {utilization}", "of each GPU; `--estimate` says whether it fits"),
        (f"vllm_max_model_length: {LONGEST}", "prompt and completion; without it the model's 40,960, which need room"),
    )


def without_gpu(name: str) -> str:
    """The configuration that tries two processes on a CPU, with a model that knows nothing."""
    return render(
        name,
        "plan_path, L2: a drafter and a planner on a tiny random model",
        CPU_RUN,
        Layout("", "", "", adapters=True),
        Size("outputs/tiny", 4),
        method="Two processes on a CPU, to see that they train as one: docs/gpus.md.",
        team=CPU_TEAM,
        sampled=CPU_SAMPLING,
        updated=CPU_UPDATE,
        logged=CPU_LOOKING,
        command="torchrun --nproc_per_node 2 -m pettingllms_trl.cli train",
    )


def environment(game: Game, layout: Layout) -> Lines:
    """What is played, on which instances."""
    return (
        (f"env_id: {game.env_id}", ""),
        ("env_kwargs:", ""),
        (f"  workflow: {layout.workflow}", ""),
        *((f"  {setting}", "") for setting in game.settings),
        ("  num_turns: 4", "T"),
        ("  alpha: 1.0", "of alpha * team + local"),
        *INSTANCES,
    )


def small_environment(game: Game) -> Lines:
    """What the small model plays, on which instances; evaluations are of `pettingllms bench`."""
    settings = ((f"  {setting}", "") for setting in game.settings)
    return ((f"env_id: {game.env_id}", ""), ("env_kwargs:", ""), *settings, *SMALL_INSTANCES)


def team_environment(game: Game, team: Layout, *, pays_messages: bool) -> Lines:
    """A task that needs a team, on which instances."""
    reward = ("  communication_reward: true", "a message is paid for what its reader knows by it")
    if not pays_messages:
        reward = ("  communication_reward: false", "only the answer is paid")
    return (
        (f"env_id: {game.env_id}", ""),
        ("env_kwargs:", ""),
        (f"  workflow: {team.workflow}", ""),
        *((f"  {setting}", "") for setting in game.settings),
        reward,
        ("  alpha: 1.0", "of alpha * team + local"),
        *SEEDS,
        ("eval_split: validation", ""),
    )


def environments(layout: Layout) -> Lines:
    """All games in one run; the instances of each are every third seed."""
    kwargs = (f"workflow: {layout.workflow}", "num_turns: 4", "alpha: 1.0")
    games = [
        line
        for name, game in GAMES.items()
        for line in (
            (f"  {name}:", ""),
            (f"    env_id: {game.env_id}", ""),
            (f"    env_kwargs: {{{', '.join((*kwargs, *game.settings))}}}", ""),
        )
    ]
    return (
        ("environments:", "they alternate over the seeds; metrics of each: env/<name>/..."),
        *games,
        *INSTANCES,
    )


def update(layout: Layout, size: Size, credit: str) -> Lines:
    """How the weights change."""
    steps = MINI_BATCH // size.rows
    rate, why = ("1.0e-6", "the paper's")
    if layout.adapters:
        rate, why = ("1.0e-5", "adapters learn at some ten times the rate of whole models (the paper's: 1e-6)")
    return (
        (f"credit: {credit}", ""),
        (f"learning_rate: {rate}", why),
        ("lr_scheduler_type: constant", ""),
        ("beta: 0.0", "no KL term"),
        ("epsilon: 0.2", "clip range"),
        (f"generation_batch_size: {GLOBAL_BATCH}", f"global batch: {ROWS} instances x K, at each of their decisions"),
        (f"per_device_train_batch_size: {size.rows}", "the longest sequences that a forward pass has room for"),
        (
            f"gradient_accumulation_steps: {steps}",
            f"{steps} x {size.rows} x processes = {MINI_BATCH}, the mini-batch; on 8 processes: {steps // 8}",
        ),
        (f"max_steps: {UPDATES}", "two updates a rollout"),
        ("bf16: true", ""),
        ("seed: 0", ""),
    )


def main() -> None:
    """Write them all."""
    for name, text in files():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
