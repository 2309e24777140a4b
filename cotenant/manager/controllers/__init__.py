"""One module per controller: it reads mirrors, calls a pure decision and returns the writes."""
