"""The benchmark of the Spark source and sink, beside Kafka's source and Parquet (``make bench-spark``)."""
