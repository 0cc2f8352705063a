"""Sampling with `generate`: all prompts of a policy in one call, and a prompt of several candidates read once.

`LocalSampler` answers requests with the trainer's own models, one policy after another.

`generate` reads every row of its batch, and a rollout gives it each prompt K times. Here it reads each prompt once, up
to its last token; the keys and values are handed to all rows of it, and `generate` goes on from there as ever. The
random numbers that it draws are the same, and so are the logits but for rounding.

That holds where a forward pass draws no random numbers. A model with dropout in training mode (`draws_noise`) is to
read every row: then each candidate is sampled under a mask of its own, from the random numbers of a plain `generate`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from transformers import DynamicCache, GenerationConfig
from transformers.cache_utils import DynamicLayer
from trl import GRPOConfig
from trl.trainer.utils import split_pixel_values_by_grid, unsplit_pixel_values_by_grid

from pettingllms_envs.observations import Image
from pettingllms_trl.engines.batched import ImageTokens, before_stop, check_lengths, context_of, up_to_stop
from pettingllms_trl.engines.prefix_cache import PrefixCache
from pettingllms_trl.policies.codecs import PolicyCodec
from pettingllms_trl.policies.team import Team
from pettingllms_trl.processes.distributed import replaced_generate
from pettingllms_trl.records import Completion, Prompt, Request, Sampled
from pettingllms_trl.role_sampling import SamplingOverrides


FEWEST_TOKENS = 16
"""Of a prompt: below, the second call costs more than is saved."""


@contextmanager
def prompts_read_once(model: Any, images: Sequence[Images] | None = None) -> Iterator[None]:
    """Within, `model.generate` reads equal rows of its batch once, where the model's cache allows it.

    Args:
        model: A causal model of transformers, or PEFT's around one; its `generate` may be replaced already. One whose
            forward pass draws random numbers now, or that begins with learnt tokens, reads every row.
        images: Of each row, whose inputs are among the arguments of `generate`; `None`: there are none.
    """
    if draws_noise(model) or (isinstance(model, PeftModel) and model.active_peft_config.is_prompt_learning):
        yield
        return
    plain = model.generate

    def generate(*, input_ids: torch.Tensor, attention_mask: torch.Tensor, **kwargs: Any) -> Any:
        batch = {"input_ids": input_ids, "attention_mask": attention_mask}
        inputs = {name: value for name, value in kwargs.items() if isinstance(value, torch.Tensor)}
        if inputs and images is None:  # of something else
            return plain(**batch, **kwargs)
        seen = (inputs, images) if images is not None else None
        # As told for the model around this one: sharded, each process samples at its own pace.
        read = partial(plain, **{name: kwargs[name] for name in ("synced_gpus",) if name in kwargs})
        cache = read_once(read, **batch, generation_config=kwargs.get("generation_config"), seen=seen, model=model)
        if cache is None:
            return plain(**batch, **kwargs)
        rest = {name: value for name, value in kwargs.items() if name not in inputs}  # what was seen is in the cache
        return plain(**batch, **rest, past_key_values=cache)

    with replaced_generate(model, generate):
        yield


def draws_noise(model: nn.Module) -> bool:
    """Whether a forward pass draws random numbers: a module in training mode drops something, or adds noise."""
    return any(module.training and _has_noise(module) for module in model.modules())


def _has_noise(module: nn.Module) -> bool:
    if isinstance(module, _DropoutNd):
        return module.p > 0
    # Layers that call a function instead have `attention_dropout`, `dropout` or `layerdrop`.
    rates = (value for name, value in vars(module).items() if "drop" in name or name == "neftune_noise_alpha")
    return any(isinstance(rate, float | int) and rate > 0 for rate in rates)


def read_once(
    generate: Callable[..., Any],
    *,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    generation_config: GenerationConfig | None,
    seen: tuple[Mapping[str, torch.Tensor], Sequence[Images]] | None = None,
    model: nn.Module | None = None,
) -> DynamicCache | None:
    """Keys and values of all rows but for their last token; None where each prompt stands alone, or is short, or where
    the model keeps something other than keys and values of all tokens (a sliding window, a state).

    Args:
        input_ids: (B, P), padded on the left.
        attention_mask: (B, P)
        seen: The model's inputs of images, and the images of each row.
        model: May keep how many positions the images of each row take.
    """
    if input_ids.shape[1] < FEWEST_TOKENS or (
        generation_config is not None and generation_config.num_beams not in (None, 1)
    ):
        return None
    # Merged by token ids and images. By the mask, too: prompts may begin with the token that pads.
    parts = [input_ids, attention_mask]
    if seen is not None:
        numbers: dict[Images, int] = {}
        shown = [numbers.setdefault(tuple(own), len(numbers)) for own in seen[1]]
        parts.append(input_ids.new_tensor(shown)[:, None])
    rows, of_row = torch.unique(torch.cat(parts, dim=1), dim=0, return_inverse=True)
    if len(rows) > len(input_ids) // 2:
        return None
    first = torch.stack([(of_row == row).int().argmax() for row in range(len(rows))])
    read = generate(
        input_ids=input_ids[first],
        attention_mask=attention_mask[first],
        **({} if seen is None else _inputs_of(first.tolist(), *seen)),
        generation_config=GenerationConfig(
            max_new_tokens=1,
            do_sample=False,
            return_dict_in_generate=True,
            pad_token_id=0 if generation_config is None else generation_config.pad_token_id,
        ),
    )
    cache = read.past_key_values
    if not isinstance(cache, DynamicCache) or any(type(layer) is not DynamicLayer for layer in cache.layers):
        return None
    cache.crop(-1)  # the last token is read with what follows
    cache.batch_select_indices(of_row)
    for module in () if model is None else model.modules():
        deltas = getattr(module, "rope_deltas", None)  # of Qwen's models with vision, for each row that was read
        if isinstance(deltas, torch.Tensor):
            module.rope_deltas = deltas[of_row]
    return cache


def _inputs_of(rows: Sequence[int], inputs: Mapping[str, torch.Tensor], images: Sequence[Images]) -> dict[str, Any]:
    split = split_pixel_values_by_grid({**inputs, "num_images": list(map(len, images))})
    del split["num_images"]
    own: dict[str, Any] = {
        name: [values[row] for row in rows] if isinstance(values, list) else values[list(rows)]
        for name, values in split.items()
    }
    joined: dict[str, Any] = unsplit_pixel_values_by_grid(own)
    return joined


def check_continuous_batching(args: GRPOConfig) -> None:
    """Raises ValueError for what would silently go wrong in transformers' continuous batching as TRL uses it."""
    if args.bf16 or args.fp16:
        raise ValueError(
            "use_transformers_continuous_batching=True with bf16 or fp16, for which TRL would cast the weights "
            "themselves, those of the optimizer included, for good when it first samples. Set bf16=False (bf16 is on "
            "by default), and to save memory load the model in bfloat16 (args.model_init_kwargs)."
        )
    if "seed" in (args.transformers_continuous_batching_config or {}):
        raise ValueError(
            "transformers_continuous_batching_config has a seed, which would be set again for every batch, whose "
            "candidates would all be drawn with the same random numbers. Leave it out: args.seed seeds the run."
        )


