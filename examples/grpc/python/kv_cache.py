"""A client of the key-value service by gRPC: what is needed beside grpcio, in one small class.

    apt install python3-grpcio python3-protobuf protobuf-compiler
    protoc --python_out=. -I ../../../proto kv_cache.proto     # makes kv_cache_pb2.py

    cache = KvCache("127.0.0.1:50051")
    cache.put(b"key", b"value", ttl_s=60)
    cache.get(b"key")                        # b"value"; None if there is none

Errors are grpc.RpcError: .code() tells which, .details() in words.
"""

import grpc
import kv_cache_pb2 as pb

SERVICE = "/kv_cache.KvCacheService/"


class KvCache:
    """One server. Threads may share it."""

    def __init__(self, address, token=None, root_certificate=None, timeout_s=10):
        options = [("grpc.max_receive_message_length", -1)]
        if root_certificate:
            credentials = grpc.ssl_channel_credentials(root_certificate)
            self.channel = grpc.secure_channel(address, credentials, options)
        else:
            self.channel = grpc.insecure_channel(address, options)
        self.metadata = [("authorization", f"Bearer {token}")] if token else []
        self.timeout_s = timeout_s

    def close(self):
        self.channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, method, request, response):
        function = self.channel.unary_unary(SERVICE + method,
                                            request_serializer=type(request).SerializeToString,
                                            response_deserializer=response.FromString)
        return function(request, timeout=self.timeout_s, metadata=self.metadata)

    def get(self, key):
        """The value; None if there is no such key."""
        try:
            return self.call("Get", pb.GetRequest(key=key), pb.GetResponse).value
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND:
                return None
            raise

    def put(self, key, value, ttl_s=0):
        """The version that the key has now."""
        request = pb.PutRequest(key=key, inline_value=value, ttl_ms=int(ttl_s * 1000))
        return self.call("Put", request, pb.PutResponse).version

    def get_stream(self, key):
        """A value of any length, chunk by chunk: the server keeps what is not taken yet."""
        function = self.channel.unary_stream(
            SERVICE + "GetStream", request_serializer=pb.GetStreamRequest.SerializeToString,
            response_deserializer=pb.GetStreamResponse.FromString)
        for response in function(pb.GetStreamRequest(key=key), metadata=self.metadata):
            yield response.chunk

    def put_stream(self, key, length, chunks, ttl_s=0):
        """Sets a key to a value of `length` bytes, from any iterable of bytes. Returns the
        version."""
        def requests():
            header = pb.PutStreamHeader(key=key, value_length=length, ttl_ms=int(ttl_s * 1000))
            yield pb.PutStreamRequest(header=header)
            for chunk in chunks:
                yield pb.PutStreamRequest(chunk=chunk)
        function = self.channel.stream_unary(
            SERVICE + "PutStream", request_serializer=pb.PutStreamRequest.SerializeToString,
            response_deserializer=pb.PutStreamResponse.FromString)
        return function(requests(), metadata=self.metadata).version

    def delete(self, key):
        """Whether it was there."""
        return self.call("Delete", pb.DeleteRequest(key=key), pb.DeleteResponse).key_existed

    def cas(self, key, value, expected_version):
        """Sets it if it has this version, 0: if it is not there. Whether that was so, and the
        version that it has now."""
        request = pb.CasRequest(key=key, value=value, expected_version=expected_version)
        response = self.call("Cas", request, pb.CasResponse)
        return response.success, response.version

    def touch(self, key, ttl_s):
        """A new time to live; 0: for ever."""
        self.call("Touch", pb.TouchRequest(key=key, ttl_ms=int(ttl_s * 1000)), pb.TouchResponse)

    def stats(self, prefix=""):
        """All figures whose names begin like this."""
        response = self.call("Stats", pb.StatsRequest(prefix=prefix), pb.StatsResponse)
        return {figure.name: getattr(figure, figure.WhichOneof("value"))
                for figure in response.figures}

    def scan(self, prefix=b""):
        """All keys that begin like this, one by one, with version and length."""
        function = self.channel.unary_stream(SERVICE + "Scan",
                                             request_serializer=pb.ScanRequest.SerializeToString,
                                             response_deserializer=pb.ScanResponse.FromString)
        for response in function(pb.ScanRequest(prefix=prefix), metadata=self.metadata):
            yield from response.entries
