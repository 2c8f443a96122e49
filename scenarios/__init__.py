"""The scenarios: one kind of fault a file, tried on every subject."""
