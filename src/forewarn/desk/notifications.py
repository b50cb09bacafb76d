"""Tests of notification targets, as operators ask for them."""

from forewarn.desk.caller import Caller
from forewarn.domain.notification import Delivery
from forewarn.operations.notifications import prepare_test


def try_target(caller: Caller, name: str) -> Delivery:
    """Send an example to the target *name* at once, and return what came of it.

    It may take two minutes. It is to be called on a daemon thread: for any other the server would
    wait at its end.
    """
    with caller.services.slow_verbs.place():
        example = caller.write(lambda tx, context: prepare_test(tx, context, name))
        notifier = caller.services.notifiers[name]
        return notifier.deliver(example, now=caller.context().at)
