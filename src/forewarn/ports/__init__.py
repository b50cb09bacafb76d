"""What the rules need from the outside world: small protocols, one file each."""
