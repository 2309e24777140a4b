"""Values of labels, annotations and amounts that cannot be understood: warnings to their author. Pure."""
