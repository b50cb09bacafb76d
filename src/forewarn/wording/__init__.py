"""What operators type and read: commands, durations, times, addresses, what is wrong with them."""
