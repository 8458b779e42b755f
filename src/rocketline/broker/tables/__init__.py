"""Tables that a broker keeps in `config/`: topics, groups, consumer offsets, filters."""
