"""The process on a host that fetches the work of the host and does it; it opens no port."""
