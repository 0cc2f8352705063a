"""vLLM beside the trainer: which engine is started for a run's arguments, and when it is given new weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from peft import PeftModel, get_peft_model_state_dict

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.policies import Routing
from pettingllms_trl.records import Message


def check_served(routing: Routing, args: MultiAgentGRPOConfig) -> None:
    """Refuse what vLLM cannot sample for.

    Raises:
        ImportError: vLLM shall be in this process and is not installed.
        ValueError: A policy is a model of its own, an API or frozen; or TRL cannot correct the loss for the sampler.
    """
    if not args.use_vllm:
        return
    for policy in routing.policies:
        if not policy.is_trained or policy in routing.full:
            raise ValueError(
                f"use_vllm=True with the policy {policy.name!r}, which has a model of its own, is frozen or is an "
                "API; expected the trainer's model or adapters on it, all of them trained. Leave use_vllm out for it."
            )
    if args.loss_type == "vespo" and args.vllm_importance_sampling_correction:
        modes = ("token_truncate", "token_mask")
        if args.vllm_importance_sampling_mode not in modes:
            raise ValueError(
                f"loss_type='vespo' with vllm_importance_sampling_mode={args.vllm_importance_sampling_mode!r}; "
                f"expected one of {modes}. Set it, or vllm_importance_sampling_correction=False."
            )
    if args.vllm_mode == "colocate" and find_spec("vllm") is None:
        raise ImportError(
            "use_vllm=True, but vLLM is not installed. Install it (pip install 'pettingllms[vllm]'), take a server "
            "(vllm_mode='server'), or leave use_vllm out."
        )


class Server:
    """An engine with the policies' weights, renewed once in every optimizer step.

    Args:
        args: Of the run; `vllm_mode` says where the engine is.
        routing: Who is played by what.
        model: The trainer's, as it is trained.
        name: Path or id of its base.
        dtype: Of the engine's weights.
        tokenize: A prompt's messages to token ids.
        decode: Sampled ids to the text that is the action.
        stop_token_ids: Which end a completion.
    """

    def __init__(
        self,
        args: MultiAgentGRPOConfig,
        routing: Routing,
        model: Any,
        *,
        name: str,
        dtype: str,
        tokenize: Callable[[Sequence[Message]], Sequence[int]],
        decode: Callable[[Sequence[int]], str],
        stop_token_ids: Sequence[int],
    ) -> None:
        self._adapter_of = _adapters(routing, model)
        self._routing = routing
        self._step: int | None = None
        options: Mapping[str, Any] = {
            "args": args,
            "of_agent": routing.of_agent,
            "adapters": {policy: model.peft_config[adapter] for policy, adapter in self._adapter_of.items()},
            "tokenize": tokenize,
            "decode": decode,
            "stop_token_ids": stop_token_ids,
        }
        self.engine: Any
        if args.vllm_mode == "colocate":
            from pettingllms_trl.vllm_engine import ColocatedEngine  # takes seconds to import

            self.engine = ColocatedEngine(name, dtype=dtype, **options)
        else:
            from pettingllms_trl.vllm_server import ServerEngine

            url = args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"
            self.engine = ServerEngine(url.split(","), **options)

    def renew(self, model: Any, step: int) -> None:
        """Give the engine the weights of this optimizer step, if it has not got them."""
        if self._step == step:
            return
        for policy in self._routing.policies:
            adapter = self._adapter_of.get(policy.name)
            # `state_dict` has tied weights under both their names; without the second vLLM's head would stay old.
            state = model.state_dict() if adapter is None else get_peft_model_state_dict(model, adapter_name=adapter)
            self.engine.sync(policy.name, state)
        self._step = step


def _adapters(routing: Routing, model: Any) -> dict[str, str]:
    """Per policy that is an adapter, the adapter's name in the model; that of a shared one with a `peft_config` is
    PEFT's own."""
    if not isinstance(model, PeftModel):
        return {}
    return {policy.name: policy.adapter or model.active_adapter for policy in routing.policies}
