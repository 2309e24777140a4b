"""The sections of the settings that the agent of a node reads: itself, best effort, and what it does at the runtime."""
