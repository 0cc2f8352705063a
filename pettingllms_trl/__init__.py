"""Training teams of language-model agents on TRL: AT-GRPO over any PettingZoo AEC environment that speaks text."""

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.policies import Policy
from pettingllms_trl.records import Candidate, Completion, Decision, Episode
from pettingllms_trl.trainer import MultiAgentGRPOTrainer


__all__ = [
    "Candidate",
    "Completion",
    "Decision",
    "Episode",
    "MultiAgentGRPOConfig",
    "MultiAgentGRPOTrainer",
    "Policy",
]
