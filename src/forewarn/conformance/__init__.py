"""The conformance kit: a handler in any language lives through situations, and is graded."""
