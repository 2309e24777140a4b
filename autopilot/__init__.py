"""Automatic right-sizing, through the same accept path as a person's: policies, queue, rounds, switch."""
