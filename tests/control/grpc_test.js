// Parts of grpc_js_test.py: node grpc_test.js EXAMPLE_DIRECTORY PART ADDRESS [...]. Each throws where
// something is not as it should be.
'use strict';

const assert = require('assert');
const fs = require('fs');
const path = require('path');

const { connect, status, credentials } = require(path.join(process.argv[2], 'kv_cache'));

async function fails(code, promise) {
  await assert.rejects(promise, (error) => {
    assert.strictEqual(error.code, code, error.message);
    return true;
  });
}

async function methods(address) {
  const cache = connect(address);
  const first = await cache.put('k', 'value');
  assert.ok(Number.isSafeInteger(first) && first > 0, `version ${first}`);
  assert.strictEqual((await cache.get('k')).toString(), 'value');
  assert.strictEqual(await cache.get('none'), null);
  const { success, version: second } = await cache.cas('k', 'other', first);
  assert.ok(success && second > first, `version ${second} after ${first}`);
  assert.deepStrictEqual(await cache.cas('k', 'late', first), { success: false, version: second });
  await cache.touch('k', 100000);
  await fails(status.NOT_FOUND, cache.touch('none', 1));
  await fails(status.INVALID_ARGUMENT, cache.get(''));
  const long = Buffer.alloc(3 << 20, 7);
  await cache.put('long', long);
  assert.ok(long.equals(await cache.get('long')));
  await fails(status.RESOURCE_EXHAUSTED, cache.put('longer', Buffer.alloc(4 << 20)));
  const many = Array.from({ length: 1000 }, (_, i) => cache.put(`m${i}`, `v${i}`));
  await Promise.all(many);
  assert.strictEqual((await cache.get('m999')).toString(), 'v999');
  assert.strictEqual(await cache.delete('k'), true);
  assert.strictEqual(await cache.delete('k'), false);
  assert.strictEqual((await cache.stats('keys')).keys, 1001);
  cache.close();
}

async function streaming(address) {
  const cache = connect(address);
  await Promise.all(Array.from({ length: 2000 }, (_, i) => cache.put(`key:${i}`, 'v')));
  const found = new Set();
  for await (const entry of cache.scan('key:')) found.add(entry.key.toString());
  assert.strictEqual(found.size, 2000);
  for (let i = 0; i < 50; i++) {
    const stream = cache.stub.Scan({ batch: 1 }, cache.metadata);
    await new Promise((resolve, reject) => {
      stream.once('data', () => stream.cancel());
      stream.on('error', (error) => {
        if (error.code === status.CANCELLED) resolve();
        else reject(error);
      });
      stream.on('end', resolve);
    });
  }
  const late = cache.stub.Scan({ batch: 1 }, cache.metadata, { deadline: Date.now() - 1 });
  await assert.rejects((async () => { for await (const _ of late); })(),
    (error) => error.code === status.DEADLINE_EXCEEDED);
  assert.strictEqual((await cache.get('key:1')).toString(), 'v');
  cache.close();
}

async function chunks(address) {
  const cache = connect(address);
  const value = Buffer.alloc((9 << 20) + 1);
  for (let at = 0; at < value.length; at += 4096) value.writeUInt32LE(at, Math.min(at,
    value.length - 4));
  function* parts() {
    for (let at = 0; at < value.length; at += 300000) yield value.subarray(at, at + 300000);
  }
  await cache.putStream('long', value.length, parts());
  const got = [];
  for await (const chunk of cache.getStream('long')) got.push(chunk);
  assert.ok(value.equals(Buffer.concat(got)));
  await fails(status.RESOURCE_EXHAUSTED, cache.get('long'));
  await fails(status.INVALID_ARGUMENT, cache.putStream('long', 10, [Buffer.alloc(9)]));
  await fails(status.INVALID_ARGUMENT, cache.call('Put', { key: Buffer.from('k') }));
  cache.close();
}

async function metadata(address) {
  const cache = connect(address);
  await cache.put('k', 'v');
  for (const length of [20000, 50000]) {
    cache.metadata.set('x-long', 'y'.repeat(length));
    assert.strictEqual((await cache.get('k')).toString(), 'v');
  }
  cache.metadata.set('x-longer', 'y'.repeat(40000));
  await fails(status.RESOURCE_EXHAUSTED, cache.get('k'));
  cache.metadata.remove('x-longer');
  assert.strictEqual((await cache.get('k')).toString(), 'v');
  const [connections] = Object.values(await cache.stats('control.connections_total'));
  assert.strictEqual(connections, 1);
  cache.close();
}

async function secure(address, authority, token) {
  const tls = credentials.createSsl(fs.readFileSync(authority));
  const cache = connect(address, { credentials: tls, token });
  await cache.put('k', 'value');
  assert.strictEqual((await cache.get('k')).toString(), 'value');
  const stranger = connect(address, { credentials: tls });
  await fails(status.UNAUTHENTICATED, stranger.get('k'));
  const plain = connect(address, { token, timeoutMs: 3000 });
  await assert.rejects(plain.get('k'));
  for (const one of [cache, stranger, plain]) one.close();
}

({ methods, streaming, chunks, metadata, secure })[process.argv[3]](...process.argv.slice(4)).then(
  () => console.log('done'),
  (error) => {
    console.error(error);
    process.exit(1);
  });
