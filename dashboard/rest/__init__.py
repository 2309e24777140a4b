"""The REST API: what the pages show and do, for scripts."""
