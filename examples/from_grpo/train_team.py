# train_grpo.py
from datasets import load_dataset
from pettingllms_envs import conversation
from pettingllms_trl import MultiAgentGRPOTrainer
from trl.rewards import accuracy_reward

dataset = load_dataset("trl-lib/DeepMath-103K", split="train")

trainer = MultiAgentGRPOTrainer(
    model="Qwen/Qwen2-0.5B-Instruct",
    env=conversation(roles=["solver", "critic", "solver"]),
    policies="lora",
    reward_funcs=accuracy_reward,
    train_dataset=dataset,
)
trainer.train()
