"""The web console: what operators see of a cluster and do with it, in a browser.

A service of its own. It asks brokers through the client library alone.
"""
