"""What Alembic runs: the steps, on the connection it is given, inside its transaction."""

from alembic import context

from forewarn.storage.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
