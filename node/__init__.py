"""The composition root: runs name server, broker and gateway together, in one process or as child processes.

The only package that knows all services. It decides nothing that a service could decide: it starts, wires up,
watches and stops.
"""
