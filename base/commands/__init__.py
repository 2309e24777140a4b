"""The frame of every command: session, options, output, completion."""
