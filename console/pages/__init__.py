"""The pages of the console, one module for each entry of its navigation: functions from a ``Visit`` to a response."""
