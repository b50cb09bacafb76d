"""Run the agent: `python -m forewarn.agent`."""

from forewarn.agent.command import main

if __name__ == "__main__":
    main()
