"""Local time: days of 23 and 25 hours, public holidays, and events from the settings. Pure."""
