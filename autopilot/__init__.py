"""Right-sizing that goes on by itself, through the same accept path as a person's: policies, queue, rounds, switch."""
