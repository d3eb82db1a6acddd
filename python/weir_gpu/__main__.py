"""`python -m weir_gpu` is the command `weir`."""

import sys

from .command import main

sys.exit(main())
