"""Names the log of a data folder: one record, durable before anyone hears of it."""

from __future__ import annotations

import logging

from broker.kernel.fold import fact_record
from broker.lineage import identity
from broker.lineage.identity import Identity
from broker.store.message_store import MessageStore
from penstock.errors import StorageFull
from penstock.world import Rng

_log = logging.getLogger(__name__)


def name_log(known: Identity, store: MessageStore, rng: Rng, now_ms: int) -> None:
    """Gives the log a random id of 128 bits if it has none; blocks for a sync then. On a full disk it stays without one
    until the next start. Raises ``StorageFailed``."""
    if known.log_id:
        return
    try:
        rename_log(known, store, rng, now_ms)
    except StorageFull:
        _log.warning("the disk is full: this log gets its identity at the next start")


def rename_log(known: Identity, store: MessageStore, rng: Rng, now_ms: int) -> None:
    """Gives the log a new random id, whatever it had: a restored copy goes on as another log. Blocks for a sync. Raises
    ``StorageFull``, ``StorageFailed``."""
    fact = Identity.fact(f"{rng.getrandbits(128):032x}", replaces=known.log_id)
    store.append([fact_record(identity.TOPIC, fact)], now_ms)
    store.sync_all()
