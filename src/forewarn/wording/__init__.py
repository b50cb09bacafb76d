"""What operators type and read: durations, times, addresses, and what is wrong with them."""
