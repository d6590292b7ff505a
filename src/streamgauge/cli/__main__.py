"""`python -m streamgauge.cli`."""

from __future__ import annotations

import sys

from streamgauge.cli import main

sys.exit(main())
