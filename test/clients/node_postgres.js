// node-postgres: what it sends, and cursors
'use strict';

const { Client } = require('pg');
const Cursor = require('pg-cursor');
const QueryStream = require('pg-query-stream');
const { assert, pool, sql, value, expire, stored, pause, reaped, main } = require('./lib.js');

main(async () => {
	await sql(`CREATE TABLE item (id int PRIMARY KEY, data jsonb)`);

	// parameters without types: text for the server, whatever they are in JavaScript
	await sql('SELECT ttl.create_container($1, $2)', ['item', 3600]);
	assert.equal(await value('SELECT ttl.default_ttl($1)', ['item']), 3600);
	for (const [parameter, seconds] of [[60, 60], ['90', 90], [-1, -1], [null, null], ['2 days', 172800], [1800, 1800]]) {
		await sql('SELECT ttl.set_default_ttl($1, $2)', ['item', parameter]);
		assert.equal(await value('SELECT ttl.default_ttl($1)', ['item']), seconds);
	}
	await assert.rejects(sql('SELECT ttl.set_default_ttl($1, $2)', ['item', 0]), { code: '22023' });
	await assert.rejects(sql('SELECT ttl.set_default_ttl($1, $2)', ['nothing', 1]), { code: '42P01' });
	await sql('CALL ttl.reap($1)', ['item']);
	await pause('item');

	// a row as it was read is written back; the time given is not the time kept
	const { _ts, ttl } = (await sql('INSERT INTO item VALUES ($1, $2) RETURNING *', [1, { a: 1 }]))[0];
	assert.ok(_ts instanceof Date);
	assert.equal(ttl, null);
	const row = (await sql('UPDATE item SET data = $2, _ts = $3, ttl = $4 WHERE id = $1 RETURNING *', [1, { a: 2 }, new Date(0), 60]))[0];
	assert.ok(row._ts >= _ts);
	assert.equal(await value('SELECT ttl.time_to_live(item) FROM item'), 60);
	assert.ok(await value('SELECT ttl.expires_at(item) FROM item') instanceof Date);
	assert.deepEqual(await sql('UPDATE item SET ttl = $1 RETURNING ttl', ['1']), [{ ttl: 1 }]);

	// a prepared statement, executed often enough for a generic plan
	await sql('INSERT INTO item SELECT g FROM generate_series(2, 1000) g');
	const find = async (id) => (await pool.query({ name: 'find', text: 'SELECT id FROM item WHERE id = $1', values: [id] })).rowCount;
	for (let i = 2; i < 30; i++) assert.equal(await find(i), 1);
	await expire('item', 'id % 2 = 1');
	for (let i = 2; i < 30; i++) assert.equal(await find(i), 1 - i % 2);

	// a cursor keeps the clock it was opened with; the worker doesn't stop it
	const client = new Client();
	await client.connect();
	const cursor = client.query(new Cursor('SELECT id FROM item ORDER BY id'));
	assert.deepEqual((await cursor.read(3)).map((r) => r.id), [2, 4, 6]);
	await expire('item', 'id % 4 = 0');
	await reaped('item');
	assert.equal((await cursor.read(1000)).length, 497);
	await cursor.close();
	assert.equal(await stored('item'), 250);
	let count = 0;
	for await (const { id } of client.query(new QueryStream('SELECT id FROM item', [], { batchSize: 10 }))) {
		assert.equal(id % 4, 2);
		count++;
	}
	assert.equal(count, 250);
	await client.end();

	// keys: within one pipeline of statements, as fast as they come
	await pause('item');
	await expire('item');
	await Promise.all(Array.from({ length: 100 }, (_, i) => sql('INSERT INTO item (id) VALUES ($1)', [4 * i + 2])));
	assert.equal(await value('SELECT count(*)::int FROM item'), 100);
	await reaped('item');
	assert.equal(await stored('item'), 100);
});
