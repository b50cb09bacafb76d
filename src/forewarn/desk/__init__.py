"""What operators work with, whichever way it is shown to them: no HTTP, no framework."""
