"""Prompts that are written without asking the template have its very ids; texts are those of transformers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trl
from datasets import Dataset
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from chat_tokenizers import SPECIAL, tokenizer_for
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.policies.prompt_encoder import MOST_KNOWN, Writer, reader
from pettingllms_trl.records import Message
from third_party import Relay


TEMPLATES = Path(trl.__file__).parent / "chat_templates"
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
BOARD = "#####\n#.@G#\n#####\nYou, the planner, are at @.\n\nFeedback: <none> -> 100% of 12's moves"
CONTENTS = [
    BOARD,
    "Łódź 世界 😀\u0301 12  34\t.",
    " led by a space",
    "ended by one\n",
    "user",
    "",
    "system",
    "a <think> b </think>",
    "<tool_response>4</tool_response>",
    "an <|im_end|> or <end_of_turn> or <|eot_id|> said",
    "[INST] and {{ braces }} and {% blocks %}",
]


class Counted:
    """A tokenizer's own way of writing prompts, and how often it was asked."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.prompts, self.renders = tokenizer, 0, 0

    def __call__(self, prompts: Sequence[Sequence[Message]]) -> Sequence[Sequence[int]]:
        self.prompts += len(prompts)
        return self.tokenizer.apply_chat_template(
            [list(p) for p in prompts], add_generation_prompt=True, tokenize=True, return_dict=True
        )["input_ids"]

    def render(self, prompt: Sequence[Message]) -> str:
        self.renders += 1
        return self.tokenizer.apply_chat_template(list(prompt), add_generation_prompt=True, tokenize=False)

    def writer(self, **options: Any) -> Writer:
        return Writer(self, self.render, self.tokenizer, self.tokenizer.chat_template, **options)


def prompt(text: str, system: str | None = "You play.") -> list[Message]:
    lead = [] if system is None else [{"role": "system", "content": system}]
    return [*lead, {"role": "user", "content": text}]


# ---- With the templates of models that are in use -------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.jinja")), ids=lambda path: path.stem)
def test_every_prompt_has_the_ids_that_its_template_gives_it(path: Path) -> None:
    counted = Counted(tokenizer_for(path.read_text(encoding="utf-8")))
    write = counted.writer(check_every=10**9)
    taken = 0
    for system in ("You play.", "You judge <b>.\n", None):
        for text in CONTENTS:
            messages = prompt(text, system)
            try:
                expected = counted([messages])
            except Exception:  # noqa: BLE001  # as of templates that take no system message, or images alone
                continue
            taken += 1
            write([messages])  # once more, for what is kept from the first time
            assert [list(ids) for ids in write([messages])] == [list(ids) for ids in expected], (system, text)
    assert taken or path.stem == "llama3", "no prompt could be written at all"


