"""The ground floor: vocabulary (`model`), `settings`, and adapters to the outside. Everything may import it."""
