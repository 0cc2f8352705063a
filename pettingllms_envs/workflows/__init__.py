"""Workflows: who acts in which order, what each role sees, how its reply is used and scored. One file each."""
