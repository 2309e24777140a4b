"""What the page Rebalance does: approving and withdrawing moves."""
