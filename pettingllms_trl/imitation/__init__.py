"""Expert iteration (`imitate`): what a team has sampled, to the replies that it imitates, round after round."""
