"""Emptying: which under-used nodes are emptied for an autoscaler (Koordinator's HighNodeLoad). Pure."""
