"""The top layer: what runs. Applications combine the packages below; nothing below imports them."""
