"""The leader's loop: wait, decide, record, execute."""
