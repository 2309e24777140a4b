"""The scrape intervals of the server's series, and what remains of downsampled or deleted samples."""
