"""Settings of all tests: no network, and how many examples the property tests try."""

import os

from hypothesis import HealthCheck, settings

os.environ["HF_HUB_OFFLINE"] = "1"

# No test depends on the clock: neither a slow example nor a slow strategy fails on a busy machine.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", patient, max_examples=120)
settings.register_profile("soak", patient, max_examples=2_000)
settings.load_profile("soak" if os.environ.get("SOAK") else "default")
