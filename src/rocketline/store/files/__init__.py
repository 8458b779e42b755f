"""Files of a store: the seam to the disk, maps, chains of files of one size, one process at a time."""
