"""Reports as one self-contained HTML file. Pure."""
