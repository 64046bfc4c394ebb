"""Between the client's own values and protobuf messages. Nothing else of the client reads messages."""
