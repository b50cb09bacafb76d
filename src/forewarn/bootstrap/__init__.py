"""The one place where the parts are put together."""
