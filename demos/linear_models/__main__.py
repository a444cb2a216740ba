import sys

from demos.linear_models.linear_models import main

sys.exit(main())
