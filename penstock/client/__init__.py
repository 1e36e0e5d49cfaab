"""The native client for asyncio and trio. Programs import its names from ``penstock``."""