Images = Sequence[Image]
"""The images of a prompt."""
Tokenize = Callable[[Sequence[Prompt]], Sequence[Sequence[int]]]
Generated = tuple[Sequence[Sequence[int]], Sequence[Sequence[float]] | None]
"""Generated ids of each prompt, and their log-probabilities where the generator gives them."""
Generate = Callable[[list[Sequence[int]], Sequence[Images]], Generated]
Decode = Callable[[list[Sequence[int]]], Sequence[str]]


def sample(
    requests: Sequence[Request],
    *,
    tokenize: Tokenize,
    generate: Generate,
    decode: Decode,
    ends: Collection[int],
    stop: Sequence[str] = (),
    context: int | None = None,
    image_tokens: ImageTokens | None = None,
) -> list[Sampled]:
    """Answer every request, in their order, each prompt repeated for its candidates, as TRL's generators take them.

    Args:
        ends: Token ids that end a completion.
        stop: Words that end a completion: its ids with the word, its text before it.
        context: Most tokens of a prompt and its completion; `None`: there is no bound.
        image_tokens: The numbers of tokens of images, for errors.
    """
    unwritten = [request.prompt for request in requests if not request.prompt.ids]
    written = iter(tokenize(unwritten) if unwritten else ())
    prompts = [list(request.prompt.ids) or next(written) for request in requests]
    if context is not None:
        check_lengths(prompts, requests, context, image_tokens)
    repeated = [ids for request, ids in zip(requests, prompts, strict=True) for _ in range(request.num_candidates)]
    images = [request.prompt.images for request in requests for _ in range(request.num_candidates)]
    sampled, logprobs = generate(repeated, images)
    if stop:
        sampled = [up_to_stop(ids, stop, lambda part: decode([part])[0]) for ids in sampled]
    whole = decode(list(sampled))
    texts = [before_stop(text, stop) for text in whole] if stop else whole
    stopped = [text != part or ids[-1] in ends for ids, text, part in zip(sampled, whole, texts, strict=True)]
    answers: list[Sampled] = []
    start = 0
    for request, ids in zip(requests, prompts, strict=True):
        rows = range(start, start + request.num_candidates)
        start = rows.stop
        completions = tuple(
            Completion(
                ids=tuple(sampled[row]),
                text=texts[row],
                logprobs=None if logprobs is None else tuple(logprobs[row][: len(sampled[row])]),
                finish="stop" if stopped[row] else "length",
            )
            for row in rows
        )
        answers.append(Sampled(replace(request.prompt, ids=tuple(ids)), completions))
    return answers


