import sys

from demos.llama_block.llama_block import main

sys.exit(main())
