"""From rows of a data set, of the Hub's or of a local file with the same columns, to problems."""
