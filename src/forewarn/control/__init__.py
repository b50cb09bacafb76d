"""The control API: what operators and their tools can see and do, over HTTP."""
