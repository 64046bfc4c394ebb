"""The gRPC entrance: the only room that knows grpc and the messages of the contract."""
