"""The types of usage: time series, portraits, forecasts and their quality."""
