"""Which nodes a cluster does not need: decided here, tested by placing their pods again; nothing is written."""
