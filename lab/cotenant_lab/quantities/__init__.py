"""The dictionary of quantities: each number that a surface shows, with its definition, unit, sign and function."""
