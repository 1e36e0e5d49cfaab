"""The client on plain blocking sockets: for scripts, notebooks and Spark executors. It imports no event loop."""

from penstock.blocking.admin import Admin as Admin
from penstock.blocking.consumer import Consumer as Consumer
from penstock.blocking.finding import find as find
from penstock.blocking.link import BlockingLink as BlockingLink
from penstock.blocking.pop_consumer import PopConsumer as PopConsumer
from penstock.blocking.producer import Producer as Producer
from penstock.blocking.reader import Reader as Reader
from penstock.blocking.routes import Routes as Routes
from penstock.blocking.routes import bootstrap as bootstrap
