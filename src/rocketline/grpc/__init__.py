"""gRPC for servers on `rocketline.http2`: calls, status, message framing, and the services every server has."""
