"""The pytest plugin. It is loaded in every pytest run beside forewarn, so it imports nothing heavy.

`pip install 'forewarn[pytest]'` brings what its fixtures need.
"""
