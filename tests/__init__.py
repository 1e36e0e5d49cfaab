"""Tests of Penstock. A package of its own, so that none that an installed library calls ``tests`` stands in its place."""
