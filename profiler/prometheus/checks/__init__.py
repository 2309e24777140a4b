"""What the server says beside usage, by which a scan tells what usage is not to be believed, or not missing."""
