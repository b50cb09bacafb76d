"""The schema, step by step. A step that was released is never changed."""
