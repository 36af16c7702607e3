// @keyv/postgres: a cache
'use strict';

const { Keyv } = require('keyv');
const { KeyvPostgres } = require('@keyv/postgres');
const { assert, sql, value, expire, stored, waitUntil, pause, reaped, main } = require('./lib.js');

// Has keys expire: rows whose clock this is, or by the deadline in the value
async function overtake(condition, clock) {
	if (clock) return await expire('cache', condition, clock);
	await sql(`UPDATE cache SET value = jsonb_set(value::jsonb, '{expires}', '1000') WHERE ${condition}`);
}

// What a cache does
async function live(cache, clock) {
	await pause('cache');

	// what expires is a miss, and its key can be set
	await cache.set('a', { n: 1 });
	await cache.set('b', { n: 2 });
	await cache.set('c', { n: 3 });
	await overtake(`key IN ('keyv:a', 'keyv:b')`, clock);
	assert.equal(await cache.get('a'), undefined);
	assert.equal(await cache.has('a'), false);
	assert.deepEqual(await cache.get('c'), { n: 3 });
	assert.deepEqual(await cache.getMany(['a', 'b', 'c', 'd']), [undefined, undefined, { n: 3 }, undefined]);
	assert.equal(await cache.delete('a'), false);
	assert.equal(await stored('cache'), 3);
	await cache.set('a', { n: 4 });
	assert.deepEqual(await cache.get('a'), { n: 4 });
	await cache.setMany([{ key: 'b', value: 5 }, { key: 'c', value: 6 }, { key: 'd', value: 7 }]);
	assert.deepEqual(await cache.getMany(['b', 'c', 'd']), [5, 6, 7]);
	assert.equal(await stored('cache'), 4);

	// entries in pages, half of them expired
	await cache.clear();
	assert.equal(await stored('cache'), 0);
	const keys = Array.from({ length: 100 }, (_, i) => String(i).padStart(3, '0'));
	await cache.setMany(keys.map((key) => ({ key, value: key })));
	await overtake(`right(key, 1)::int % 2 = 1`, clock);
	const found = [];
	for await (const [key] of cache.iterator()) found.push(key);
	assert.deepEqual(found, keys.filter((key) => key % 2 === 0));
	await reaped('cache');
	assert.equal(await stored('cache'), 50);
	await cache.deleteMany(keys);
	assert.equal(await stored('cache'), 0);
}

main(async () => {
	const store = new KeyvPostgres({ uri: 'postgresql:///', table: 'cache', iterationLimit: 10 });
	const cache = new Keyv({ store, ttl: 600000, emitErrors: true });
	cache.on('error', (error) => { throw error; });
	await cache.get('the table is there');

	await sql(`SELECT ttl.create_container('cache', 600)`);
	await live(cache, '_ts');
	await sql(`SELECT ttl.drop_container('cache', true)`);

	// by the deadline that Keyv writes into the value
	await sql(
		`CREATE FUNCTION keyv_expires(value text) RETURNS numeric LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
		BEGIN
			RETURN CASE jsonb_typeof(value::jsonb -> 'expires') WHEN 'number' THEN (value::jsonb ->> 'expires')::numeric END;
		EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
			RETURN NULL;
		END
		$$;
		ALTER TABLE cache ADD COLUMN expires numeric GENERATED ALWAYS AS (keyv_expires(value)) STORED;
		SELECT ttl.create_container('cache', -1, ts_column => NULL, ttl_column => 'expires', ttl_unit => 'epoch_ms', if_not_exists => true);`
	);
	await live(cache);
	await cache.set('short', 1, 1);
	await cache.set('long', 2, 1000000);
	await cache.set('for ever', 3, 0);
	await waitUntil(async () => await value('SELECT count(*) FROM cache') === '2', 'the short one expires');
	await waitUntil(async () => await stored('cache') === 2, 'it is deleted');
	assert.deepEqual(await cache.getMany(['short', 'long', 'for ever']), [undefined, 2, 3]);

	// whatever an application or a serializer of its own writes is stored; what has no deadline in it stays
	const soon = Date.now() + 1000;
	const values = {
		fraction: JSON.stringify({ value: 1, expires: soon + 0.5 }), large: '{"value":1,"expires":1e300}',
		negative: '{"value":1,"expires":-1e300}', text: '{"value":1,"expires":"soon"}', array: '[1]', scalar: '1', none: '',
		broken: '{"value":', other: 'AAECAw==', deep: '['.repeat(100000), zero: '{"value":"\\u0000","expires":1}'
	};
	for (const [key, text] of Object.entries(values)) await store.set(key, text);
	await waitUntil(async () => await store.get('fraction') === undefined, 'a fraction of a millisecond expires');
	for (const key of Object.keys(values).filter((key) => key !== 'fraction')) {
		assert.equal(await store.get(key), values[key], key);
	}
	await cache.disconnect();
});
