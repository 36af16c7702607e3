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
	// a column that Sequelize keeps already
	const View = sequelize.define('view', { path: DataTypes.TEXT });
	// a deadline of its own, and nothing of ttl
	const Invitation = sequelize.define('invitation', { email: { type: DataTypes.TEXT, primaryKey: true }, expires: DataTypes.DATE },
		{ indexes: [{ fields: ['expires'] }] });
	Session.hasMany(View, { onDelete: 'CASCADE' });
	View.belongsTo(Session);

	await sequelize.sync();
	await register();
	await sequelize.query(
		`SELECT ttl.create_container('views', '30 minutes', ts_column => 'updatedAt', ttl_column => NULL)`
	);
	await sequelize.query(
		`SELECT ttl.create_container('invitations', -1, ts_column => NULL, ttl_column => 'expires')`
	);
	await sequelize.sync({ alter: true });
	log = [];
	const before = await schema();
	await sequelize.sync({ alter: true });
	await register();
	assert.ok(log.some((line) => /ALTER TABLE "sessions" ALTER COLUMN "_ts"/.test(line)));
	assert.deepEqual(await schema(), before);

	// columns that the model doesn't know
	const Strange = sequelize.define('strange', {});
	await Strange.sync();
	await sql(`SELECT ttl.create_container('stranges')`);
	await assert.rejects(Strange.sync({ alter: true }), (error) => error.original.code === '2BP01');
	await Strange.sync({ alter: { drop: false } });
	assert.equal(await value(`SELECT count(*)::int FROM ttl.containers`), 4);

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

	// the column that Sequelize keeps: the server has the last word
	await expire('views', 'true', '"updatedAt"');
	assert.equal(await View.count(), 0);
	const view = await View.create({ path: '/late' });
	await sql(`BEGIN; SET LOCAL ttl.touch = off; UPDATE views SET "updatedAt" = now() - interval '29 minutes' WHERE id = ${view.id}; COMMIT`);
	await sql(`UPDATE views SET path = '/later' WHERE id = ${view.id}`);
	assert.ok((await view.reload()).updatedAt > new Date(Date.now() - 60000));
	await reaped('views');
	assert.equal(await stored('views'), 1);

	// deadlines: writing back moves none, and null is never
	const hour = (n) => new Date(Date.now() + n * 3600000);
	await Invitation.bulkCreate([['a', hour(-1)], ['b', hour(1)], ['c', null]].map(([email, expires]) => ({ email, expires })));
	assert.equal(await Invitation.count(), 2);
	const invitation = await Invitation.findByPk('b');
	invitation.changed('expires', true);
	await invitation.save();
	assert.deepEqual((await Invitation.findByPk('b')).expires, invitation.expires);
	await Invitation.upsert({ email: 'a', expires: hour(1) });
	await invitation.update({ expires: hour(-1) });
	assert.equal(await Invitation.count(), 2);
	await reaped('invitations');
	assert.equal(await stored('invitations'), 2);

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
