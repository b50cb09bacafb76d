"""The feed: documents and who is who, as they change, for relays."""
