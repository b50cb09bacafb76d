"""For people who test their code: faults, scenarios, and a network to run it in."""
