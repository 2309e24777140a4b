"""Language runtimes that keep a heap of their own inside a container's memory."""
