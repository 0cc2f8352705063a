"""The private parts of TRL 1.16 and transformers 5 that `MultiAgentGRPOTrainer` overrides, calls or reads.

Neither library promises anything about them. A failure here says what moved, before a training run shows it as a
wrong number: read the new source, adapt the method that stands on it, then the table here, then the pin of TRL in
pyproject.toml. Attributes of the trainer are named in trainer/hooks.py alone; functions of TRL are imported by
trainer/dataloading.py, update/builder.py, policies/{team,weights,references,profiles}.py and credit/.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable

import pytest
import torch
import transformers
import trl
from accelerate.optimizer import AcceleratedOptimizer
from transformers import Trainer, masking_utils
from transformers.models.qwen3 import modeling_qwen3
from trl import GRPOTrainer
from trl.data_utils import apply_chat_template
from trl.trainer.callbacks import SyncRefModelCallback
from trl.trainer.utils import (
    RepeatSampler,
    add_fused_lm_head,
    create_model_from_path,
    disable_dropout_in_model,
    get_callable_name,
    is_async_callable,
    nanstd,
    repeat_iterable_dataset,
    shuffle_sequence_dict,
    shutdown_event_loop_in_daemon,
    split_tensor_dict,
    start_event_loop_in_daemon,
)


STARS = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}

# One entry per method we override or call: its parameters in order, `=` after one with a default.
GRPO_TRAINER_METHODS = {
    "_prepare_inputs": ["self", "generation_batch"],
    "_generate_and_score_completions": ["self", "inputs"],
    "_generate": ["self", "prompts"],
    "_generate_single_turn": [
        "self",
        "prompt_ids",
        "images",
        "multimodal_fields",
        "num_generations",
        "has_tool_images=",
    ],
    "_tokenize_prompts": ["self", "prompts"],
    "_calculate_rewards": ["self", "inputs", "prompts", "completions", "completion_ids_list"],
    "_compute_loss": ["self", "model", "inputs"],
    "_get_train_sampler": ["self", "dataset="],
    "_get_eval_sampler": ["self", "eval_dataset"],
    "_set_signature_columns_if_needed": ["self"],
    "_log_completion_extra": ["self", "column", "values"],
    "get_train_dataloader": ["self"],
    "get_eval_dataloader": ["self", "eval_dataset="],
    "training_step": ["self", "model", "inputs", "num_items_in_batch"],
    "prediction_step": ["self", "model", "inputs", "prediction_loss_only", "ignore_keys="],
    "log": ["self", "logs", "start_time="],
    "_log_metric": ["self", "name", "value"],
    "_save_checkpoint": ["self", "model", "trial"],
    "_load_optimizer_and_scheduler": ["self", "checkpoint"],
}
HOOKS = {  # of the transformers trainer, not overridden by TRL
    "_clip_grad_norm": ["self", "model"],
    "create_optimizer": ["self", "model="],
    "_load_from_checkpoint": ["self", "resume_from_checkpoint", "model="],
    "_load_best_model": ["self"],
    "_push_from_checkpoint": ["self", "checkpoint_folder"],
    "_save": ["self", "output_dir=", "state_dict="],
    "_get_output_dir": ["self", "trial"],
    "evaluation_loop": [
        *("self", "dataloader", "description", "prediction_loss_only=", "ignore_keys=", "metric_key_prefix="),
    ],
    "_get_grad_norm": ["self", "model", "grad_norm="],
    "_init_training_state": [
        *("self", "max_steps", "num_update_steps_per_epoch", "num_train_epochs", "resume_from_checkpoint", "trial"),
    ],
    "_run_epoch": [
        *("self", "model", "epoch", "train_dataloader", "steps_in_epoch", "num_update_steps_per_epoch", "trial"),
        *("ignore_keys_for_eval", "start_time", "resume_from_checkpoint", "epochs_trained"),
        "steps_trained_in_current_epoch",
    ],
    "_maybe_log_save_evaluate": [
        *("self", "tr_loss", "grad_norm", "model", "trial", "epoch", "ignore_keys_for_eval", "start_time"),
        "learning_rate=",
    ],
    "_load_rng_state": ["self", "checkpoint"],
    "_evaluate": ["self", "trial", "ignore_keys_for_eval", "skip_scheduler="],
    "_determine_best_metric": ["self", "metrics", "trial"],
    "_get_dataloader": [
        "self",
        "dataset",
        "description",
        "batch_size",
        "sampler_fn=",
        "is_training=",
        "dataloader_key=",
    ],
}
TRAINER_METHODS = HOOKS | {
    "training_step": ["self", "model", "inputs", "num_items_in_batch="],
    "_save_checkpoint": ["self", "model", "trial"],
    "_load_optimizer_and_scheduler": ["self", "checkpoint"],
}
UTILITIES = {
    add_fused_lm_head: ["model", "temperature=", "cast_lm_head_to_fp32=", "outputs="],
    disable_dropout_in_model: ["model"],
    create_model_from_path: ["model_id", "architecture=", "**kwargs"],
    nanstd: ["tensor", "dim=", "keepdim="],
    repeat_iterable_dataset: ["dataset", "mini_repeat_count", "batch_size=", "repeat_count="],
    shuffle_sequence_dict: ["seq_dict"],
    split_tensor_dict: ["tensor_dict", "num_chunks"],
    get_callable_name: ["func"],
    is_async_callable: ["func"],
    start_event_loop_in_daemon: ["name="],
    shutdown_event_loop_in_daemon: ["thread", "loop"],
    apply_chat_template: ["example", "processing_class", "tools=", "**template_kwargs"],
    SyncRefModelCallback.sync_target_model: ["model", "target_model", "alpha"],
    RepeatSampler: ["data_source", "mini_repeat_count", "batch_size=", "repeat_count=", "shuffle=", "seed="],
}

# What passes from `_generate_and_score_completions` to `_compute_loss`.
ALWAYS_RETURNED = {
    "prompt_ids",
    "prompt_mask",
    "completion_ids",
    "completion_mask",
    "advantages",
    "num_items_in_batch",
}
TEXT_KEYS_RETURNED_AT_TIMES = {
    "old_per_token_logps",
    "ref_per_token_logps",
    "sampling_per_token_logps",
    "importance_sampling_ratio",
    "tool_mask",
}
# We train on text and never set these; `_compute_loss` must go on reading them with `.get`.
VISION_KEYS = {
    "pixel_values",
    "image_grid_thw",
    "num_images",
    "pixel_attention_mask",
    "spatial_shapes",
    "num_tiles",
    "image_sizes",
    "token_type_ids",
    "mm_token_type_ids",
    "image_position_ids",
}

# GRPOTrainer.training_step, which ours replaces: the same bookkeeping around several forward and backward passes.
TRAINING_STEP = """\
time_before = time.perf_counter()
output = super().training_step(model, inputs, num_items_in_batch)
self._step += 1
time_after = time.perf_counter()
self._current_train_step_time += time_after - time_before
if self._step % self.current_gradient_accumulation_steps == 0:
    self._metrics['train']['step_time'].append(self._current_train_step_time)
    self._current_train_step_time = 0.0
