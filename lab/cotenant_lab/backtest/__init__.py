"""Static predictors of a node's peak, and the capacity that nodes of a trace could lend by them, against violations."""
