"""The broker's folds: topics, filters, consumer offsets, retained values. Each is a deterministic function of the
log's prefix.

``state.BrokerState`` joins them into the one object that the store feeds. docs/formats/facts.md lists their records.
"""
