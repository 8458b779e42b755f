"""Messages that are delivered later, by delay level."""
