"""``python -m namesrv --config FILE``: one name server, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import sys

from namesrv import server
from namesrv.settings import NamesrvSettings
from penstock.service_main import main

if __name__ == "__main__":
    sys.exit(main("namesrv", NamesrvSettings, server.run))
