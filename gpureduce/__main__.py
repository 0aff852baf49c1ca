"""``python -m gpureduce``: the same as the ``gpureduce`` command."""

import sys

from gpureduce.cli.main import main

sys.exit(main())
