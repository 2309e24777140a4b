"""Volumes of pods: where they can be used, for every decision that places a pod elsewhere."""
