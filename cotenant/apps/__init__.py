"""The top floor: what runs. Applications join the rooms below; nothing below imports them."""
