"""Charts of quality: how complete the history is, and how well forecasts were calibrated. Pure."""
