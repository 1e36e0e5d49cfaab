"""Consumer groups: members, positions, holders of positions, given-up groups."""
