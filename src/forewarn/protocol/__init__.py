"""What travels on the wire of `/metadata/scheduledevents`, per api-version. Pure."""
