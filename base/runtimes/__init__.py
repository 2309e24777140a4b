"""Language runtimes that manage their own heap inside a container's memory."""
