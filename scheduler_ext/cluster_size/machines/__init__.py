"""Machine types that a cluster may be built from: the cheapest mix that holds its pods, and its cost."""
