"""Settings of the whole test suite."""

import torch
from hypothesis import settings

# Timing never decides a test; several test processes share the cores.
settings.register_profile("diptych", deadline=None, max_examples=60)
settings.load_profile("diptych")
torch.set_num_threads(1)
