"""The built-in strategies, one file each; every one is evidence + settings -> recommendations."""
