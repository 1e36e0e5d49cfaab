"""The parts of every theme of the broker: folds, handlers of requests, outcomes, levels, timers."""