@pytest.mark.parametrize(
    "name",
    ["qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_5_think", "llama3_1", "gemma3", "phi3_5", "lfm2", "cohere2"],
)
def test_templates_of_common_models_are_not_asked_again(name: str) -> None:
    counted = Counted(tokenizer_for((TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")))
    write = counted.writer(check_every=10**9)
    write([prompt(BOARD)])
    asked = counted.prompts, counted.renders
    texts = [f"{BOARD}\nTurn {i}" for i in range(50)]
    ids = write([prompt(text) for text in texts])
    assert (counted.prompts, counted.renders) == asked
    assert [list(one) for one in ids] == [list(one) for one in counted([prompt(text) for text in texts])]


def test_a_template_that_writes_the_day_is_asked_every_time() -> None:
    source = (TEMPLATES / "llama3_2.jinja").read_text(encoding="utf-8")
    assert "strftime_now" in source
    counted = Counted(tokenizer_for(source))
    write = counted.writer()
    for _ in range(3):
        write([prompt(BOARD)])
    assert counted.prompts == 3


# ---- What a template or a tokenizer may do --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        ("m['content']", "(m['content'] if 'magic' not in m['content'] else 'abracadabra')"),
        ("m['content']", "(m['content'] if m['content'] != 'magic wand' else 'abracadabra')"),
        ("m['content']", "m['content'] | replace('gic', '!')"),
        ("m['content']", "m['content'] | trim"),
        ("m['content']", "m['content'] | upper"),
        ("m['content']", "m['content'][:12]"),
        ("m['content']", "m['content'][:12000]"),
        ("m['content']", "m['content'] + m['content']"),
        ("m['content']", "''"),
        ("'<|im_end|>\n'", "'<|im_end|>\n' + m['content']"),
        ("{% for m", "{% set word = 'magic' %}{% for m"),
    ],
    ids=lambda changed: changed[1].replace("\n", ""),
)
def test_a_template_that_does_something_with_the_message_is_obeyed(changed: tuple[str, str]) -> None:
    source = CHATML.replace(*changed)
    if "set word" in source:
        source = source.replace("m['content'] +", "('abracadabra' if word in m['content'] else m['content']) +")
    counted = Counted(tokenizer_for(source, CHATML))
    write = counted.writer(check_every=10**9)
    for text in ("plain", "a magic wand", "magic wand", " spaced ", "a", "ever so long" * 1500):
        write([prompt("plain")])
        assert [list(one) for one in write([prompt(text)])] == counted([prompt(text)])


def test_a_template_that_is_found_to_differ_is_asked_from_then_on() -> None:
    """It looks at the message in a way that its source does not show: by where its letters are."""
    looks = CHATML.replace("m['content'] +", "(m['content'] if m['content'][0] != m['role'][2] else 'E') +")
    counted = Counted(tokenizer_for(looks, CHATML))
    write = counted.writer(check_every=2)
    assert "user"[2] == "e"
    write([prompt("plain")])
    texts = ["odd", "east", "even so", "odd"]
    with pytest.warns(UserWarning, match="in another way than those before"):
        given = write([prompt(text) for text in texts])
    assert [list(one) for one in given] == counted([prompt(text) for text in texts])
    asked = counted.prompts
    write([prompt("odd")])
    assert counted.prompts == asked + 1


@pytest.mark.parametrize(
    ("token", "usable"),
    [
        (AddedToken("<|act|>", normalized=False), True),
        (AddedToken("<|im_start|>user", normalized=False), False),  # has the other in it
        (AddedToken("@<|im", normalized=False), False),  # may begin in the message
        (AddedToken(">user", normalized=False), False),  # may end in it
    ],
    ids=lambda value: str(value.content if isinstance(value, AddedToken) else ""),
)
def test_the_text_is_cut_only_where_the_tokenizer_does(token: AddedToken, usable: bool) -> None:
    tokenizer = tokenizer_for(CHATML)
    tokenizer.add_tokens([token])
    if "im_" in token.content or "user" in token.content:
        tokenizer.add_tokens([AddedToken("<|im_end|>@", normalized=False)])
    counted = Counted(tokenizer)
    write = counted.writer(check_every=10**9)
    for text in ("plain", "mail me@", "user", "@ at both ends @", "<|act|>", "<|im"):
        write([prompt("plain")])
        assert [list(one) for one in write([prompt(text)])] == counted([prompt(text)])
    asked = counted.prompts
    write([prompt("plain")])
    assert (counted.prompts == asked) == usable


def test_the_text_is_not_cut_at_a_token_that_may_begin_a_letter_earlier() -> None:
    tokenizer = tokenizer_for(CHATML.replace("<|im_end|>\n", "||"), CHATML)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "||"]})
    counted = Counted(tokenizer)
    write = counted.writer(check_every=10**9)
    for text in ("plain", "a | b |", "||", "|"):
        write([prompt("plain")])
        assert [list(one) for one in write([prompt(text)])] == counted([prompt(text)])


def test_a_tokenizer_that_begins_a_text_in_its_own_way_begins_none_in_the_middle() -> None:
    names = ["<pad>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {piece: i for i, piece in enumerate([*names, "▁", *map(chr, range(32, 127)), "\n"])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    inner.decoder = decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<|im_end|>", additional_special_tokens=["<|im_start|>"]
    )
    tokenizer.chat_template = CHATML.replace("+ m['role'] + '\n' +", "+")
    counted = Counted(tokenizer)
    write = counted.writer(check_every=10**9)
    write([prompt("go")])
    asked = counted.prompts
    given = write([prompt("go on")])
    assert counted.prompts == asked
    assert [list(one) for one in given] == counted([prompt("go on")])


def test_what_the_tokenizer_was_told_for_another_text_does_not_count() -> None:
    counted = Counted(tokenizer_for(CHATML))
    write = counted.writer(check_every=10**9)
    write([prompt("a")])
    expected = counted([prompt("a"), prompt("much longer than that")])
    counted.tokenizer(["a", "much longer"], padding=True, truncation=True, max_length=4)
    assert [list(one) for one in write([prompt("a"), prompt("much longer than that")])] == expected


