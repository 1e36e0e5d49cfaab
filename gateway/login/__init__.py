"""Logins and rights of clients: passwords, tokens, proofs, certificates, rules, and limits of attempts."""
