"""A process's interface to its machine: clock, threads, child processes, files, memory."""
