"""One tick's decision: strategies in turn, their wants merged and settled into writes. Pure."""
