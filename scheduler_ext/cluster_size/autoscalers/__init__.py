"""The autoscaler that removes an empty node, and the objects and settings that prevent the removal."""
