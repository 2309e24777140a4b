"""The embedded default: what runs when there is no cluster. So far: a synthetic cluster filled into a store."""
