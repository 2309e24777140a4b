"""Every tunable, one file per section: frozen msgspec structs whose attributes carry doc, domain and unit.

`settings.load` joins defaults < YAML file < environment (`COTENANT_SECTION__KEY`) < flags; the documentation page
and the JSON schema are generated from the same structs. msgspec because the node agent's base install has it.
"""
