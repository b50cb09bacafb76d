"""What `forewarn doctor` looks at."""
