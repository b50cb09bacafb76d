"""What can be done, one function per verb. Each runs inside one transaction of the store."""
