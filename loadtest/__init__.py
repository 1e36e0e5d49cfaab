"""Load generators, side-by-side benchmarks and long proofs. Nothing in the product imports this package."""
