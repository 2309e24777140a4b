"""Facts from kube-state-metrics series, and facts that it lacks: owners, phases, autoscalers. Pure."""
