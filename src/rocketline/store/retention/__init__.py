"""Removing old files and the files of deleted topics."""
