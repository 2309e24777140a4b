"""Keys that were settings and are constants now: one table, from which warnings, the schema and a page are made."""
