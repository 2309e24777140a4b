"""The extender's rules about load: too busy now, too busy at the next peak, and where batch pods go. Pure."""
