"""The extender's view of the cluster: watched by a separate process, transferred in frames."""
