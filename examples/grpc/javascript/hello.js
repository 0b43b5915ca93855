// A word with the key-value server by gRPC: node hello.js [HOST:PORT]
'use strict';

const { connect } = require('./kv_cache');

async function main() {
  const cache = connect(process.argv[2] || '127.0.0.1:50051');
  const version = await cache.put('greeting', 'hello from JavaScript', { ttlMs: 60000 });
  console.log(`put greeting, version ${version}`);
  console.log(`get greeting: ${await cache.get('greeting')}`);

  const first = await cache.cas('greeting', 'hello again', version);
  console.log(`cas: ${first.success ? 'done' : 'somebody was quicker'}, version ${first.version}`);
  const second = await cache.cas('greeting', 'too late', version);
  console.log(`cas: ${second.success ? 'done' : 'somebody was quicker'}, version ` +
    `${second.version}`);

  for (let number = 0; number < 3; number++) await cache.put(`list:${number}`, 'x');
  const names = [];
  for await (const entry of cache.scan('list:')) names.push(entry.key.toString());
  console.log(`scan list: ${names.sort().join(' ')}`);

  // A value that is longer than a message travels in chunks.
  const chunk = Buffer.alloc(1 << 20, 'x');
  await cache.putStream('film', 20 * chunk.length, Array(20).fill(chunk), { ttlMs: 60000 });
  let length = 0;
  for await (const part of cache.getStream('film')) length += part.length;
  console.log(`film: ${length} bytes`);
  await cache.delete('film');

  console.log(`delete: ${await cache.delete('greeting')}, then get: ${await cache.get('greeting')}`);
  console.log(`keys: ${(await cache.stats('keys')).keys}`);
  cache.close();
}

main().catch((error) => {
  console.error(`hello.js: ${error.message}`);
  process.exit(1);
});
