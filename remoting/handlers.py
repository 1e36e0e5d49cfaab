"""Which flow carries out which command."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from remoting import clients, codes, pulling, routes, sending, settling
from remoting.calls import Call
from remoting.flows import Flow
from remoting.frames import Command

Handler = Callable[[Call], Flow | Command]
"""A command that needs nothing of the broker is answered at once."""


def handlers() -> Mapping[int, Handler]:
    """The table of a front. A code that is not there is answered as not supported."""
    known = clients.ClientCalls()
    return {
        codes.SEND: settling.send,
        codes.SEND_V2: settling.send,
        codes.SEND_BATCH: sending.send,
        codes.SEND_REPLY: sending.send_reply,
        codes.SEND_REPLY_V2: sending.send_reply,
        codes.PULL: pulling.pull,
        codes.LITE_PULL: pulling.pull,
        codes.QUERY_MESSAGE: pulling.query_message,
        codes.VIEW_MESSAGE: pulling.view_message,
        codes.QUERY_OFFSET: pulling.query_offset,
        codes.UPDATE_OFFSET: pulling.update_offset,
        codes.MAX_OFFSET: pulling.max_offset,
        codes.MIN_OFFSET: pulling.min_offset,
        codes.SEARCH_OFFSET: pulling.search_offset,
        codes.SEND_BACK: settling.send_back,
        codes.END_TRANSACTION: settling.end_transaction,
        codes.HEARTBEAT: known.heartbeat,
        codes.UNREGISTER_CLIENT: known.unregister,
        codes.CONSUMERS_OF_GROUP: clients.consumers_of_group,
        codes.LOCK_QUEUES: clients.lock_queues,
        codes.UNLOCK_QUEUES: clients.unlock_queues,
        codes.CHECK_CLIENT_CONFIG: clients.check_config,
        codes.CONSUMER_CONNECTIONS: clients.consumer_connections,
        codes.PRODUCER_CONNECTIONS: clients.producer_connections,
        codes.CONSUMER_RUNNING_INFO: clients.running_info,
        codes.CONSUME_DIRECTLY: clients.consume_directly,
        codes.ROUTE: routes.route,
        codes.CLUSTER_INFO: routes.cluster_info,
        codes.ALL_TOPICS: routes.all_topics,
        codes.CREATE_TOPIC: routes.create_topic,
        codes.DELETE_TOPIC: routes.delete_topic,
        codes.DELETE_TOPIC_AT_NAMES: routes.nothing,
        codes.CREATE_GROUP: routes.nothing,
        codes.DELETE_GROUP: routes.delete_group,
        codes.TOPIC_STATS: routes.topic_stats,
        codes.GROUPS_OF_TOPIC: routes.groups_of_topic,
        codes.CONSUME_STATS: routes.consume_stats,
        codes.TOPIC_CONFIG: routes.topic_config,
        codes.BROKER_INFO: routes.broker_info,
        codes.RESET_OFFSETS: routes.reset_offsets,
        codes.CONSUMER_STATUS: clients.consumer_status,
        codes.BROKER_STATS: routes.broker_stats,
    }
