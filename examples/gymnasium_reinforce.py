"""REINFORCE on a Gymnasium id, with nothing of our trainer: a network that reads a prompt's last characters.

    python examples/gymnasium_reinforce.py --seed 0    # a curve of held-out success, two minutes on one core

docs/results.md has the curves of three seeds.
"""

import argparse

import gymnasium
import torch
from torch import nn


ID, SETTINGS = "pettingllms_envs:pettingllms/plan_path-v0", {"size": 4, "num_turns": 8}
REPLIES = ("Moves: U", "Moves: D", "Moves: L", "Moves: R")
NUM_ENVS, CHARACTERS = 64, 220


def encode(texts: tuple[str, ...]) -> torch.Tensor:
    """The last characters of each prompt, as codes below 128: (envs, characters)."""
    return torch.tensor([[min(ord(c), 127) for c in text[-CHARACTERS:].rjust(CHARACTERS)] for text in texts])


def play(envs: gymnasium.vector.VectorEnv, policy: nn.Module, seed: int, split: str) -> tuple[torch.Tensor, ...]:
    """An episode in each environment: log-probabilities and rewards (turns, envs), and who succeeded (envs,)."""
    texts, _ = envs.reset(seed=seed, options={"split": split})
    live, solved = torch.ones(NUM_ENVS), torch.zeros(NUM_ENVS)
    logps, rewards = [], []
    while live.any():
        chosen = torch.distributions.Categorical(logits=policy(encode(texts)))
        actions = chosen.sample()
        texts, reward, terminated, truncated, _ = envs.step([REPLIES[each] for each in actions])
        logps.append(chosen.log_prob(actions) * live)
        rewards.append(torch.tensor(reward, dtype=torch.float32) * live)
        solved += live * torch.tensor(terminated)
        live = live * ~torch.tensor(terminated | truncated)
    return torch.stack(logps), torch.stack(rewards), solved


def train(seed: int, num_steps: int, every: int, num_held_out: int = 512) -> list[tuple[int, float]]:
    """The success on held-out instances after 0, `every`, ... steps."""
    torch.manual_seed(seed)
    envs = gymnasium.make_vec(ID, NUM_ENVS, **SETTINGS)
    policy = nn.Sequential(
        nn.Embedding(128, 8), nn.Flatten(), nn.Linear(8 * CHARACTERS, 128), nn.ReLU(), nn.Linear(128, 4)
    )
    optimizer, curve = torch.optim.Adam(policy.parameters(), 1e-3), []
    for step in range(num_steps + 1):
        if step % every == 0:
            with torch.no_grad():
                held_out = [play(envs, policy, first, "test")[2] for first in range(0, num_held_out, NUM_ENVS)]
            curve.append((step, float(torch.cat(held_out).mean())))
            print(
                f"seed {seed}, {step} updates: success {curve[-1][1]:.1%} on {num_held_out} held-out instances",
                flush=True,
            )
        logps, rewards, _ = play(envs, policy, (seed * num_steps + step) * NUM_ENVS, "train")
        returns = rewards.flip(0).cumsum(0).flip(0)  # (turns, envs)
        loss = -(logps * (returns - returns.mean(1, keepdim=True))).sum(0).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num_steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=50)
    train(**vars(parser.parse_args()))
