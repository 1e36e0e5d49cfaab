"""Who a client is and what it may do: passwords, tokens, proofs, certificates, rules, and how many attempts it has."""
