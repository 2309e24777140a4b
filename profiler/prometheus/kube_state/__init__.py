"""Facts from kube-state-metrics series (owners, phases, autoscalers), and which of these facts are missing. Pure."""
