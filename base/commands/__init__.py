"""The framework of every command: session, options, output, shell completion."""
