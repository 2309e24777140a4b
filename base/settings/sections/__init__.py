"""The sections of the settings, one module each: frozen structs whose fields carry doc, range and unit.

`node`: those that the agent of a node reads.
"""
