"""The files of timer messages: a log of entries, a wheel of slots that point to them, and a checkpoint."""
