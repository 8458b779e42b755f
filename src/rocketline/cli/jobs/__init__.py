"""The commands `store` and `pipeline`: work on files of a store, and Spark jobs."""
