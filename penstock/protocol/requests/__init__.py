"""Every request and reply of Penstock, as data. ``wire.py`` gives them bytes; ``link.py`` carries them.

One module for each theme, and callers import from where a thing lives: ``servers``, ``routes`` (name servers),
``topics``, ``messages``, ``filters``, ``groups``, ``sessions``, ``shares``, ``pops``, ``retries``, ``timers``,
``transactions`` and ``replicas`` (brokers). They build on ``request``; ``table`` gathers them all for the wire.

Names end with their action, numbers with their unit. A request says which reply answers it. Fields only ever grow at
the end, with a default: an older peer then still understands (docs/formats/wire.md).

Queues are named by strings (``topicmap.queues``): ``telemetry:0`` is queue 0 of a topic, ``~filter:a/+`` the light
queue of an MQTT filter. An *offset* is a place in a queue, a *position* is a place in the log, in bytes.
"""
