"""``python -m node`` is the ``penstock`` command, for a checkout that is not installed."""

from node.command import main

if __name__ == "__main__":
    main()
