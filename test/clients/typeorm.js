// TypeORM: entities, and synchronize at each start
'use strict';

require('reflect-metadata');
const { DataSource, EntitySchema, In } = require('typeorm');
const { assert, sql, value, expire, stored, pause, reaped, main } = require('./lib.js');

const Session = new EntitySchema({
	name: 'session',
	columns: {
		id: { type: 'text', primary: true },
		data: { type: 'jsonb' },
		visits: { type: 'integer', default: 0 },
		_ts: { type: 'timestamptz', default: () => 'clock_timestamp()', insert: false, update: false },
		ttl: { type: 'integer', nullable: true }
	},
	relations: {
		views: { type: 'one-to-many', target: 'view', inverseSide: 'session' }
	},
	indices: [{ name: 'session__ts_idx', columns: ['_ts'], synchronize: false }]
});

// with a deadline of its own, and nothing of ttl
const Invitation = new EntitySchema({
	name: 'invitation',
	columns: {
		email: { type: 'text', primary: true },
		expires: { type: 'timestamptz', nullable: true }
	},
	indices: [{ columns: ['expires'] }]
});

const columns = {
	id: { type: 'integer', primary: true, generated: true },
	path: { type: 'text' }
};
const relations = {
	session: { type: 'many-to-one', target: 'session', inverseSide: 'views', onDelete: 'CASCADE', joinColumn: true }
};
const View = new EntitySchema({ name: 'view', columns, relations });
const ViewWithMore = new EntitySchema({ name: 'view', columns: { ...columns, agent: { type: 'text', nullable: true } }, relations });

// Every statement that is sent
const log = [];
const logger = { logQuery: (query) => log.push(query), logQueryError() {}, logQuerySlow() {}, logSchemaBuild() {}, logMigration() {}, log() {} };

function start(...entities) {
	log.length = 0;
	return new DataSource({ type: 'postgres', host: process.env.PGHOST, port: Number(process.env.PGPORT), username: process.env.PGUSER,
		database: process.env.PGDATABASE, entities, synchronize: true, logger, logging: ['query'] }).initialize();
}

const changes = () => log.filter((query) => /^\s*(ALTER|CREATE|DROP|COMMENT)/i.test(query));

main(async () => {
	// synchronize finds nothing to change in a container
	let source = await start(Session, View, Invitation);
	await sql(`SELECT ttl.create_container('session', 1800)`);
	await sql(
		`SELECT ttl.create_container('invitation', -1, ts_column => NULL, ttl_column => 'expires')`
	);
	await source.destroy();
	source = await start(Session, View, Invitation);
	assert.deepEqual(changes(), []);
	await source.destroy();
	source = await start(Session, ViewWithMore, Invitation);
	assert.deepEqual(changes(), ['ALTER TABLE "view" ADD "agent" text']);
	await pause('session');

	const sessions = source.getRepository('session');
	const views = source.getRepository('view');
	await sessions.save([...'abcdef'].map((id) => ({ id, data: { id } })));
	await views.save([...'aabbcc'].map((id) => ({ path: '/', session: { id } })));
	const read = await sessions.findOneBy({ id: 'a' });
	await expire('session', `id IN ('a', 'b')`);

	assert.equal(await sessions.count(), 4);
	assert.equal(await sessions.findOneBy({ id: 'a' }), null);
	assert.equal(await sessions.existsBy({ id: 'b' }), false);
	assert.deepEqual((await sessions.find({ order: { id: 'ASC' }, relations: { views: true } })).map((s) => [s.id, s.views.length]),
		[['c', 2], ['d', 0], ['e', 0], ['f', 0]]);
	assert.deepEqual((await views.find({ order: { id: 'ASC' }, relations: { session: true } })).map((v) => v.session?.id ?? null),
		[null, null, null, null, 'c', 'c']);
	assert.equal((await sessions.update({ id: In(['a', 'c']) }, { visits: 1 })).affected, 1);
	assert.equal((await sessions.delete({ id: 'b' })).affected, 0);
	assert.equal(await stored('session'), 6);

	// save() looks whether the row is there, and inserts: what was read before it expired comes to life again
	read.visits = 5;
	await sessions.save(read);
	assert.equal((await sessions.findOneBy({ id: 'a' })).visits, 5);
	assert.equal(await stored('view'), 4);
	await sessions.insert({ id: 'b', data: {} });
	await assert.rejects(sessions.insert({ id: 'b', data: {} }), { code: '23505' });
	await expire('session', `id = 'b'`);
	await sessions.upsert([...'bc'].map((id) => ({ id, data: { up: 1 }, visits: 2 })), ['id']);
	assert.equal(await sessions.sum('visits'), 9);
	assert.equal(await stored('session'), 6);

	// saving renews
	await sql(`BEGIN; SET LOCAL ttl.touch = off; UPDATE session SET _ts = now() - interval '29 minutes' WHERE id = 'c'; COMMIT`);
	await sessions.save({ ...await sessions.findOneBy({ id: 'c' }), visits: 3, ttl: 60 });
	assert.ok((await sessions.findOneBy({ id: 'c' }))._ts > new Date(Date.now() - 60000));
	assert.equal(await value(`SELECT ttl.time_to_live(s) FROM session s WHERE id = 'c'`), 60);

	// transactions
	await expire('session', `id = 'd'`);
	await assert.rejects(source.transaction(async (manager) => {
		await manager.insert('session', { id: 'd', data: {} });
		assert.ok(await manager.findOne('session', { where: { id: 'd' }, lock: { mode: 'pessimistic_write' } }));
		throw new Error('rolled back');
	}), /rolled back/);
	assert.equal(await sessions.findOneBy({ id: 'd' }), null);

	// a stream, from a cursor
	await sessions.insert(Array.from({ length: 500 }, (_, visits) => ({ id: `s${visits}`, data: {}, visits })));
	await expire('session', `visits % 2 = 1 AND id LIKE 's%'`);
	let count = 0;
	for await (const row of await sessions.createQueryBuilder('s').where(`s.id LIKE 's%'`).stream()) {
		assert.equal(row.s_visits % 2, 0);
		if (++count === 10) await reaped('session');
	}
	assert.equal(count, 250);

	// deadlines: writing back moves none, and null is never
	const invitations = source.getRepository('invitation');
	const hour = (n) => new Date(Date.now() + n * 3600000);
	await invitations.save([['a', hour(-1)], ['b', hour(1)], ['c', null]].map(([email, expires]) => ({ email, expires })));
	assert.deepEqual((await invitations.find({ order: { email: 'ASC' } })).map((i) => i.email), ['b', 'c']);
	const [b] = await invitations.findBy({ email: 'b' });
	await invitations.update({ email: 'b' }, b);
	assert.deepEqual(await invitations.findOneBy({ email: 'b' }), b);
	await invitations.save({ email: 'a', expires: hour(1) });
	assert.equal(await invitations.count(), 3);
	await invitations.save({ email: 'b', expires: hour(-1) });
	await reaped('invitation');
	assert.equal(await stored('invitation'), 2);
	assert.equal(await stored('session'), await sessions.count());
	await source.destroy();
});
