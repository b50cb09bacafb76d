"""How the server speaks of itself: logs and metrics."""
