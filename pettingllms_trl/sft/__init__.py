"""The warm-up before reinforcement learning: supervised fine-tuning on demonstrations."""
