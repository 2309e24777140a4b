"""The extender's load rules: nodes too busy now or at the next forecast peak, and where batch pods go. Pure."""
