// Drizzle: drizzle-kit push, and queries
'use strict';

const { execFileSync } = require('node:child_process');
const { asc, eq, inArray, like, sql: expression } = require('drizzle-orm');
const { drizzle } = require('drizzle-orm/node-postgres');
const { invitations, sessions } = require('./drizzle/schema.js');
const { assert, pool, sql, value, expire, stored, pause, reaped, main } = require('./lib.js');

const kit = require.resolve('drizzle-kit').replace(/[^/]*$/, 'bin.cjs');
const push = () => execFileSync(process.execPath, [kit, 'push', '--config=drizzle/config.js'],
	{ cwd: __dirname, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

main(async () => {
	assert.match(push(), /Changes applied/);
	for (const start of [1, 2]) await sql(`SELECT ttl.create_container('sessions', 1800, if_not_exists => true);`);
	await sql(`SELECT ttl.create_container('invitations', -1, ts_column => NULL, ttl_column => 'expires')`);
	assert.match(push(), /No changes detected/);
	await pause('sessions');

	const db = drizzle(pool);
	const ids = (condition) => db.select({ id: sessions.id }).from(sessions).where(condition).orderBy(asc(sessions.id))
		.then((rows) => rows.map((row) => row.id).join(''));

	await db.insert(sessions).values([...'abcdef'].map((id) => ({ id, data: { id } })));
	await expire('sessions', `id IN ('a', 'b')`);
	assert.equal(await ids(), 'cdef');
	assert.equal(await db.$count(sessions), 4);
	assert.deepEqual(await db.update(sessions).set({ visits: 1 }).where(inArray(sessions.id, ['a', 'c'])).returning({ id: sessions.id }), [{ id: 'c' }]);
	assert.deepEqual(await db.delete(sessions).where(eq(sessions.id, 'b')).returning(), []);
	assert.equal(await stored('sessions'), 6);

	// keys that have expired are free
	const upsert = (id) => db.insert(sessions).values({ id, data: {}, visits: 1 })
		.onConflictDoUpdate({ target: sessions.id, set: { visits: expression`${sessions.visits} + 1` } }).returning({ visits: sessions.visits });
	await db.insert(sessions).values({ id: 'a', data: {} });
	assert.deepEqual(await upsert('b'), [{ visits: 1 }]);
	assert.deepEqual(await upsert('b'), [{ visits: 2 }]);
	assert.deepEqual(await db.insert(sessions).values({ id: 'a', data: {} }).onConflictDoNothing().returning(), []);
	assert.equal(await stored('sessions'), 6);

	// a row that is written back as it was read
	await sql(`BEGIN; SET LOCAL ttl.touch = off; UPDATE sessions SET _ts = now() - interval '29 minutes' WHERE id = 'c'; COMMIT`);
	const [c] = await db.select().from(sessions).where(eq(sessions.id, 'c'));
	await db.update(sessions).set({ ...c, ttl: 60 }).where(eq(sessions.id, 'c'));
	assert.equal(await value(`SELECT ttl.time_to_live(s) FROM sessions s WHERE id = 'c'`), 60);

	// prepared once, executed before and after
	const find = db.select().from(sessions).where(eq(sessions.id, expression.placeholder('id'))).prepare('find');
	assert.equal((await find.execute({ id: 'd' })).length, 1);
	await expire('sessions', `id = 'd'`);
	assert.equal((await find.execute({ id: 'd' })).length, 0);

	// transactions
	await assert.rejects(db.transaction(async (tx) => {
		await tx.insert(sessions).values({ id: 'd', data: {} });
		assert.equal((await tx.select().from(sessions).where(eq(sessions.id, 'd')).for('update')).length, 1);
		tx.rollback();
	}));
	assert.equal(await ids(like(sessions.id, 'd')), '');

	// deadlines
	const hour = (n) => new Date(Date.now() + n * 3600000);
	await db.insert(invitations).values([['a', hour(-1)], ['b', hour(1)], ['c', null]].map(([email, expires]) => ({ email, expires })));
	assert.equal(await db.$count(invitations), 2);
	await db.insert(invitations).values({ email: 'a', expires: hour(1) });
	await db.update(invitations).set({ expires: hour(-1) }).where(eq(invitations.email, 'b'));
	assert.equal(await db.$count(invitations), 2);
	await reaped('invitations');
	assert.equal(await stored('invitations'), 2);

	await reaped('sessions');
	assert.equal(await stored('sessions'), 5);
	assert.match(push(), /No changes detected/);
});
