import sys

from demos.custom_kernel.custom_kernel import main

sys.exit(main())
