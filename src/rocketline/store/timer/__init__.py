"""The files of timer messages: a log of entries, a wheel of slots that lead to them, and how far both are done."""