def test_beginnings_that_never_come_again_are_forgotten() -> None:
    counted = Counted(tokenizer_for(CHATML))
    write = counted.writer(check_every=10**9)
    for i in range(MOST_KNOWN + 40):
        assert [list(one) for one in write([prompt("go", f"You are {i}.")])] == counted(
            [prompt("go", f"You are {i}.")]
        )
    asked = counted.prompts
    write([prompt("go", f"You are {i}.") for i in range(40, MOST_KNOWN + 40)])
    assert counted.prompts == asked
    write([prompt("go", "You are 39.")])
    assert counted.prompts > asked


def test_prompts_of_every_kind_in_one_call_come_back_in_their_order() -> None:
    counted = Counted(tokenizer_for(CHATML))
    write = counted.writer()
    prompts = [prompt("a"), prompt(" b"), prompt("a", None), prompt("a"), prompt("c", "You judge.")]
    prompts.append([*prompt("a"), {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}])
    assert [list(one) for one in write(prompts)] == counted(prompts)


# ---- Reading --------------------------------------------------------------------------------------------------------


class Loud(PreTrainedTokenizerFast):
    def _decode(self, *args: Any, **kwargs: Any) -> str:
        return super()._decode(*args, **kwargs).upper()


def test_completions_are_read_as_transformers_reads_them() -> None:
    tokenizer = tokenizer_for(CHATML, merges=(("a", "b"), ("ab", "c")))
    texts = ["abc ab", "Łódź <|im_end|> 😀", "", " two  spaces , and ' s ", "\n"]
    completions: list[Sequence[int]] = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    completions += [tuple(completions[0]), completions[1][:3]]  # the latter ends in the middle of a letter
    assert reader(tokenizer)(completions) == tokenizer.batch_decode(completions, skip_special_tokens=True)
    assert reader(tokenizer)([]) == []


@pytest.mark.parametrize("kind", ["subclass", "spaces mended", "replaced"])
def test_a_tokenizer_with_a_way_of_its_own_is_asked(kind: str) -> None:
    tokenizer = tokenizer_for(CHATML)
    if kind == "subclass":
        tokenizer = Loud(tokenizer_object=tokenizer.backend_tokenizer)
    elif kind == "spaces mended":
        tokenizer.clean_up_tokenization_spaces = True
        tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True
    ids = tokenizer("so it 's", add_special_tokens=False)["input_ids"]
    read = reader(tokenizer)
    if kind == "replaced":
        tokenizer.batch_decode = lambda rows, **_: ["other" for _ in rows]
    assert read([ids]) == [{"subclass": "SO IT 'S", "spaces mended": "so it's", "replaced": "other"}[kind]]


def test_special_tokens_are_those_of_the_templates() -> None:
    """Or the templates above would be tried with a tokenizer that has nothing to cut at."""
    assert SPECIAL.findall("<|im_start|>user <start_of_turn> <|eot_id|>") == [
        "<|im_start|>",
        "<start_of_turn>",
        "<|eot_id|>",
    ]


def test_nothing_warns_on_the_usual_way() -> None:
    counted = Counted(tokenizer_for(CHATML))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write = counted.writer(check_every=1)
        for i in range(20):
            write([prompt(f"Turn {i}")])


def test_a_trainer_plays_without_asking_the_template_and_its_prompts_are_those_of_trl(
    model_path: str, tmp_path: Path
) -> None:
    args = MultiAgentGRPOConfig(
        str(tmp_path),
        use_cpu=True,
        bf16=False,
        report_to="none",
        per_device_train_batch_size=8,
        num_generations=2,
        max_completion_length=32,
    )
    trainer = MultiAgentGRPOTrainer(model_path, Relay, args, Dataset.from_dict({"seed": range(8)}))
    ask, asked = trainer._tokenize_prompts, []
    trainer._tokenize_prompts = lambda prompts: asked.extend(prompts) or ask(prompts)
    trainer.play([{"seed": 0}])
    asked.clear()
    decisions = [d for episode in trainer.play([{"seed": i} for i in range(4)]) for d in episode.decisions]
    assert len(asked) < len(decisions) / 2
    for decision in decisions:
        assert list(decision.prompt_ids) == list(ask([list(decision.prompt)])[0][0])
