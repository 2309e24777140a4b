"""Declaration and reading of settings: frozen msgspec structs whose fields have a description, domain and unit.

A package declares its sections in its `settings.py`, `sections` has those that several packages use, and
`cotenant.settings` joins all of them. `settings.load` joins defaults < YAML file < environment
(`COTENANT_SECTION__KEY`) < flags; the documentation page and the JSON schema are generated from the same structs.
msgspec is used because the node agent's base install has it.
"""
