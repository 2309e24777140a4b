"""`cotenant demo`: a synthetic cluster in the browser, or its workloads on your own test cluster."""
