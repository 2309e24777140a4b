"""Static predictors of a node's peak, and what nodes of a trace could lend by them against violations."""
