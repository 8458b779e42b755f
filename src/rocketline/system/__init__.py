"""What differs between operating systems, with what is done instead where something is missing.

Code above this package does not ask which system it runs on. What only the store needs is in its own modules of the same
kind: `store/files/mapping.py`, `memory_lock.py`, `process_lock.py` and `file_system.py`.
"""
