"""What Spark reads and writes, how fast, and beside what: the benchmark of the Spark source (``make bench-spark``)."""
