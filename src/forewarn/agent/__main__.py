"""Run the agent: `python -m forewarn.agent`."""

from forewarn.agent.command import main

main()
