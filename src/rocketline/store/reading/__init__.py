"""Messages read from the log by queue and offset, each verified; what to do about damage."""
