"""Messages delivered at a moment of their own: taken in, kept on the timer wheel, delivered, recalled."""
