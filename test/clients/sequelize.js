// Sequelize: models, and sync({ alter: true }) at each start
'use strict';

const { DataTypes, Op, Sequelize, Transaction } = require('sequelize');
const { assert, sql, value, expire, stored, pause, reaped, main } = require('./lib.js');

// What is sent to the server
let log = [];
const sequelize = new Sequelize(process.env.PGDATABASE, process.env.PGUSER, '',
	{ dialect: 'postgres', host: process.env.PGHOST, port: process.env.PGPORT, logging: (line) => log.push(line) });

const register = () => sequelize.query(
	`SELECT ttl.create_container('sessions', 1800)
	WHERE NOT EXISTS (SELECT FROM ttl.containers WHERE container = 'sessions'::regclass)`);

// What a schema has come to: relations, columns, constraints
const schema = () => sql(`
	SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull, pg_get_expr(d.adbin, d.adrelid) AS def
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
	WHERE c.relnamespace = 'public'::regnamespace AND a.attnum > 0 ORDER BY 1, a.attnum`);

main(async () => {
	// declared columns
	const Session = sequelize.define('session', {
		id: { type: DataTypes.TEXT, primaryKey: true },
		data: { type: DataTypes.JSONB, allowNull: false },
		visits: { type: DataTypes.INTEGER, allowNull: false, defaultValue: 0 },
		_ts: { type: DataTypes.DATE, allowNull: false, defaultValue: Sequelize.fn('clock_timestamp') },
		ttl: { type: DataTypes.INTEGER }
	});
	// columns that the model doesn't know
	const View = sequelize.define('view', { path: DataTypes.TEXT });
	Session.hasMany(View, { onDelete: 'CASCADE' });
	View.belongsTo(Session);

	await sequelize.sync();
	await register();
	await sql(`SELECT ttl.create_container('views', '30 minutes')`);
	log = [];
	const before = await schema();
	for (let i = 0; i < 2; i++) {
		await Session.sync({ alter: true });
		await View.sync({ alter: { drop: false } });
		await register();
	}
	assert.ok(log.some((line) => /ALTER TABLE "sessions" ALTER COLUMN "_ts"/.test(line)));
	assert.deepEqual(await schema(), before);
	await assert.rejects(View.sync({ alter: true }), (error) => error.original.code === '2BP01');
	assert.deepEqual(await schema(), before);

	await pause('sessions');
	await pause('views');
	await Session.bulkCreate([...'abcdef'].map((id) => ({ id, data: { id } })));
	await View.bulkCreate([...'aabbcc'].map((sessionId) => ({ path: '/', sessionId })));
	const read = await Session.findByPk('a');
	await expire('sessions', `id IN ('a', 'b')`);

	assert.equal(await Session.count(), 4);
	assert.equal(await Session.findByPk('a'), null);
	assert.deepEqual((await Session.findAll({ order: ['id'], include: View })).map((s) => [s.id, s.views.length]),
		[['c', 2], ['d', 0], ['e', 0], ['f', 0]]);
	assert.deepEqual((await View.findAll({ order: ['id'], include: Session })).map((v) => v.session?.id), [null, null, null, null, 'c', 'c']
		.map((id) => id ?? undefined));
	await assert.rejects(View.create({ path: '/', sessionId: 'a' }), (error) => error.original.code === '23503');

	// what was read before it expired, and is saved after, isn't there
	read.data = { late: true };
	await read.save();
	await assert.rejects(read.reload(), /does not exist anymore/);
	assert.equal(await stored('sessions'), 6);

	// keys that have expired are free; what referenced the old row goes with it
	const [again, created] = await Session.findOrCreate({ where: { id: 'a' }, defaults: { data: {} } });
	assert.ok(created);
	assert.equal(again.visits, 0);
	assert.equal(await stored('views'), 4);
	assert.equal((await Session.findOrCreate({ where: { id: 'a' }, defaults: { data: {} } }))[1], false);
	const [upserted] = await Session.upsert({ id: 'b', data: { up: 1 } });
	assert.deepEqual(upserted.data, { up: 1 });
	await Session.bulkCreate([...'abc'].map((id) => ({ id, data: {}, visits: 7 })), { updateOnDuplicate: ['visits'] });
	assert.equal(await Session.sum('visits'), 21);
	assert.equal(await stored('sessions'), 6);

	// saving renews, whatever _ts was read
	await sql(`BEGIN; SET LOCAL ttl.touch = off; UPDATE sessions SET _ts = now() - interval '29 minutes' WHERE id = 'c'; COMMIT`);
	const c = await Session.findByPk('c');
	c.changed('_ts', true);
	c.visits++;
	await c.save();
	assert.ok((await Session.findByPk('c'))._ts > new Date(Date.now() - 60000));
	c.ttl = 60;
	await c.save();
	assert.equal(await value(`SELECT ttl.time_to_live(s) FROM sessions s WHERE id = 'c'`), 60);

	// transactions
	await expire('sessions', `id = 'd'`);
	await assert.rejects(sequelize.transaction(async (transaction) => {
		await Session.create({ id: 'd', data: {} }, { transaction });
		assert.ok(await Session.findByPk('d', { transaction, lock: Transaction.LOCK.UPDATE }));
		throw new Error('rolled back');
	}), /rolled back/);
	assert.equal(await Session.findByPk('d'), null);
	assert.equal(await Session.destroy({ where: { id: { [Op.in]: ['d', 'e'] } } }), 1);

	await reaped('sessions');
	assert.equal(await stored('sessions'), await Session.count());
	await sequelize.close();
});
