"""Tasks: pure state machines with rules, parser, generator and oracle. One file each; no role, no prompt of a role."""
