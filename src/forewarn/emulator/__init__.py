"""What makes a server behave as no good server should, so that clients can be tested."""
