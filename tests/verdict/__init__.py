"""The verdict, against the plain judge of tests/model and against what must not change it."""

from hypothesis import settings

settings.register_profile("lockproof", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("lockproof")
