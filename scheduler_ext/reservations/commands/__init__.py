"""`cotenant reservations`: capacity for workloads before they need it."""
