"""The NRI plugin, which the runtime calls before it creates or changes a container: its answers, and their frames."""
