"""`cotenant reservations`: reserve capacity for workloads before they need it."""
