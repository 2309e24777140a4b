"""Values of labels, annotations and amounts that cannot be understood: warnings to who writes them. Pure."""
