// connect-pg-simple: sessions of Express
'use strict';

const express = require('express');
const { promisify } = require('node:util');
const session = require('express-session');
const connectPgSimple = require('connect-pg-simple');
const { assert, pool, sql, value, expire, stored, waitUntil, pause, reaped, main } = require('./lib.js');

// A browser, with one cookie at most
class Browser {
	constructor(port) {
		this.port = port;
	}

	async get(path) {
		const headers = this.cookie ? { cookie: this.cookie } : {};
		const answer = await fetch(`http://127.0.0.1:${this.port}${path}`, { headers });
		const cookie = answer.headers.get('set-cookie');
		if (cookie) this.cookie = cookie.split(';')[0];
		assert.equal(answer.status, 200);
		return await answer.json();
	}

	get sid() {
		return decodeURIComponent(this.cookie).replace(/^.*=s:/, '').replace(/\..*$/, '');
	}
}

// An application whose sessions are in this table
async function start(tableName) {
	const app = express();
	const PgSession = connectPgSimple(session);
	const store = new PgSession({ pool, tableName, createTableIfMissing: true, pruneSessionInterval: false });

	app.use(session({ store, secret: 'keyboard cat', resave: false, saveUninitialized: false, cookie: { maxAge: 1800 * 1000 } }));
	app.get('/login/:name', (req, res) => {
		req.session.name = req.params.name;
		res.json({});
	});
	app.get('/name', (req, res) => res.json(req.session.name ?? null));
	app.get('/logout', (req, res) => req.session.destroy(() => res.json({})));

	const server = await new Promise((resolve) => {
		const listening = app.listen(0, '127.0.0.1', () => resolve(listening));
	});
	return { store, server, port: server.address().port };
}

// What sessions do, in a table whose rows' clocks are in this column
async function live(table, clock) {
	const { store, server, port } = await start(table);
	const store_ = (method, ...args) => promisify(store[method].bind(store))(...args);
	const [ann, bob, eve] = [new Browser(port), new Browser(port), new Browser(port)];
	const data = { cookie: { originalMaxAge: 1800000, expires: new Date(Date.now() + 1800000).toISOString() } };

	await pause(table);
	await ann.get('/login/Ann');
	await bob.get('/login/Bob');
	await eve.get('/login/Eve');
	assert.equal(await ann.get('/name'), 'Ann');

	// a request renews: only Bob has made none for half an hour
	await expire(table, `sid = '${bob.sid}'`, clock);
	assert.equal(await bob.get('/name'), null);
	assert.equal(await ann.get('/name'), 'Ann');
	assert.equal(await value(`SELECT count(*)::int FROM ${table}`), 2);
	assert.equal(await stored(table), 3);

	// an expired session is no session for their statements, and its id is free
	await store_('touch', bob.sid, data);
	assert.equal(await store_('get', bob.sid), undefined);
	await store_('destroy', bob.sid);
	assert.equal(await stored(table), 3);
	await store_('set', bob.sid, { ...data, name: 'Bob again' });
	assert.equal((await store_('get', bob.sid)).name, 'Bob again');
	assert.equal(await stored(table), 3);
	assert.equal(await bob.get('/name'), 'Bob again');

	await eve.get('/logout');
	assert.equal(await eve.get('/name'), null);

	// their cleaning finds nothing to do, and harms nobody
	await expire(table, `sid = '${ann.sid}'`, clock);
	await store_('pruneSessions');
	assert.equal(await stored(table), 2);
	assert.equal(await bob.get('/name'), 'Bob again');

	// many come and go while the worker deletes
	for (let i = 0; i < 5; i++) {
		const ids = Array.from({ length: 40 }, (_, j) => `${i}-${j}`);
		await Promise.all(ids.map((id) => store_('set', id, { ...data, id })));
		await expire(table, `sid LIKE '${i}-%' AND sid < '${i}-2'`, clock);
		await reaped(table);
		const found = await Promise.all(ids.map((id) => store_('get', id)));
		assert.deepEqual(found.map((s) => s?.id), ids.map((id) => id < `${i}-2` ? undefined : id));
	}
	assert.equal(await stored(table), 1 + 5 * await value(`SELECT count(*)::int FROM ${table} WHERE sid LIKE '0-%'`));

	server.close();
	await store.close();
}

main(async () => {
	// the table is made by the first request
	const { server, port, store } = await start('session');
	await new Browser(port).get('/login/nobody');
	await sql('TRUNCATE session; CREATE TABLE idle_session (LIKE session INCLUDING ALL)');
	server.close();
	await store.close();

	// by the deadline that the store writes, whose index is there
	await sql(
		`ALTER TABLE session ALTER COLUMN expire TYPE timestamptz;
		SELECT ttl.create_container('session', -1, ts_column => NULL, ttl_column => 'expire');`
	);
	assert.deepEqual(await value(`SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'session'::regclass AND attnum > 0`),
		['sid', 'sess', 'expire']);
	assert.equal(await value(`SELECT count(*)::int FROM pg_index WHERE indrelid = 'session'::regclass`), 2);
	await live('session', 'expire');

	// by the time since the last request
	await sql(`SELECT ttl.create_container('idle_session', '30 minutes')`);
	await live('idle_session', '_ts');
});
