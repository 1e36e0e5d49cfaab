"""Messages that sleep until a time: their fold, their requests, and what wakes them."""
