"""The update: decisions and their advantages to forward passes, losses and gradients."""
