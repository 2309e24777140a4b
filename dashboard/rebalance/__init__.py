"""Actions of the Rebalance page: approving and withdrawing moves."""
