// A client of the key-value service by gRPC, for Node. `npm install` gets what it needs; the
// messages are read from proto/kv_cache.proto as the program starts.
//
//	const { connect } = require('./kv_cache');
//	const cache = connect('127.0.0.1:50051');
//	await cache.put('key', 'value', { ttlMs: 60000 });
//	await cache.get('key');                 // a Buffer; null if there is none
//
// Errors have a .code, as of grpc.status, and .details in words.
'use strict';

const path = require('path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const PROTO = process.env.KV_CACHE_PROTO ||
  path.join(__dirname, '..', '..', '..', 'proto', 'kv_cache.proto');

const definition = loader.loadSync(PROTO, {
  longs: Number, defaults: true, oneofs: true, keepCase: true,
});
const { KvCacheService } = grpc.loadPackageDefinition(definition).kv_cache;

class KvCache {
  constructor(address, { token, credentials, timeoutMs = 10000 } = {}) {
    this.stub = new KvCacheService(address, credentials || grpc.credentials.createInsecure(), {
      'grpc.max_receive_message_length': -1,
    });
    this.metadata = new grpc.Metadata();
    if (token) this.metadata.set('authorization', `Bearer ${token}`);
    this.timeoutMs = timeoutMs;
  }

  close() {
    this.stub.close();
  }

  call(method, request) {
    const deadline = Date.now() + this.timeoutMs;
    return new Promise((resolve, reject) => {
      this.stub[method](request, this.metadata, { deadline }, (error, response) => {
        if (error) reject(error);
        else resolve(response);
      });
    });
  }

  async get(key) {
    try {
      return (await this.call('Get', { key: Buffer.from(key) })).value;
    } catch (error) {
      if (error.code === grpc.status.NOT_FOUND) return null;
      throw error;
    }
  }

  async put(key, value, { ttlMs = 0 } = {}) {
    const request = { key: Buffer.from(key), inline_value: Buffer.from(value), ttl_ms: ttlMs };
    return (await this.call('Put', request)).version;
  }

  async delete(key) {
    return (await this.call('Delete', { key: Buffer.from(key) })).key_existed;
  }

  // Sets it if it has this version, 0: if it is not there.
  async cas(key, value, expectedVersion) {
    const { success, version } = await this.call('Cas', {
      key: Buffer.from(key), value: Buffer.from(value), expected_version: expectedVersion,
    });
    return { success, version };
  }

  async touch(key, ttlMs) {
    await this.call('Touch', { key: Buffer.from(key), ttl_ms: ttlMs });
  }

  async stats(prefix = '') {
    const { figures } = await this.call('Stats', { prefix });
    return Object.fromEntries(figures.map((figure) => [figure.name, figure[figure.value]]));
  }

  // A value of any length, as an async iterator of Buffers: the server keeps what is not taken yet.
  async *getStream(key) {
    const stream = this.stub.GetStream({ key: Buffer.from(key) }, this.metadata);
    for await (const { chunk } of stream) yield chunk;
  }

  // Sets a key to a value of `length` bytes, from any iterable of Buffers. Returns the version. The
  // next chunk is asked for when the connection has taken the one before.
  putStream(key, length, chunks, { ttlMs = 0 } = {}) {
    return new Promise((resolve, reject) => {
      const stream = this.stub.PutStream(this.metadata, (error, response) => {
        if (error) reject(error);
        else resolve(response.version);
      });
      const send = async () => {
        stream.write({ header: { key: Buffer.from(key), value_length: length, ttl_ms: ttlMs } });
        for await (const chunk of chunks) {
          if (stream.destroyed) return;
          if (!stream.write({ chunk })) await new Promise((go) => stream.once('drain', go));
        }
        stream.end();
      };
      send().catch((error) => {
        stream.cancel();
        reject(error);
      });
    });
  }

  // All keys that begin like this, one by one.
  async *scan(prefix = '') {
    const stream = this.stub.Scan({ prefix: Buffer.from(prefix) }, this.metadata);
    for await (const response of stream) yield* response.entries;
  }
}

module.exports = {
  KvCache,
  connect: (address, options) => new KvCache(address, options),
  status: grpc.status,
  credentials: grpc.credentials,
};