GenerateAs = Callable[[list[Sequence[int]], dict[str, Any], SamplingOverrides], Any]
"""Prompts' ids, the model's inputs of their images, and a role's own settings to what the active policy samples."""


def role_settings(
    config: GenerationConfig, kwargs: Mapping[str, Any], override: SamplingOverrides
) -> tuple[GenerationConfig, dict[str, Any]]:
    """The settings of `generate` and its arguments, with a role's own in the place of its policy's."""
    names = {"max_completion_length": "max_new_tokens"}
    own = {names.get(name, name): value for name, value in override.given().items() if name != "stop"}
    config = copy.deepcopy(config)
    config.update(**own)
    return config, {**kwargs, **own}


@contextmanager
def ending_at(stop: Sequence[str], config: GenerationConfig, model: Any, tokenizer: Any) -> Iterator[None]:
    """Within, `generate` ends a row at a stop word: what follows one is cut off in any case."""
    config.stop_strings = list(stop)
    with replaced_generate(model, tokenizer=tokenizer):  # TRL does not give it
        yield


def sample_within(
    prompts: Sequence[Sequence[int]],
    images: Sequence[Images],
    sample: Callable[[list[Sequence[int]], Sequence[Images], int | None], Generated],
    *,
    context: int | None,
    most: int | None,
) -> Generated:
    """Sample each prompt's completion, none longer than there is room for. Together, where there is room for all.

    Args:
        prompts: Each shorter than the context.
        sample: Prompts, images, and the most tokens of completions (`None`: as configured), to what was sampled.
        context: Most tokens of prompt and completion; `None`: there is no bound.
    """
    rooms = [math.inf if context is None else context - len(ids) for ids in prompts]
    limits = [None if room >= (math.inf if most is None else most) else int(room) for room in rooms]
    ids: list[Sequence[int]] = [()] * len(prompts)
    logprobs: list[Sequence[float]] | None = None
    for limit in dict.fromkeys(limits):
        own = [i for i, other in enumerate(limits) if other == limit]
        sampled, scores = sample([prompts[i] for i in own], [images[i] for i in own], limit)
        for i, each in zip(own, sampled, strict=True):
            ids[i] = each
        if scores is not None:
            logprobs = [()] * len(prompts) if logprobs is None else logprobs
            for i, score in zip(own, scores, strict=True):
                logprobs[i] = score
    return ids, logprobs


