"""What every theme of the broker is made of: folds, handlers of requests, outcomes, levels, timers."""
