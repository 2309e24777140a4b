"""Emptying under-used nodes, so that an autoscaler can remove them (the plugin HighNodeLoad). Pure."""
