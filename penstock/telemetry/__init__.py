"""Telemetry jobs: readings out of payloads, their windows per device and metric, and one job that runs them.

``decode`` and ``windows`` are functions from DataFrame to DataFrame, usable in any Spark program; ``job`` puts them
together and prints; ``penstock telemetry run`` and ``python -m penstock.telemetry`` start it.
"""
