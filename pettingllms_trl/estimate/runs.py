"""A run and its models, as far as memory and speed depend on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from pettingllms_trl.estimate.activations import PassBytes
from pettingllms_trl.estimate.engine_options import EngineOptions, Place
from pettingllms_trl.estimate.gpus import Gpu
from pettingllms_trl.estimate.memory import Sharding, Weights
from pettingllms_trl.estimate.shapes import Shape


Passes: TypeAlias = Callable[[int, int, bool], PassBytes]
"""What a pass of the update takes through a model's layers, of its rows, the tokens of each, and whether the weights
are sharded: a pass that has them in float32, as with DDP, makes bfloat16 copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """A model of the run, with the policies that use it.

    Args:
        width: Bytes of a weight in the trainer.
        passes: What a pass of the update takes; asked for only if something of it is trained.
        num_frozen_adapters: Frozen ones.
        num_references: Frozen copies of it for KL terms.
    """

    name: str
    shape: Shape
    width: int
    is_trained: bool
    passes: Passes
    num_adapters: int = 0
    num_frozen_adapters: int = 0
    num_references: int = 0
    on_server: bool = False

    def weights(self) -> tuple[Weights, ...]:
        """What a trainer process holds of it; adapters are in float32."""
        shape = self.shape
        return (
            Weights(parameters=shape.parameters, width=self.width, is_trained=self.is_trained),
            Weights(parameters=shape.parameters * self.num_references, width=self.width, is_trained=False),
            Weights(parameters=shape.adapter * self.num_adapters, width=4, is_trained=True),
            Weights(parameters=shape.adapter * self.num_frozen_adapters, width=4, is_trained=False),
        )

    @property
    def trained(self) -> int:
        return sum(each.parameters for each in self.weights() if each.is_trained)

    def sampling_weights(self, width: int) -> float:
        """Bytes of an engine's weights: the model and all adapters."""
        adapters = (self.num_adapters + self.num_frozen_adapters) * self.shape.adapter
        return float(width * (self.shape.parameters + adapters))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What a run is, as far as memory and speed depend on it.

    Args:
        num_gpus: Trainer processes, one for each GPU; servers are on others.
        sharding: How weights, gradients and optimizer states are divided over them.
        moments: Numbers that the optimizer keeps for each parameter.
        sampler: What samples, unless a model is on a server.
        engine: The options of its kind of engine, of which the next four are values.
        utilization: Share of a GPU's memory that engines take.
        sleeps: Whether they give it back during the update.
        tensor_parallel: Trainer processes that an engine of theirs is divided over; a divisor of their number.
        max_model_length: Longest sequence that an engine is to hold; `None`: the model's context.
        generation_batch: Sequences that a rollout samples for a decision of each of its instances, on all processes.
        num_candidates: K.
        max_envs: Most instances in play at a time on each process; `None`: all.
        is_parallel: Whether an instance is one sequence (`sampling="parallel"`) instead of K.
        prompt, completion: Tokens of a prompt, and most of a completion.
        image_tokens: Of a prompt, those of its images.
        rows: Sequences of a pass of the update (`per_device_train_batch_size`).
        accumulation: Passes of an update (`gradient_accumulation_steps`).
        sampling_width: Bytes of a number in sampling: 2 with `bf16` or `fp16`, else 4.
        max_steps: Updates of the run; 0 if epochs decide.
    """

    gpu: Gpu
    num_gpus: int
    sharding: Sharding
    moments: int
    models: tuple[ModelPlan, ...]
    sampler: Place
    engine: EngineOptions
    utilization: float
    sleeps: bool
    tensor_parallel: int
    max_model_length: int | None
    generation_batch: int
    num_candidates: int
    max_envs: int | None
    is_parallel: bool
    prompt: int
    completion: int
    rows: int
    accumulation: int
    num_iterations: int
    sampling_width: int
    max_steps: int = 0
    image_tokens: int = 0

    @property
    def num_players(self) -> int:
        """Processes, or groups of them, that play instances of their own."""
        return self.num_gpus // self.tensor_parallel

    @property
    def is_sharded(self) -> bool:
        """Whether the weights of a pass are in bfloat16 already (DeepSpeed, FSDP2)."""
        return self.sharding != "ddp"

    @property
    def sequences(self) -> int:
        """Most sequences in play on each process, or on each group that an engine is divided over."""
        instances = max(-(-self.generation_batch // (self.num_candidates * self.num_players)), 1)
        if self.is_parallel:
            return min(self.max_envs or instances * self.num_candidates, instances * self.num_candidates)
        return min(self.max_envs or instances, instances) * self.num_candidates

    @property
    def mini_batch(self) -> int:
        """Sequences of an update, as `generation_batch` counts them."""
        return self.accumulation * self.rows * self.num_gpus

    @property
    def num_updates(self) -> float:
        """Updates for each rollout; below 1 if an update waits for several."""
        return self.generation_batch * self.num_iterations / self.mini_batch

    def limit(self, model: ModelPlan) -> int:
        """Most tokens of a sequence of what samples; of a server `max_model_length` is all that is known."""
        by_engine = self.sampler != "generate" or model.on_server
        return (by_engine and self.max_model_length) or model.shape.context

    def longest(self, model: ModelPlan) -> int:
        """Most tokens of a sequence of a model."""
        return min(self.prompt + self.completion, self.limit(model), model.shape.context)
