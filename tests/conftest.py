"""Settings for all tests."""

from hypothesis import settings

# No deadline: machines are shared, and the first call pays for what torch loads lazily.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
