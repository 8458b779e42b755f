"""Tools that work on the files of a store without a broker."""
