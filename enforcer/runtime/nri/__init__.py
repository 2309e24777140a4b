"""The NRI plugin: the runtime asks before it makes or changes a container; its answers, and their frames."""
