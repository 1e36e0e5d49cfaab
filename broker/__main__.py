"""``python -m broker --config FILE`` runs one broker."""

import sys

from broker import server
from broker.settings import BrokerSettings
from penstock.service_main import main

if __name__ == "__main__":
    sys.exit(main("broker", BrokerSettings, server.run))
