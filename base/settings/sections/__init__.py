"""Sections of the settings that no room has to itself: frozen structs whose fields carry doc, range and unit."""
