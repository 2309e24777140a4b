"""What a process needs of its machine: clock, threads, child processes, files, memory."""
