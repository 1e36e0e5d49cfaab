"""What was stored before a subscription stands and is owed to it: retained messages, history, named positions."""
