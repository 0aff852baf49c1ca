"""``python -m gpureduce``: the same as the ``gpureduce`` command."""

import sys

from gpureduce.cli import main

sys.exit(main())
