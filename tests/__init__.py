"""Tests of Penstock. A package of its own: an installed library has a top-level package of this name too."""
