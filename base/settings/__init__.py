"""How settings are declared and read: frozen msgspec structs whose fields carry description, domain and unit.

A room declares its sections in its `settings.py`, `sections` has those that belong to no room, and `cotenant.settings`
joins all of them. `settings.load` joins defaults < YAML file < environment (`COTENANT_SECTION__KEY`) < flags; the
documentation page and the JSON schema are generated from the same structs. msgspec is used because the node agent's
base install has it.
"""
