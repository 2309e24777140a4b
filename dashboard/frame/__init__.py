"""The frame around every page, and the components that pages are built from."""