return output"""


def moved(what: str, expected: object, found: object) -> str:
    expected, found = (sorted(each) if isinstance(each, set) else each for each in (expected, found))
    return (
        f"{what} moved in trl {trl.__version__} / transformers {transformers.__version__}.\n"
        f"  expected: {expected}\n  found:    {found}\n"
        "Find what stands on it (grep for the name in pettingllms_trl); adapt that, then this test."
    )


def parameters(function: Callable) -> list[str]:
    """Names of the parameters in order, `=` after one with a default."""
    return [
        STARS.get(each.kind, "") + name + ("" if each.default is each.empty else "=")
        for name, each in inspect.signature(function).parameters.items()
    ]


def syntax_tree(function: Callable) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))


def is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def is_self_attribute(node: ast.AST, attribute: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == attribute and is_name(node.value, "self")


def dict_reads(function: Callable, variable: str) -> tuple[set[str], set[str], list[str]]:
    """How a function reads the dict `variable`: keys it must find, keys it asks for, and uses that hide the key.

    Must find: `d["k"]`. Asks for: `d.get("k")` and `"k" in d`. A use that hides the key is any other one, such as
    `f(d)` or `d[k]`.
    """
    required, optional, seen = set(), set(), set()
    tree = syntax_tree(function)
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=name) as use, slice=ast.Constant(value=key)) if name == variable:
                required.add(key)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name) as use, attr="get"), args=[ast.Constant(value=key), *_]
            ) if name == variable:
                optional.add(key)
            case ast.Compare(
                left=ast.Constant(value=key), ops=[ast.In() | ast.NotIn()], comparators=[ast.Name(id=name) as use]
            ) if name == variable:
                optional.add(key)
            case _:
                continue
        seen.add(use)
    hidden = [
        f"line {node.lineno} of {function.__name__}"
        for node in ast.walk(tree)
        if is_name(node, variable) and node not in seen
    ]
    return required, optional, hidden


def dict_writes(function: Callable, variable: str) -> tuple[set[str], set[str]]:
    """The keys of the literal that `variable` is bound to, and the keys assigned to it later."""
    literal, later = set(), set()
    for node in ast.walk(syntax_tree(function)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys)) if name == variable:
                literal |= {ast.literal_eval(key) for key in keys}
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key))]) if (
                name == variable
            ):
                later.add(key)
    return literal, later


def attributes_of_self(function: Callable, context: type[ast.expr_context]) -> set[str]:
    """Names `n` of every `self.n` that a function loads (or stores)."""
    return {
        node.attr
        for node in ast.walk(syntax_tree(function))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, context) and is_name(node.value, "self")
    }


def calls_of(function: Callable, method: str) -> list[str]:
    """Every call `self.method(...)` in a function, as source."""
    return [
        ast.unparse(node)
        for node in ast.walk(syntax_tree(function))
        if isinstance(node, ast.Call) and is_self_attribute(node.func, method)
    ]


@pytest.mark.parametrize("method", GRPO_TRAINER_METHODS)
def test_a_method_of_grpo_trainer_takes_the_parameters_we_override_it_with(method):
    found, expected = parameters(getattr(GRPOTrainer, method)), GRPO_TRAINER_METHODS[method]
    assert found == expected, moved(f"the signature of GRPOTrainer.{method}", expected, found)


@pytest.mark.parametrize("method", TRAINER_METHODS)
def test_a_method_of_the_transformers_trainer_takes_the_parameters_we_override_it_with(method):
    found, expected = parameters(getattr(Trainer, method)), TRAINER_METHODS[method]
    assert found == expected, moved(f"the signature of transformers.Trainer.{method}", expected, found)


@pytest.mark.parametrize("method", HOOKS)
def test_grpo_trainer_leaves_the_hooks_of_the_transformers_trainer_alone(method):
    owner = next(cls.__name__ for cls in GRPOTrainer.__mro__ if method in vars(cls))
    assert owner == "Trainer", moved(f"the owner of GRPOTrainer.{method}", "Trainer", owner)


@pytest.mark.parametrize("utility", UTILITIES, ids=lambda utility: utility.__name__)
def test_a_utility_of_trl_takes_the_parameters_we_call_it_with(utility):
    found, expected = parameters(utility), UTILITIES[utility]
    assert found == expected, moved(f"the signature of trl.trainer.utils.{utility.__name__}", expected, found)


def test_the_loss_reads_the_keys_our_batches_have_and_no_others():
    required, optional, hidden = dict_reads(GRPOTrainer._compute_loss, "inputs")
    # The last three only at times: with beta != 0, with vLLM's importance correction, and when it is there.
    expected = ALWAYS_RETURNED | {"ref_per_token_logps", "importance_sampling_ratio", "tool_mask"}
    assert required == expected, moved("the keys that GRPOTrainer._compute_loss requires", expected, required)
    expected = TEXT_KEYS_RETURNED_AT_TIMES - {"ref_per_token_logps"} | VISION_KEYS
    assert optional == expected, moved("the keys that GRPOTrainer._compute_loss asks for", expected, optional)
    assert hidden == [], moved("the way GRPOTrainer._compute_loss reads `inputs`", "constant keys only", hidden)


def test_scoring_returns_the_keys_that_the_loss_reads():
    literal, later = dict_writes(GRPOTrainer._generate_and_score_completions, "output")
    what = "that GRPOTrainer._generate_and_score_completions returns"
    assert literal == ALWAYS_RETURNED, moved(f"the keys {what} always", ALWAYS_RETURNED, literal)
    expected = TEXT_KEYS_RETURNED_AT_TIMES | VISION_KEYS
    assert later == expected, moved(f"the keys {what} at times", expected, later)


def test_a_rollout_function_is_called_with_the_prompts_and_the_trainer():
    (call,) = calls_of(GRPOTrainer._generate, "rollout_func") or ["no call"]
    expected = "self.rollout_func(prompts, self)"
    assert call == expected, moved("the call of rollout_func in GRPOTrainer._generate", expected, call)


def test_a_rollout_function_must_return_prompt_ids_completion_ids_and_logprobs():
    (found,) = [
        ast.literal_eval(node.value)
        for node in ast.walk(syntax_tree(GRPOTrainer._generate))
        if isinstance(node, ast.Assign) and is_name(node.targets[0], "required_keys")
    ] or ["no variable `required_keys`"]
    expected = {"prompt_ids", "completion_ids", "logprobs"}
    assert found == expected, moved("the keys that GRPOTrainer._generate requires of rollout_func", expected, found)


def test_a_rollout_function_masks_tokens_of_the_environment_with_env_mask():
    source = ast.unparse(syntax_tree(GRPOTrainer._generate))
    expected = "tool_mask = extra_fields.pop('env_mask', None)"
    assert expected in source, moved("`env_mask` of rollout_func in GRPOTrainer._generate", expected, "not in it")


@pytest.mark.parametrize("method", ["_generate", "_generate_and_score_completions"])
def test_a_completion_is_truncated_if_its_last_token_is_no_end(method):
    source = ast.unparse(syntax_tree(getattr(GRPOTrainer, method)))
    for expected in (
        "eos_and_pad = [*self.eos_token_ids, self._tokenizer.pad_token_id]",
        "is_truncated = torch.tensor([ids[-1] not in eos_and_pad for ids in completion_ids",
    ):
        assert expected in source, moved(f"what is truncated in GRPOTrainer.{method}", expected, "not in it")


def test_generation_happens_once_per_steps_per_generation_times_num_iterations():
    expected = {
        "model",
        "args",
        "num_iterations",
        "_step",
        "_buffered_inputs",
        "_generate_and_score_completions",
    }
    found = attributes_of_self(GRPOTrainer._prepare_inputs, ast.Load)
    assert found == expected, moved("what GRPOTrainer._prepare_inputs reads of self", expected, found)
    source = ast.unparse(syntax_tree(GRPOTrainer._prepare_inputs))
    expected = "generate_every = self.args.steps_per_generation * self.num_iterations"
    assert expected in source, moved("the period of generation in GRPOTrainer._prepare_inputs", expected, "not in it")


def test_the_training_step_does_what_ours_repeats_with_several_passes():
    (function,) = syntax_tree(GRPOTrainer.training_step).body
    found = "\n".join(map(ast.unparse, function.body))
    assert found == TRAINING_STEP, moved("the body of GRPOTrainer.training_step", TRAINING_STEP, found)


def test_a_pass_of_the_transformers_trainer_prepares_its_inputs_once():
    found = calls_of(Trainer.training_step, "_prepare_inputs")
    expected = ["self._prepare_inputs(inputs)"]
    assert found == expected, moved("the call of _prepare_inputs in Trainer.training_step", expected, found)


def test_only_the_training_step_counts_micro_steps():
    counters = [
        name
        for name, method in vars(GRPOTrainer).items()
        if inspect.isfunction(method) and "_step" in attributes_of_self(method, ast.Store)
    ]
    expected = ["__init__", "training_step"]
    assert counters == expected, moved("where GRPOTrainer sets self._step", expected, counters)


def test_the_completions_table_is_kept_under_the_names_we_write_to():
    (found,) = [
        {ast.literal_eval(key) for key in node.value.keys}
        for node in ast.walk(syntax_tree(GRPOTrainer.__init__))
        if isinstance(node, ast.Assign) and is_self_attribute(node.targets[0], "_logs")
    ] or ["no self._logs = {...}"]
    expected = {"images", "prompt", "completion", "rewards", "advantages", "extra"}
    assert found == expected, moved("the columns of GRPOTrainer._logs", expected, found)


def test_the_constructor_sets_the_attributes_we_read_and_replace():
    expected = {
        "_buffered_inputs",
        "_entropy_bonus_enabled",
        "_entropy_window_stats",
        "_last_world_entropy",
        "_pending_metrics",
        "use_adaptive_entropy",
        "_current_train_step_time",
        "aux_loss_enabled",
        "generation_kwargs",
        "router_aux_loss_coef",
        "_last_loaded_step",
        "_logs",
        "_metrics",
        "_pending_extra_logs",
        "_step",
        "_tokenizer",
        "beta",
        "chat_template",
        "chat_template_kwargs",
        "entropy_coef",
        "eos_token_ids",
        "generation_config",
        "loss_type",
        "mask_truncated_completions",
        "num_generations",
        "num_generations_eval",
        "num_iterations",
        "ref_model",
        "reward_func_names",
        "reward_funcs",
        "reward_weights",
        "rollout_func",
        "shuffle_dataset",
        "use_vllm",
    }
    found = attributes_of_self(GRPOTrainer.__init__, ast.Store)
    assert expected <= found, moved(
        "the attributes GRPOTrainer.__init__ sets", expected, f"all but {sorted(expected - found)}"
    )


def test_the_constructor_puts_the_fused_head_on_the_model_it_was_given_so_that_ours_is_to_be_taken_off_again():
    found = ast.unparse(syntax_tree(GRPOTrainer.__init__))
    expected = "self.model.get_base_model() if is_peft_model(self.model) else self.model"
    assert expected in found, moved("where GRPOTrainer.__init__ puts the fused head", expected, "not in it")
    found = ast.unparse(syntax_tree(add_fused_lm_head))
    assert "model.forward = " in found, moved("how add_fused_lm_head does it", "model.forward = ...", "not in it")


def test_the_reference_is_called_as_a_function_of_the_batch_where_there_is_one():
    source = ast.unparse(syntax_tree(GRPOTrainer._generate_and_score_completions))
    expected = "if self.ref_model is not None:"
    assert expected in source, moved("the reference in GRPOTrainer._generate_and_score", expected, "not in it")
    found = [
        ast.unparse(node)
        for node in ast.walk(syntax_tree(GRPOTrainer._get_per_token_logps_and_entropies))
        if any(isinstance(part, ast.Name) and part.id == "model" for part in ast.iter_child_nodes(node))
        and isinstance(node, ast.Call)
    ]
    expected = ["model(**model_inputs, labels=labels, fused_lm_head=True)"]
    assert found == expected, moved("what _get_per_token_logps_and_entropies does to a model", expected, found)


def test_entropy_is_steered_and_its_coefficient_logged_where_gradients_are_synced_and_nowhere_else():
    source = ast.unparse(syntax_tree(GRPOTrainer._compute_loss))
    conditions = [line.strip() for line in source.splitlines() if "sync_gradients" in line]
    expected = ["if self.accelerator.sync_gradients:", "if mode == 'train' and self.accelerator.sync_gradients:"]
    assert conditions == expected, moved("sync_gradients in GRPOTrainer._compute_loss", expected, conditions)
    steered = {"_entropy_window_stats", "_last_world_entropy", "entropy_coef"}
    found = attributes_of_self(GRPOTrainer._compute_loss, ast.Store)
    assert found == steered, moved("what GRPOTrainer._compute_loss sets of self", steered, found)


def test_the_entropy_bonus_is_the_mean_of_a_pass_times_the_coefficient_where_entropy_was_at_most_the_target():
    source = ast.unparse(syntax_tree(GRPOTrainer._compute_loss))
    for expected in (
        "apply_coef = self.entropy_coef if self._last_world_entropy <= self.args.entropy_target else 0.0",
        "loss = loss - apply_coef * entropy_loss",
        "if world_entropy <= self.args.entropy_target:",
        "self.entropy_coef = min(self.entropy_coef + self.args.entropy_coef_delta, self.args.entropy_coef_max)",
        "self.entropy_coef = max(self.entropy_coef - self.args.entropy_coef_delta, self.args.entropy_coef_min)",
    ):
        assert expected in source, moved("the entropy bonus in GRPOTrainer._compute_loss", expected, "not in it")


LOSS_MEANS = {
    # Loss: how its rows and tokens are summed up, which says how `micro_batches.split` has to scale a pass.
    "grpo, sapo": "loss = ((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()",
    "bnpo": "loss = (per_token_loss * mask).sum() / mask.sum().clamp(min=1.0)",
    "dr_grpo": "loss = (per_token_loss * mask).sum() / (per_token_loss.size(0) * self.max_completion_length)",
    "cispo, dapo, vespo": "loss = (per_token_loss * mask).sum() / normalizer",
    "luspo": "loss = (per_token_loss * mask).sum(-1).mean()",
}


@pytest.mark.parametrize("losses", LOSS_MEANS)
def test_a_loss_is_the_mean_that_the_scale_of_a_pass_is_made_for(losses):
    source = ast.unparse(syntax_tree(GRPOTrainer._compute_loss))
    names = losses.split(", ")
    condition = f"self.loss_type in {names}:" if len(names) > 1 else f"self.loss_type == '{losses}':"
    found = [part.split("elif ")[0] for part in source.split(condition)[1:]]
    expected = LOSS_MEANS[losses]
    assert any(expected in part for part in found), moved(f"the mean of the loss {losses}", expected, found)


def test_a_reference_moves_by_alpha_towards_the_weights():
    found = ast.unparse(syntax_tree(SyncRefModelCallback._sync_target_model))
    expected = "target_param.data.mul_(1.0 - alpha).add_(copy_param.data, alpha=alpha)"
    assert expected in found, moved("how SyncRefModelCallback moves a reference", expected, found)


def test_the_gradients_norm_is_taken_before_the_optimizer_steps_and_the_scheduler_asks_whether_it_did():
    source = ast.unparse(syntax_tree(Trainer._run_epoch))
    expected = [
        "grad_norm = self._clip_grad_norm(model)",
        "grad_norm = self._get_grad_norm(model, grad_norm=grad_norm)",
        "self.optimizer.step()",
        "if not self.accelerator.optimizer_step_was_skipped:",
        "self.lr_scheduler.step()",
        "self._maybe_log_save_evaluate(",
    ]
    places = [source.find(part) for part in expected]
    assert -1 not in places, moved("the update in Trainer._run_epoch", expected, places)
    assert places == sorted(places), moved("the update in Trainer._run_epoch", expected, places)


def test_an_optimizer_says_that_its_step_was_skipped_by_the_attribute_that_we_set():
    found = attributes_of_self(AcceleratedOptimizer.step_was_skipped.fget, ast.Load)
    expected = {"_is_overflow"}
    assert found == expected, moved("AcceleratedOptimizer.step_was_skipped", expected, found)


def test_a_checkpoint_is_written_below_the_folder_that_our_hook_gives_and_pushed_and_rotated_last():
    source = ast.unparse(syntax_tree(Trainer._save_checkpoint))
    expected = [
        "run_dir = self._get_output_dir(trial=trial)",
        "output_dir = os.path.join(run_dir, checkpoint_folder)",
        "self.save_model(output_dir, _internal_call=True)",
        "self._save_optimizer_and_scheduler(output_dir)",
        "self._save_rng_state(output_dir)",
        "self.state.save_to_json(os.path.join(output_dir, TRAINER_STATE_NAME))",
        "self._push_from_checkpoint(output_dir)",
        "rotate_checkpoints(output_dir=run_dir",
    ]
    places = [source.find(part) for part in expected]
    assert -1 not in places, moved("what Trainer._save_checkpoint does", expected, places)
    assert places == sorted(places), moved("the order in Trainer._save_checkpoint", expected, places)


def test_where_a_run_stands_is_read_back_with_the_optimizer():
    found = calls_of(Trainer._prepare_for_training, "_load_optimizer_and_scheduler")
    expected = ["self._load_optimizer_and_scheduler(resume_from_checkpoint)"]
    assert found == expected, moved("the call of _load_optimizer_and_scheduler", expected, found)


def test_trl_scales_the_loss_for_gradient_accumulation_itself():
    found = GRPOTrainer.loss_is_scaled_for_ga
    assert found is True, moved("GRPOTrainer.loss_is_scaled_for_ga", True, found)


def test_the_training_loop_clips_through_our_hook_when_max_grad_norm_is_positive():
    found = calls_of(Trainer._run_epoch, "_clip_grad_norm")
    expected = ["self._clip_grad_norm(model)"]
    assert found == expected, moved("the call of _clip_grad_norm in Trainer._run_epoch", expected, found)
    source = ast.unparse(syntax_tree(Trainer._run_epoch))
    expected = "if self.args.max_grad_norm > 0:\n"
    assert expected in source, moved("the condition of clipping in Trainer._run_epoch", expected, "not in it")


def test_the_training_loop_makes_the_optimizer_through_our_hook_before_it_loads_one():
    source = inspect.getsource(Trainer._prepare_for_training)
    places = [
        source.find(name) for name in ("self.create_optimizer(", "self._load_optimizer_and_scheduler(resume_from_che")
    ]
    assert -1 < places[0] < places[1], moved(
        "the order of create_optimizer and _load_optimizer_and_scheduler in Trainer._prepare_for_training",
        "both there, in this order",
        f"at characters {places} (-1: not there)",
    )


def test_weights_are_loaded_through_our_hook_before_the_optimizer_is_made():
    found = calls_of(Trainer.train, "_load_from_checkpoint")
    expected = ["self._load_from_checkpoint(resume_from_checkpoint)"]
    assert found == expected, moved("the call of _load_from_checkpoint in Trainer.train", expected, found)


def test_the_repeat_sampler_repeats_whole_blocks_of_rows_and_drops_an_incomplete_one():
    sampler = RepeatSampler(range(5), mini_repeat_count=1, batch_size=2, repeat_count=2, shuffle=False)
    found = list(sampler)
    expected = [0, 1, 0, 1, 2, 3, 2, 3]
    assert found == expected, moved("the order of trl.trainer.utils.RepeatSampler", expected, found)


def test_splitting_a_batch_cuts_rows_keeps_scalars_and_drops_the_remainder():
    chunks = split_tensor_dict({"ids": torch.arange(5), "names": list("abcde"), "n": torch.tensor(7)}, 2)
    found = [(chunk["ids"].tolist(), chunk["names"], chunk["n"].item()) for chunk in chunks]
    expected = [([0, 1], ["a", "b"], 7), ([2, 3], ["c", "d"], 7)]
    assert found == expected, moved("what trl.trainer.utils.split_tensor_dict does", expected, found)


def test_shuffling_a_batch_moves_rows_together_and_keeps_scalars():
    shuffled = shuffle_sequence_dict({"ids": torch.arange(6), "names": list("abcdef"), "n": torch.tensor(7)})
    rows = list(zip(shuffled["ids"].tolist(), shuffled["names"], strict=True))
    expected = list(enumerate("abcdef"))
    assert sorted(rows) == expected, moved("what trl.trainer.utils.shuffle_sequence_dict does", expected, rows)
    assert shuffled["n"].item() == 7, moved("a scalar in shuffle_sequence_dict", 7, shuffled["n"])


def test_what_is_overridden_where_log_probabilities_are_taken_has_the_arguments_that_ours_passes_on():
    theirs = list(inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters)
    own = ["self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy"]
    own += ["compute_aux_loss"]
    of_images = ["pixel_values", "image_grid_thw", "num_images", "pixel_attention_mask", "spatial_shapes", "num_tiles"]
    of_images += ["image_sizes", "token_type_ids", "mm_token_type_ids", "image_position_ids"]
    assert theirs == own + of_images, moved("the arguments of _get_per_token_logps_and_entropies", own, theirs)


def test_the_fused_head_takes_labels_that_are_shifted_and_hands_the_rest_to_the_model():
    source = ast.unparse(syntax_tree(add_fused_lm_head))
    for expected in (
        "def _fused_forward(self, *args, fused_lm_head=False, labels=None, shift_labels=None, num_items_in_batch=None,"
        " **kwargs)",
        "backbone_outputs = getattr(self, backbone_attr)(*args, **kwargs)",
        "labels = shift_labels",
    ):
        assert expected in source, moved("add_fused_lm_head", expected, "not in it")


def test_transformers_asks_for_a_models_attention_by_the_name_in_its_configuration_each_time():
    source = inspect.getsource(modeling_qwen3)
    for expected in ("ALL_ATTENTION_FUNCTIONS.get_interface(", "self.config._attn_implementation, eager_attention"):
        assert expected in source, moved("the attention of Qwen3", expected, "not in it")
    found = list(inspect.signature(masking_utils.create_causal_mask).parameters)[:5]
    expected = ["config", "inputs_embeds", "attention_mask", "past_key_values", "position_ids"]
    assert found == expected, moved("create_causal_mask", expected, found)
    source = ast.unparse(syntax_tree(masking_utils.create_sliding_window_causal_mask))
    for expected in ("mask_function=", "local_size=sliding_window"):
        assert expected in source, moved("the mask of a window", expected, "not in it")
