"""HTTP connections of both listeners: what they may cost, and who may hold how many."""
