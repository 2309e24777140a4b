"""Reports as one HTML file that needs nothing else. Pure."""
