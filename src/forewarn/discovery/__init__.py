"""Sources that know which virtual machines there are: hypervisors, and programs of operators."""
