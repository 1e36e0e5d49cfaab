"""The client on plain blocking sockets: for scripts, notebooks and Spark executors. It imports no event loop."""

from penstock.blocking.link import BlockingLink as BlockingLink
from penstock.blocking.routes import Routes as Routes
from penstock.blocking.routes import bootstrap as bootstrap
