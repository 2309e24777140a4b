"""One module a controller: it reads mirrors, calls a pure decision and returns the writes."""
