"""The frame around every page and the pieces that pages are laid out from."""
