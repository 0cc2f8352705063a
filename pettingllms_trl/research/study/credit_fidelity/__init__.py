"""How well the advantages of a credit scheme agree with counterfactual ones."""
