"""Where Python finds this folder instead of the package: `import cotenant` from the folder above a clone of it."""

raise ImportError(
    f"{__path__[0]} is the source of cotenant, and the package is the folder cotenant inside it: "  # type: ignore[name-defined]
    "run Python in the source folder itself, or in any folder that has no folder cotenant."
)
