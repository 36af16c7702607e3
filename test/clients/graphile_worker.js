// graphile-worker: a job queue
'use strict';

const { Logger, makeWorkerUtils, run, runMigrations, runOnce } = require('graphile-worker');
const { assert, sql, value, expire, stored, waitUntil, pause, reaped, main } = require('./lib.js');

const jobs = 'graphile_worker._private_jobs';
const logger = new Logger(() => (level, message) => {
	if (level === 'error') throw new Error(message);
});

main(async () => {
	const options = { connectionString: 'postgresql:///', logger };
	const done = [];
	const taskList = {
		note: (payload) => { done.push(payload.n); },
		fail: () => { throw new Error('no'); },
		outlive: async (payload, { job }) => {
			await expire(jobs, `id = ${job.id}`);
			done.push(payload.n);
		}
	};

	await runMigrations(options);
	await sql(
		`SELECT ttl.create_container('graphile_worker._private_jobs', '30 days')`
	);
	await runMigrations(options);

	const utils = await makeWorkerUtils(options);

	await pause(jobs);

	// an expired job is not run
	const old = await utils.addJob('note', { n: 1 });
	await utils.addJob('note', { n: 2 });
	await utils.addJob('note', { n: 3 }, { queueName: 'q' });
	await utils.addJob('note', { n: 4 }, { queueName: 'q', jobKey: 'k' });
	await expire(jobs, `id = ${old.id}`);
	await expire(jobs, `key = 'k'`);
	await runOnce({ ...options, taskList });
	assert.deepEqual(done.splice(0).sort(), [2, 3]);
	assert.deepEqual(await utils.completeJobs([old.id]), []);
	assert.deepEqual(await utils.rescheduleJobs([old.id], { priority: 1 }), []);
	await waitUntil(async () => await stored(jobs) === 2, 'the others are completed');

	// a job key that an expired job holds is free
	await utils.addJob('note', { n: 5 }, { queueName: 'q', jobKey: 'k' });
	await utils.addJob('note', { n: 6 }, { queueName: 'q', jobKey: 'k' });
	assert.equal(await stored(jobs), 2);
	await runOnce({ ...options, taskList });
	assert.deepEqual(done.splice(0), [6]);

	// one that expires while it runs
	await utils.addJob('outlive', { n: 7 }, { jobKey: 'k' });
	await runOnce({ ...options, taskList });
	assert.deepEqual(done.splice(0).sort(), [7]);

	// what has failed for good goes in time
	await utils.addJob('fail', {}, { maxAttempts: 1 });
	await runOnce({ ...options, logger: new Logger(() => () => {}), taskList });
	await waitUntil(async () => await value(`SELECT last_error FROM ${jobs}`) === 'no', 'the job has failed');
	await expire(jobs);
	await reaped(jobs);
	assert.equal(await stored(jobs), 0);

	// a worker goes on while the reaper deletes; every second job expires unseen
	const runner = await run({ ...options, taskList, concurrency: 3, pollInterval: 100, noHandleSignals: true });
	await sql(`SELECT graphile_worker.add_job('note', json_build_object('n', n),
			run_at => now() + n % 2 * interval '1 hour', job_key => 'key ' || n)
		FROM generate_series(1, 200) n`);
	await expire(jobs, `run_at > now() + interval '1 minute'`);
	await reaped(jobs);
	await waitUntil(() => done.length === 100, 'jobs are done');
	assert.ok(done.every((n) => n % 2 === 0));
	await waitUntil(async () => await stored(jobs) === 0, 'all are gone');
	await runner.stop();

	// their own cleaning
	await utils.addJob('note', { n: 9 }, { queueName: 'q' });
	await expire(jobs);
	await utils.cleanup({ tasks: ['DELETE_PERMAFAILED_JOBS', 'GC_JOB_QUEUES', 'GC_TASK_IDENTIFIERS'] });
	assert.equal(await value('SELECT count(*)::int FROM graphile_worker._private_job_queues'), 0);
	await reaped(jobs);
	await utils.release();
});
