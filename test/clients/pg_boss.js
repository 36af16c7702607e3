// pg-boss: a job queue, partitioned by the names of its queues
'use strict';

const PgBoss = require('pg-boss');
const { assert, sql, value, expire, stored, waitUntil, pause, reaped, main } = require('./lib.js');

main(async () => {
	const boss = new PgBoss({ db: { executeSql: async (text, values) => {
		const rows = await sql(text, values);
		return { rows };
	} }, supervise: false, schedule: false });
	boss.on('error', (error) => { throw error; });
	await boss.start();
	await boss.createQueue('before');

	// jobs that nobody has touched for 30 days; what is left of jobs after 7
	await sql(
		`SELECT ttl.create_container('pgboss.job', '30 days');
		SELECT ttl.create_container('pgboss.archive', '7 days');`
	);

	// queues are partitions: those that come later, too, and with every policy
	await boss.createQueue('after', { name: 'after', policy: 'singleton' });
	await boss.createQueue('short', { name: 'short', policy: 'short' });
	await boss.createQueue('letters');

	for (const queue of ['before', 'after']) {
		await pause('pgboss.job');
		const [old, young] = [await boss.send(queue, { n: 1 }), await boss.send(queue, { n: 2 })];
		await expire('pgboss.job', `id = '${old}'`);

		// an expired job is not fetched, counted, completed, cancelled
		assert.equal(await boss.getQueueSize(queue), 1);
		assert.equal(await boss.getJobById(queue, old), null);
		const jobs = await boss.fetch(queue, { batchSize: 10 });
		assert.deepEqual(jobs.map((job) => job.id), [young]);
		await boss.complete(queue, old);
		await boss.cancel(queue, old);
		assert.deepEqual(await boss.fetch(queue), []);

		// one that expires while it runs is not found when it is done
		await expire('pgboss.job', `id = '${young}'`);
		await boss.complete(queue, young);
		assert.equal(await boss.getJobById(queue, young), null);
		assert.equal(await stored('pgboss.job'), 2);
		await reaped('pgboss.job');
		assert.equal(await stored('pgboss.job'), 0);
	}

	// unique keys that expired jobs hold are free: at most one job waits in 'short', one id is used again
	const waiting = await boss.send('short', {});
	assert.equal(await boss.send('short', {}), null);
	await expire('pgboss.job', `id = '${waiting}'`);
	const next = await boss.send('short', {}, { id: waiting });
	assert.equal(next, waiting);
	assert.equal(await boss.send('short', {}), null);
	await boss.fetch('short');
	await boss.complete('short', next);

	// failing and retrying deletes a job and inserts it again in one statement
	const failing = await boss.send('before', {}, { retryLimit: 1, deadLetter: 'letters' });
	for (const state of ['retry', 'failed']) {
		assert.equal((await boss.fetch('before')).length, 1);
		await boss.fail('before', failing, { message: 'no' });
		assert.equal((await boss.getJobById('before', failing)).state, state);
	}
	assert.equal(await boss.getQueueSize('letters'), 1);

	// a worker goes on while the reaper deletes
	const done = new Set();
	await boss.work('before', { batchSize: 20, pollingIntervalSeconds: 0.5 }, async (jobs) => {
		for (const job of jobs) done.add(job.data.n);
	});
	await boss.insert(Array.from({ length: 200 }, (_, n) => ({ name: 'before', data: { n }, startAfter: n % 2 ? 60 : 0 })));
	await expire('pgboss.job', `name = 'before' AND state = 'created' AND start_after > now()`);
	await reaped('pgboss.job');
	await waitUntil(() => done.size === 100, 'jobs are done');
	assert.ok([...done].every((n) => n % 2 === 0));
	await waitUntil(async () => await value(`SELECT count(*)::int FROM pgboss.job WHERE name = 'before' AND state = 'completed'`) === 100,
		'jobs are completed');
	await boss.offWork('before');

	// their own maintenance: completed jobs go to the archive, which keeps them for its time
	await sql(`UPDATE pgboss.job SET completed_on = now() - interval '1 month' WHERE completed_on IS NOT NULL`);
	await boss.maintain();
	const archived = await stored('pgboss.archive');
	assert.ok(archived >= 102, `${archived} archived`);
	await expire('pgboss.archive', `name = 'short'`);
	assert.equal(await boss.getJobById('short', next, { includeArchive: true }), null);
	assert.equal((await boss.getJobById('before', failing, { includeArchive: true })).state, 'failed');
	await reaped('pgboss.archive');
	assert.equal(await stored('pgboss.archive'), archived - 1);

	await boss.deleteQueue('after');
	await boss.clearStorage();
	await boss.stop({ graceful: false });
});
