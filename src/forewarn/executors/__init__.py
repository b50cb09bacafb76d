"""Who carries maintenance out, one module each."""
