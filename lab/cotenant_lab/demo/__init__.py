"""`cotenant demo`: a synthetic cluster in the browser, or on a cluster of your own."""
