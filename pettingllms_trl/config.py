"""`MultiAgentGRPOConfig`: every field of TRL's `GRPOConfig`, and the few that a team adds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from trl import GRPOConfig

from pettingllms_trl.sampling import parse


@dataclass
class MultiAgentGRPOConfig(GRPOConfig):
    r"""
    Configuration of [`MultiAgentGRPOTrainer`]. All of [`~trl.GRPOConfig`] keeps its meaning, with two notes:

    - `num_generations` is K, the number of candidates a decision samples (`sampling="tree"`), or of episodes an
      instance is played (`sampling="parallel"`).
    - `generation_batch_size / num_generations` rows of the data set are played per generation, as in
      [`~trl.GRPOTrainer`]. A row gives K sequences for *each decision* of its episode, so a step trains on more
      sequences than `generation_batch_size`; they pass through the model at most `per_device_train_batch_size` at a
      time, so memory does not grow with the length of episodes.

    Args:
        sampling (`str`, *optional*, defaults to `"tree"`):
            `"tree"`: at each decision the policy samples K candidates from one prompt, each is played on a branch of
            its own and scored, and the best goes on. `"parallel"`: each instance is played K times, independently.
        max_envs (`int`, *optional*):
            How many environments are in play at once. `None` plays all rows of a generation together; fewer bounds
            the number of sequences in one call of the generator.
        max_turns (`int`, *optional*):
            An episode ends when an agent has taken so many decisions. `None` leaves it to the environment.
        num_threads (`int`, *optional*, defaults to `0`):
            Threads on which environments are stepped, beside each other and the engine: for environments that wait,
            for a sandbox, a search, a game server. As many more ask partners behind an API. With `0` all of that is
            done one after the other.
        num_continuations (`int`, *optional*, defaults to `0`):
            How often each candidate's branch is played to its end by the current policies in training, for
            `credit="counterfactual"`. Costs `num_generations * num_continuations` episodes for each decision.
        check_groups (`bool`, *optional*, defaults to `False`):
            Check the invariants of AT-GRPO's groups on every rollout, for debugging: group sizes, one choice per
            agent and turn, each prompt's state the one that the chosen branch reached.
        num_generations_eval (`int`, *optional*, defaults to `1`):
            How many episodes an evaluation plays of each row. `None`: `num_generations`, TRL's default.
        role_sampling (`dict[str, dict]`, *optional*):
            How single agents or roles sample, where it is not as the configuration says: `{"planner": {"temperature":
            0.7, "stop": ["\n\n"]}}`, with any of `temperature`, `top_p`, `top_k`, `min_p`, `repetition_penalty`,
            `max_completion_length` and `stop`. The loss of a policy is taken at its role's temperature.
        vllm_server_urls (`dict[str, str]`, *optional*):
            Servers of single policies, by the policy's name: `{"planner": "http://one:8000", "coder":
            "http://two:8000"}`; several urls with commas are replicas. Each full model needs one with
            `vllm_mode="server"`; with `"colocate"` those named are on servers, the others in this process.
    """

    _VALID_DICT_FIELDS: ClassVar[list[str]] = [*GRPOConfig._VALID_DICT_FIELDS, "role_sampling", "vllm_server_urls"]

    sampling: Literal["tree", "parallel"] = field(
        default="tree",
        metadata={
            "help": "'tree': K candidates for each decision, the best goes on. 'parallel': K whole episodes per row."
        },
    )
    max_envs: int | None = field(
        default=None, metadata={"help": "Environments in play at once. None: all rows of a generation."}
    )
    max_turns: int | None = field(
        default=None, metadata={"help": "Decisions an agent may take in an episode. None: the environment decides."}
    )
    num_continuations: int = field(
        default=0, metadata={"help": "How often each candidate's branch is played to its end, for `counterfactual`."}
    )
    num_threads: int = field(
        default=0, metadata={"help": "Threads on which environments are stepped. 0: one after the other."}
    )
    check_groups: bool = field(
        default=False, metadata={"help": "Check the invariants of AT-GRPO's groups on every rollout."}
    )

    num_generations_eval: int | None = field(
        default=1, metadata={"help": "Episodes that an evaluation plays of each row. None: `num_generations`."}
    )
    role_sampling: dict[str, Any] | str | None = field(
        default=None, metadata={"help": 'Sampling of single agents or roles: \'{"planner": {"temperature": 0.7}}\'.'}
    )
    vllm_server_urls: dict[str, Any] | str | None = field(
        default=None, metadata={"help": 'Servers of single policies: \'{"planner": "http://one:8000"}\'.'}
    )

    def __post_init__(self) -> None:
        if self.num_generations < 2:
            raise ValueError(
                f"num_generations={self.num_generations}: a candidate is judged against its siblings, so at least 2 "
                "are needed. Set num_generations=4 or more."
            )
        if self.sampling not in ("tree", "parallel"):
            raise ValueError(f"sampling={self.sampling!r}, expected 'tree' or 'parallel'")
        for name in ("max_envs", "max_turns"):
            value: Any = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}, expected a positive number, or None for no bound")
        if self.num_continuations < 0:
            raise ValueError(f"num_continuations={self.num_continuations}, expected 0 or more")
        super().__post_init__()
        parse(self.role_sampling)
        unsupported = {
            "use_adaptive_entropy": self.use_adaptive_entropy,
            "sync_ref_model": self.sync_ref_model,
        }
        for name, value in unsupported.items():
            if value:
                raise ValueError(f"{name}=True is not supported by MultiAgentGRPOTrainer yet. Leave it False.")
