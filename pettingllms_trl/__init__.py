"""Training teams of language-model agents on TRL: AT-GRPO over any PettingZoo AEC environment with text observations."""

from .config import MultiAgentGRPOConfig
from .policies import Policy
from .records import Candidate, Completion, Decision, Episode
from .trainer import MultiAgentGRPOTrainer

__all__ = [
    "Candidate",
    "Completion",
    "Decision",
    "Episode",
    "MultiAgentGRPOConfig",
    "MultiAgentGRPOTrainer",
    "Policy",
]
