"""Numbers of the remoting protocol: what a command asks for, and what an answer says."""

from __future__ import annotations

from typing import Final

# What clients ask a broker for.
SEND: Final = 10
PULL: Final = 11
QUERY_MESSAGE: Final = 12
QUERY_OFFSET: Final = 14
UPDATE_OFFSET: Final = 15
CREATE_TOPIC: Final = 17
BROKER_INFO: Final = 28
SEARCH_OFFSET: Final = 29
MAX_OFFSET: Final = 30
MIN_OFFSET: Final = 31
VIEW_MESSAGE: Final = 33
HEARTBEAT: Final = 34
UNREGISTER_CLIENT: Final = 35
SEND_BACK: Final = 36
END_TRANSACTION: Final = 37
CONSUMERS_OF_GROUP: Final = 38
LOCK_QUEUES: Final = 41
UNLOCK_QUEUES: Final = 42
CHECK_CLIENT_CONFIG: Final = 46
CREATE_GROUP: Final = 200
TOPIC_STATS: Final = 202
CONSUMER_CONNECTIONS: Final = 203
PRODUCER_CONNECTIONS: Final = 204
DELETE_GROUP: Final = 207
CONSUME_STATS: Final = 208
DELETE_TOPIC: Final = 215
RESET_OFFSETS: Final = 222
CONSUMER_STATUS: Final = 223
GROUPS_OF_TOPIC: Final = 300
SEND_V2: Final = 310
BROKER_STATS: Final = 315
SEND_BATCH: Final = 320
SEND_REPLY: Final = 324
SEND_REPLY_V2: Final = 325
TOPIC_CONFIG: Final = 351
LITE_PULL: Final = 361

# What clients ask a name server for.
ROUTE: Final = 105
CLUSTER_INFO: Final = 106
ALL_TOPICS: Final = 206
DELETE_TOPIC_AT_NAMES: Final = 216

# What a broker tells its clients.
CHECK_TRANSACTION: Final = 39
CONSUMERS_CHANGED: Final = 40
RESET_CLIENT_OFFSETS: Final = 220
CLIENT_STATUS: Final = 221
PUSH_REPLY: Final = 326

# What tools ask a broker for, and it asks a client.
CONSUMER_RUNNING_INFO: Final = 307
CONSUME_DIRECTLY: Final = 309

# What an answer says.
SUCCESS: Final = 0
SYSTEM_ERROR: Final = 1
SYSTEM_BUSY: Final = 2
NOT_SUPPORTED: Final = 3
FLUSH_DISK_TIMEOUT: Final = 10
FLUSH_COPIES_TIMEOUT: Final = 12
MESSAGE_ILLEGAL: Final = 13
SERVICE_NOT_AVAILABLE: Final = 14
NO_PERMISSION: Final = 16
TOPIC_NOT_EXIST: Final = 17
PULL_NOT_FOUND: Final = 19
PULL_RETRY_IMMEDIATELY: Final = 20
PULL_OFFSET_MOVED: Final = 21
QUERY_NOT_FOUND: Final = 22
SUBSCRIPTION_PARSE_FAILED: Final = 23
SUBSCRIPTION_NOT_EXIST: Final = 24
CONSUMER_NOT_ONLINE: Final = 206

V5: Final = 398
"""The version of 5.0.0. Some 4.x clients that are younger have a greater one."""
