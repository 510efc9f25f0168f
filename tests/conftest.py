"""Settings of all tests."""

from hypothesis import settings

# Machines are shared, and the first call pays for what torch loads late.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
