"""Rolling-origin back-tests: how good forecasts are, against named baselines, on any history."""
