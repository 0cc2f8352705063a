"""What a model is by its class and configuration: what that rules out, and a tiny model on which the rest is tried."""
