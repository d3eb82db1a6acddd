"""What PyTorch programs do with GPU memory, one thing at a time, with Weir in place. Run on a GPU:

    WEIR_CHILD_ALLOCATOR=weir WEIR_CHILD_REQUIRED=1 PYTHONPATH=dist/python python3 test/gpu/torch/features.py

Options: [--only A,B] [--storm SECONDS] [--json FILE]

Prints PASS or FAIL for each; ends with 1 if any failed. WEIR_CHILD_ALLOCATOR=pytorch shows that the tests themselves are right."""

import sys

# In the order in which they run: what may leave a mess comes late.
import features_memory  # noqa: F401
import features_processes  # noqa: F401
import features_streams  # noqa: F401
import harness

if __name__ == "__main__":
    sys.exit(harness.main())
