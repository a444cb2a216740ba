import sys

from demos.train_gpt.train import main

sys.exit(main())
