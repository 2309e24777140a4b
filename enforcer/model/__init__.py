"""Inputs and reports of the node agent: node policy, enforcement and its tables. Pure."""
