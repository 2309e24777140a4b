"""Rolling-origin back-tests: how good forecasts are, compared with named baselines, on any history."""
