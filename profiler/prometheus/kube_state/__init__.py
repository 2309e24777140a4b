"""What kube-state-metrics tells, series by series, and what it leaves open: owners, phases, autoscalers. Pure."""
