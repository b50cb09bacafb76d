"""Files that operators write: the fleet, scenarios, holidays, and tables of settings."""
