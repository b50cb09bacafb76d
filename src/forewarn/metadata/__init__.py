"""The metadata endpoint: what virtual machines read and post, answered from memory."""
