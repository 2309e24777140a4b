"""One module per controller: it reads mirrors (watched copies), calls a pure decision and returns the writes."""
