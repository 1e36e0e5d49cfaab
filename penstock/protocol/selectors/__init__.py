"""Selectors: which messages a consumer wants, said in SQL-92's words over their properties.

RocketMQ's grammar and verdicts, LIKE beside it, and fields of JSON bodies (``$.a.b``). A text becomes tokens
(``lexer``), a checked tree (``parser``, ``syntax``) and conditions (``compiling``, ``conditions``) that look at a
message's encoded properties. Pure, and bounded in all it does. Decision 46 says where RocketMQ's way is left.
"""
