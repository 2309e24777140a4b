"""Local time: days of 23 and 25 hours, public holidays and the operator's own events. Pure."""
