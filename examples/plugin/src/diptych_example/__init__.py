"""One plug-in of each kind for Diptych: what this package registers is in pyproject.toml."""
