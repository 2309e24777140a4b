"""Automatic right-sizing under policies, through the same code that carries out a change that a person accepts."""
