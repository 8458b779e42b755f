"""Files of a store: the disk interface, memory maps, chains of files of one size, the lock of a store's folder."""
