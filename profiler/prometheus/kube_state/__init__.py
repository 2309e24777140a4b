"""Facts from kube-state-metrics, series by series, and what it lacks: owners, phases, autoscalers. Pure."""
