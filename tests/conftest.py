"""What all tests share: no network, and how hard the property tests try."""

import os

from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"

settings.register_profile("default", max_examples=120, deadline=None)
settings.register_profile("soak", max_examples=2_000, deadline=None)
settings.load_profile("soak" if os.environ.get("SOAK") else "default")
