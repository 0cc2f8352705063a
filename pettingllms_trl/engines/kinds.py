"""`EngineKind`: what a kind of engine declares, and the groups of policies that share an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.engines.batched import Decode
from pettingllms_trl.pixels import ImageInputs
from pettingllms_trl.policies.routing import Policy, Routing
from pettingllms_trl.processes.tensor_parallel import TensorParallelGroup
from pettingllms_trl.records import PolicyEngine, Prompt
from pettingllms_trl.role_sampling import SamplingOverrides


Place: TypeAlias = Literal["generate", "colocate", "server"]
"""Where completions are computed, and so whose memory they take: the trainer's model, an engine here, elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What decides the memory of a kind of engine: the names of its fields of the configuration, for an estimate.
    Empty: the kind has no such field.

    Args:
        max_length: Field with the most tokens of prompt and completion together.
        processes: Field with the number of trainer processes that an engine is split over.
        memory_share: Field with an engine's share of its GPU's memory.
        sleeps: Field that makes it give its memory back during the update.
        server_processes: Option of a server's command like `processes`, of GPUs.
        overhead: Bytes beside weights and cache; the default is assumed of vLLM: CUDA graphs, a batch of 4,096 tokens.
    """

    name: str = "generate"
    max_length: str = ""
    processes: str = ""
    memory_share: str = ""
    sleeps: str = ""
    server_processes: str = ""
    overhead: float = 1.5e9


@dataclass(frozen=True, slots=True)
class Group:
    """Policies that share an engine: a full model, or the trainer's model with all adapters on it."""

    policies: tuple[Policy, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(policy.name for policy in self.policies)

    @property
    def name(self) -> str:
        return " and ".join(map(repr, self.names))


def groups_of(routing: Routing) -> list[Group]:
    """The group that stands on the trainer's model, if there is one, then each full model."""
    standing = tuple(policy for policy in routing.policies if policy.model is None and policy.api is None)
    return [Group(group) for group in (standing, *((policy,) for policy in routing.full)) if group]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCodec:
    """Encodes prompts and decodes completions of an agent's policy.

    Args:
        stop_token_ids: Token ids that end a completion, in addition to those in the model's `generation_config.json`.
        overrides: Returns the agent's sampling overrides, which are others in evaluations.
        images: Makes the model's inputs of pictures; `None`: the policy reads texts only.
    """

    tokenize: Callable[[Prompt], Sequence[int]]
    decode: Decode
    stop_token_ids: Sequence[int] = ()
    overrides: Callable[[], SamplingOverrides] = SamplingOverrides
    images: ImageInputs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOfTrainer:
    """A group and what the trainer holds of it.

    Args:
        adapters: Per policy that is an adapter, its name in the trainer's model.
    """

    group: Group
    weights: Any
    of_agent: Mapping[str, str]
    adapters: Mapping[str, str]


MakeEngines = Callable[
    [Sequence[GroupOfTrainer], MultiAgentGRPOConfig, Mapping[str, PromptCodec], TensorParallelGroup | None],
    Sequence[PolicyEngine],
]
"""Creates the engine of each group, with the codec of each agent; the processes over which engines are split."""


class EngineKind(NamedTuple):
    """A row of the table of engines (`factory.KINDS`): how the policies with weights here sample.

    It is all that the trainer, its checkpoints and the estimate know of an engine.

    Args:
        servers_of: URLs of what samples for a group elsewhere.
        check: Raises `ValueError` for options that do not fit the groups, before any model is loaded.
        make: Creates the engine of each group. `None`: the trainer's own models generate.
        options: Its fields that decide what memory it takes.
        recorded: Its fields that decide what is sampled: a run that is resumed is compared by them, too.
        is_seeded: Whether a request is answered alike on every process, by seeds that follow from its ticket.
        package: That must be installed where it samples in the trainer's processes; empty: none.
        instead: What a user without that package does.
    """

    is_chosen: Callable[[MultiAgentGRPOConfig], bool]
    place_of: Callable[[Group, MultiAgentGRPOConfig], Place]
    check: Callable[[Sequence[Group], MultiAgentGRPOConfig], None]
    make: MakeEngines | None = None
    servers_of: Callable[[Group, MultiAgentGRPOConfig], Sequence[str]] = lambda group, args: ()
    options: EngineOptions = EngineOptions()
    recorded: Sequence[str] = ()
    is_seeded: bool = False
    package: str = ""
    instead: str = ""

    @property
    def has_weights(self) -> bool:
        """Whether its engines have weights of their own, to which the trainer's are copied."""
        return self.make is not None

    def places(self, routing: Routing, args: MultiAgentGRPOConfig) -> set[Place]:
        """Where it samples for any of the policies."""
        return {self.place_of(group, args) for group in groups_of(routing)}


def setting(args: MultiAgentGRPOConfig, name: str, default: Any = None) -> Any:
    """The value of one of `EngineOptions`' fields; the default where the kind of engine has no such field."""
    return getattr(args, name) if name else default