def context_length(team: Team, policy: str) -> int | None:
    """Most tokens of prompt and completion together in a policy's model; `None`: it names no bound."""
    return context_of(team.weights_of(policy).config.get_text_config())


class LocalSampler:
    """Samples with the trainer's own models: called with requests, it returns their answers.

    Args:
        prefixes: Keeps what was read in a rollout.
    """

    def __init__(
        self,
        team: Team,
        codecs: Mapping[str, PolicyCodec],
        prefixes: PrefixCache,
        *,
        activate: Callable[[str], None],
        generate: GenerateAs,
    ) -> None:
        self._team, self._codecs, self.activate, self._generate = team, codecs, activate, generate
        self._contexts = {name: context_length(team, name) for name in codecs}
        self.prefixes = prefixes
        """The context of a rollout: at its end keys and values are dropped, since weights change between rollouts."""

    def __call__(self, requests: Sequence[Request]) -> list[Sampled]:
        """Every request answered by its agent's policy, one policy and one setting of the generator after another."""
        answers: dict[int, Sampled] = {}
        of_agent = self._team.routing.of_agent
        kinds = [(of_agent[request.agent], self._limited(request)) for request in requests]
        for kind in dict.fromkeys(kinds):
            name, override = kind
            own = [i for i, other in enumerate(kinds) if other == kind]
            policy = self._team.policies[name]
            with nullcontext() if policy.is_trained else self._team.as_frozen(policy):
                self.activate(name)
                weights = self._team.weights_of(name)
                # They are found by ids, which say nothing of pictures.
                keeps = self.prefixes.max_bytes and not any(requests[i].prompt.images for i in own)
                keeps = keeps and not draws_noise(weights)
                with self.prefixes.used_by(weights, name) if keeps else nullcontext():
                    sampled = self._sample(name, [requests[i] for i in own], override)
            answers.update(zip(own, sampled, strict=True))
        return [answers[i] for i in range(len(requests))]

    def _limited(self, request: Request) -> SamplingOverrides:
        """The settings of a request: its agent's, and the limits that its observation sets."""
        override, limits = self._team.overrides[request.agent], request.limits
        if limits.max_tokens is not None:
            profile = self._team.profiles[self._team.routing.of_agent[request.agent]]
            most = override.max_completion_length or profile.generation_config.max_new_tokens or limits.max_tokens
            override = replace(override, max_completion_length=min(most, limits.max_tokens))
        return replace(override, stop=(*(override.stop or ()), *limits.stop)) if limits.stop else override

    def _sample(self, name: str, requests: Sequence[Request], override: SamplingOverrides) -> Sequence[Sampled]:
        codec, context = self._codecs[name].thinking(override.enable_thinking), self._contexts[name]
        most = override.max_completion_length or self._team.profiles[name].generation_config.max_new_tokens

        def generate_up_to(prompts: list[Sequence[int]], images: Sequence[Images], limit: int | None) -> Any:
            bounded = override if limit is None else replace(override, max_completion_length=limit)
            return self._generate(prompts, codec.inputs_of(prompts, images) if any(images) else {}, bounded)

        return sample(
            requests,
            tokenize=codec.encode,
            generate=partial(sample_within, sample=generate_up_to, context=context, most=most),
            context=context,
            decode=codec.decode,
            ends=codec.end_token_ids,
            stop=override.stop or (),
            image_tokens=codec.image_tokens,
        )
