// pg-boss: a job queue, in one table, or with a partition for each queue that asks for one
'use strict';

const { PgBoss } = require('pg-boss');
const { assert, pool, sql, value, expire, stored, waitUntil, pause, reaped, main } = require('./lib.js');

const deadline = 'keep_until';

main(async () => {
	const boss = new PgBoss({ db: { executeSql: (text, values) => pool.query(text, values) }, supervise: false, schedule: false });
	boss.on('error', (error) => { throw error; });
	await boss.start();
	await boss.createQueue('before');

	// a job goes when pg-boss says that it need not be kept
	await sql(`SELECT ttl.create_container('pgboss.job', -1, ts_column => NULL, ttl_column => 'keep_until', if_not_exists => true);`);

	// pg-boss finds its tables as it has made them
	const { ok, extraIndexes } = await boss.detectSchemaDrift();
	assert.equal(ok, true);
	assert.ok(extraIndexes.length > 0);

	// queues may be partitions: those that come later, too, and with every policy
	await boss.createQueue('after', { policy: 'singleton', partition: true });
	await boss.createQueue('short', { policy: 'short', partition: true });
	await boss.createQueue('letters');
	assert.equal((await boss.detectSchemaDrift()).ok, true);

	for (const queue of ['before', 'after']) {
		await pause('pgboss.job');
		const [old, young] = [await boss.send(queue, { n: 1 }), await boss.send(queue, { n: 2 })];
		await expire('pgboss.job', `id = '${old}'`, deadline);

		// an expired job is not fetched, found, completed, cancelled
		assert.equal((await boss.findJobs(queue)).length, 1);
		assert.deepEqual(await boss.findJobs(queue, { id: old }), []);
		const jobs = await boss.fetch(queue, { batchSize: 10 });
		assert.deepEqual(jobs.map((job) => job.id), [young]);
		await boss.complete(queue, old);
		await boss.cancel(queue, old);
		assert.deepEqual(await boss.fetch(queue), []);

		// one that expires while it runs is not found when it is done
		await expire('pgboss.job', `id = '${young}'`, deadline);
		await boss.complete(queue, young);
		assert.deepEqual(await boss.findJobs(queue, { id: young }), []);
		assert.equal(await stored('pgboss.job'), 2);
		await reaped('pgboss.job');
		assert.equal(await stored('pgboss.job'), 0);
	}

	// unique keys that expired jobs hold are free: at most one job waits in 'short', one id is used again
	const waiting = await boss.send('short', {});
	assert.equal(await boss.send('short', {}), null);
	await expire('pgboss.job', `id = '${waiting}'`, deadline);
	const next = await boss.send('short', {}, { id: waiting });
	assert.equal(next, waiting);
	assert.equal(await boss.send('short', {}), null);
	await boss.fetch('short');
	await boss.complete('short', next);

	// failing and retrying deletes a job and inserts it again in one statement
	const failing = await boss.send('before', {}, { retryLimit: 1, retryDelay: 0, deadLetter: 'letters' });
	for (const state of ['retry', 'failed']) {
		assert.equal((await boss.fetch('before')).length, 1);
		await boss.fail('before', failing, { message: 'no' });
		assert.equal((await boss.findJobs('before', { id: failing }))[0].state, state);
	}
	assert.equal((await boss.findJobs('letters')).length, 1);

	// a worker goes on while the reaper deletes
	const done = new Set();
	await boss.work('before', { batchSize: 20, pollingIntervalSeconds: 0.5 }, async (jobs) => {
		for (const job of jobs) done.add(job.data.n);
	});
	await boss.insert('before', Array.from({ length: 200 }, (_, n) => ({ data: { n }, startAfter: n % 2 ? 60 : 0 })));
	await expire('pgboss.job', `name = 'before' AND state = 'created' AND start_after > now()`, deadline);
	await reaped('pgboss.job');
	await waitUntil(() => done.size === 100, 'jobs are done');
	assert.ok([...done].every((n) => n % 2 === 0));
	await waitUntil(async () => await value(`SELECT count(*)::int FROM pgboss.job WHERE name = 'before' AND state = 'completed'`) === 100,
		'jobs are completed');
	await boss.offWork('before');

	// their own maintenance still deletes what was done some days ago
	await sql(`UPDATE pgboss.job SET completed_on = now() - interval '1 month' WHERE completed_on IS NOT NULL`);
	await boss.supervise();
	assert.equal(await value(`SELECT count(*)::int FROM pgboss.job WHERE completed_on IS NOT NULL`), 0);

	// restarts register again
	await sql(`SELECT ttl.create_container('pgboss.job', -1, ts_column => NULL, ttl_column => 'keep_until', if_not_exists => true);`);
	await boss.deleteQueue('after');
	await boss.deleteAllJobs();
	await boss.stop({ graceful: false });
});
