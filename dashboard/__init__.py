"""The web dashboard: one page per file, figures as pure functions, data through one source."""
