"""Writing from Spark: ``df.write.format("penstock")`` and ``writeStream``. Only ``writers`` knows Spark's classes."""
