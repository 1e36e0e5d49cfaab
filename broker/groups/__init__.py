"""Consumer groups: members, positions, who shares a position, which groups were given up."""
