"""Engines: prompts to tokens, and the trained weights to the engines that sample from them."""
