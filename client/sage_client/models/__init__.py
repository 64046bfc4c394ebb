"""What the client's methods take and return: frozen values, none of them tied to protobuf."""
