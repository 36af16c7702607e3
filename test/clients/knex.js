// Knex: migrations and queries
'use strict';

const knex = require('knex')({ client: 'pg', connection: {} });
const { assert, sql, expire, stored, pause, reaped, main } = require('./lib.js');

const migrations = {
	'001_sessions': {
		up: async (knex) => {
			await knex.schema.createTable('sessions', (table) => {
				table.text('id').primary();
				table.jsonb('data').notNullable();
				table.integer('visits').notNullable().defaultTo(0);
			});
			await knex.raw(`SELECT ttl.create_container('sessions', 1800)`);
		},
		down: async (knex) => {
			await knex.schema.dropTable('sessions');
		}
	},
	'002_more': {
		up: (knex) => knex.schema.alterTable('sessions', (table) => {
			table.text('agent');
			table.index('visits');
		}),
		down: (knex) => knex.schema.alterTable('sessions', (table) => {
			table.dropIndex('visits');
			table.dropColumn('agent');
		})
	}
};
const migrationSource = {
	getMigrations: async () => Object.keys(migrations),
	getMigrationName: (name) => name,
	getMigration: async (name) => migrations[name]
};

main(async () => {
	await knex.migrate.latest({ migrationSource });
	await knex.migrate.rollback({ migrationSource }, true);
	assert.deepEqual(await sql('SELECT * FROM ttl.containers'), []);
	await knex.migrate.latest({ migrationSource });
	assert.deepEqual((await knex.migrate.latest({ migrationSource }))[1], []);
	await pause('sessions');

	const sessions = () => knex('sessions');
	await sessions().insert([...'abcdef'].map((id) => ({ id, data: { id } })));
	await expire('sessions', `id IN ('a', 'b')`);

	assert.deepEqual(await sessions().orderBy('id').pluck('id'), [...'cdef']);
	assert.equal((await sessions().count({ n: '*' }))[0].n, '4');
	assert.equal(await sessions().where({ id: 'a' }).first(), undefined);
	assert.deepEqual(await sessions().whereIn('id', ['a', 'c']).increment('visits').returning(['id', 'visits']), [{ id: 'c', visits: 1 }]);
	assert.equal(await sessions().where({ id: 'b' }).delete(), 0);
	assert.equal(await stored('sessions'), 6);

	// a key that has expired is free: for INSERT, and for an upsert, which inserts
	await sessions().insert({ id: 'a', data: { again: true } });
	const upsert = (id) => sessions().insert({ id, data: {}, visits: 1 }).onConflict('id')
		.merge({ visits: knex.raw('sessions.visits + 1') }).returning('visits');
	assert.deepEqual(await upsert('b'), [{ visits: 1 }]);
	assert.deepEqual(await upsert('b'), [{ visits: 2 }]);
	assert.deepEqual(await sessions().insert({ id: 'a', data: {} }).onConflict('id').ignore().returning('id'), []);
	await assert.rejects(sessions().insert({ id: 'a', data: {} }), { code: '23505' });
	assert.equal(await stored('sessions'), 6);

	// a row that is written back as it was read gets a new clock all the same
	await sql(`BEGIN; SET LOCAL ttl.touch = off; UPDATE sessions SET _ts = now() - interval '29 minutes' WHERE id = 'c'; COMMIT`);
	const c = await sessions().where({ id: 'c' }).first();
	await sessions().where({ id: 'c' }).update(c);
	assert.ok((await sessions().where({ id: 'c' }).first())._ts > c._ts);

	// a row of its own TTL
	await sessions().where({ id: 'c' }).update({ ttl: 60 });
	assert.deepEqual(await sessions().where({ id: 'c' }).select(knex.raw('ttl.time_to_live(sessions) AS seconds')), [{ seconds: 60 }]);

	// transactions: what is rolled back has neither freed a key nor renewed
	await expire('sessions', `id IN ('d', 'e')`);
	await assert.rejects(knex.transaction(async (trx) => {
		await trx('sessions').insert({ id: 'd', data: {} });
		assert.deepEqual(await trx('sessions').where({ id: 'd' }).forUpdate().pluck('id'), ['d']);
		throw new Error('rolled back');
	}), /rolled back/);
	assert.equal(await sessions().where({ id: 'd' }).first(), undefined);
	await knex.transaction(async (trx) => {
		const before = await trx('sessions').pluck('id');
		await expire('sessions', `id = 'f'`);
		assert.deepEqual(await trx('sessions').pluck('id'), before);
		assert.deepEqual(await trx('sessions').where({ id: 'f' }).pluck('id'), ['f']);
	}, { isolationLevel: 'repeatable read' });
	assert.equal(await sessions().where({ id: 'f' }).first(), undefined);

	// a stream
	await sessions().insert(Array.from({ length: 1000 }, (_, i) => ({ id: `s${i}`, data: {}, visits: i })));
	await expire('sessions', `visits % 3 = 0 AND id LIKE 's%'`);
	let read = 0;
	for await (const row of sessions().where('id', 'like', 's%').stream({ highWaterMark: 50 })) {
		assert.notEqual(row.visits % 3, 0);
		if (++read === 100) await reaped('sessions');
	}
	assert.equal(read, 666);
	assert.equal(await stored('sessions'), 3 + 666);
	await knex.destroy();
});
