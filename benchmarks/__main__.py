"""`python -m benchmarks [FAMILY …]`."""

import sys

from benchmarks.cli import main

sys.exit(main())
