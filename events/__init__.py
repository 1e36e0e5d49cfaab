"""The event bridge: events come in, rules choose among them, targets get them. docs/guide/events.md."""
